"""What the description of the API is put together from. Pure data."""

from __future__ import annotations

from typing import Any, Final

TEXT: Final[dict[str, Any]] = {"text/plain": {"schema": {"type": "string"}}}
NULLABLE: Final[dict[str, dict[str, Any]]] = {
    kind: {"type": [kind, "null"]} for kind in ("string", "integer", "number", "boolean")
}
MOMENT: Final[dict[str, Any]] = {"type": "string", "format": "date-time"}


def record(description: str, properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object that always has all of these keys."""
    return {
        "type": "object",
        "description": description,
        "required": list(properties),
        "properties": properties,
    }


def listed(items: dict[str, Any], description: str = "") -> dict[str, Any]:
    """Return the schema of a list."""
    told = {"description": description} if description else {}
    return {"type": "array", "items": items, **told}


def named(schema: str) -> dict[str, str]:
    """Return a reference to a schema of the description."""
    return {"$ref": f"#/components/schemas/{schema}"}


def as_json(schema: dict[str, Any]) -> dict[str, Any]:
    """Return what a body or an answer in JSON is like."""
    return {"application/json": {"schema": schema}}


def answer(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return an answer in JSON."""
    return {"description": description, "content": as_json(schema)}


def said(description: str) -> dict[str, Any]:
    """Return an answer in words."""
    return {"description": description, "content": TEXT}


def in_path(name: str) -> dict[str, Any]:
    """Return a parameter that stands in the path."""
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def in_query(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return a parameter that may be asked with."""
    return {"name": name, "in": "query", "schema": schema}


def limit(most: int) -> dict[str, Any]:
    """Return the parameter that says how many are wanted."""
    return in_query("limit", {"type": "integer", "minimum": 1, "maximum": most, "default": 100})


UNKNOWN: Final = said("No token, or a Host header that does not name this machine.")
CHANGING: Final[dict[str, Any]] = {
    "400": said("The body says nothing of the kind."),
    "401": UNKNOWN,
    "403": said("Sent by another site's page."),
    "415": said("Not JSON by its content type."),
    "503": said("The disk refuses."),
}
"""How a request that changes something is refused."""


def missing(what: str) -> dict[str, Any]:
    """Return how something that is asked for by its id is not there, or not only once."""
    return {
        "404": said(f"No such {what}."),
        "409": said(f"Several tenants have {'an' if what[0] in 'aeiou' else 'a'} {what} of this id."),
    }
