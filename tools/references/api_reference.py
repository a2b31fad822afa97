# ruff: noqa: E501 - lines of generated pages cannot be wrapped
"""Generator of docs/reference/api.md from the OpenAPI description: ``python -m tools.references.api_reference``.

``tests/web`` compares that description with the routes and real answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from analyzer.web.app import openapi

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "api.md"
_HEAD: Final = """# HTTP API

Made from the service's OpenAPI description by `python -m tools.references.api_reference`; do not edit. A running service
serves that description at `/api/openapi.json`, for client generators.

The API listens on `BLAMESPAN_WEB_LISTEN` (`127.0.0.1:8500`). With `BLAMESPAN_TOKEN`, every request needs
`Authorization: Bearer TOKEN`, except those marked *open*. Without a token, only requests from this machine are answered.
A tenant's header (`x-scope-orgid`) limits the answer to its runs. Requests that change something need a JSON content
type, and are refused if another site's page sends them.

```sh
curl -s 'http://localhost:8500/api/runs?limit=10'
curl -X POST -H 'Content-Type: application/json' -d '{"step": 7}' http://localhost:8500/api/runs/RUN/label
curl -X POST -H 'Content-Type: application/json' -d '{"failed": false}' http://localhost:8500/api/runs/RUN/label
curl -X POST -H 'Content-Type: application/json' http://localhost:8500/api/runs/RUN/confirm
```

`RUN` is a run's full id. How labels are used: [labels](../methods.md#labels).

| method and path | what it does | answers |
|---|---|---|
"""
_METHODS: Final = ("get", "post", "put", "delete")
_MEANINGS: Final[Mapping[str, str]] = {
    "agent": "Who is to blame.",
    "calls": "Model calls that were made.",
    "confidence": "Probability that it is this step, 0 to 1.",
    "coverage": "How much of the run the method saw, 0 to 1.",
    "error": "What went wrong, where `status` is `error`.",
    "evidence": "Quotes, each found in that step's text.",
    "failure_id": "The verdict's own id, as in the trace.",
    "fallback": "Why not the method that was asked for.",
    "fix": "What would have been right; only from a model.",
    "mode": "The kind of failure.",
    "ranking": "The suspects, the likeliest first.",
    "reason": "Why this step.",
    "span_id": "The span of the decisive step; `null` for conversation logs.",
    "step": "The decisive step, counted from 0.",
    "truncated": "The method saw less than the whole run.",
    "verdict_version": "The version of the verdict that was labelled.",
    "version": "Counts the analyses of one run, from 1.",
}
"""Meanings of fields that the OpenAPI description does not describe, or only briefly."""


def page() -> str:
    """Return the page."""
    return "".join([_HEAD, *_operations(), *_schemas()])


def _operations() -> Iterator[str]:
    for path, item in openapi()["paths"].items():
        for method in _METHODS:
            if method in item:
                yield _operation(path, method, item[method])


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> str:
    asked = "".join(_parameter(one) for one in operation.get("parameters", ()))
    fields = _body_fields(operation.get("requestBody"))
    body = f" Body: {', '.join(f'`{name}`' for name in fields)}." if fields else ""
    is_open = " *Open.*" if operation.get("security") == [] else ""
    answers = "; ".join(
        f"{code} {_answer(code, one)}" for code, one in sorted(operation["responses"].items())
    )
    return f"| `{method.upper()} {path}` | {operation['summary']}{asked}{body}{is_open} | {answers} |\n"


def _answer(code: str, response: Mapping[str, Any]) -> str:
    return str(response.get("description") or HTTPStatus(int(code)).phrase).rstrip(".")


def _parameter(parameter: Mapping[str, Any]) -> str:
    limits = parameter["schema"]
    bounds = [f"{name} {limits[name]}" for name in ("minimum", "maximum", "default") if name in limits]
    told = parameter.get("description", "").rstrip(".")
    text = "; ".join(filter(None, [told, ", ".join(bounds), " or ".join(map(str, limits.get("enum", ())))]))
    return f" `?{parameter['name']}=`" + (f" ({text})." if text else ".")


def _body_fields(body: Mapping[str, Any] | None) -> tuple[str, ...]:
    if body is None:
        return ()
    content = next(iter(body["content"].values()))
    return tuple(content["schema"].get("properties", ()))


def _schemas() -> Iterator[str]:
    for name, schema in openapi()["components"]["schemas"].items():
        rows = "".join(_field(field, of) for field, of in schema["properties"].items())
        yield f"\n## {name}\n\n{schema['description']}\n\n| field | type | meaning |\n|---|---|---|\n{rows}"


def _field(name: str, of: Mapping[str, Any]) -> str:
    described = [_MEANINGS.get(name, "") or of.get("description", ""), _values(of)]
    return f"| `{name}` | {_kind(of)} | {' '.join(filter(None, described))} |\n"


def _values(of: Mapping[str, Any]) -> str:
    return f"One of {', '.join(f'`{value}`' for value in of['enum'])}." if "enum" in of else ""


def _kind(of: Mapping[str, Any]) -> str:
    if "anyOf" in of:
        return " or ".join(_kind(one) for one in of["anyOf"])
    if "$ref" in of:
        name = of["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if of["type"] == "array":
        return f"list of {_kind(of.get('items') or of['prefixItems'][0])}"
    if "properties" in of:
        inside = ", ".join(f"`{name}`" for name in of["properties"])
        return f"{inside} or null" if "null" in of["type"] else inside
    return " or ".join(of["type"]) if isinstance(of["type"], list) else str(of["type"])


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
