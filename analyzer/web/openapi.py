"""The API as OpenAPI 3.1 describes it. Pure data; a test holds it against the routes and real answers."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, Final

from semconv.model import Status

_TEXT: Final[dict[str, Any]] = {"text/plain": {"schema": {"type": "string"}}}
_NULLABLE: Final[dict[str, dict[str, Any]]] = {
    kind: {"type": [kind, "null"]} for kind in ("string", "integer", "number", "boolean")
}
_RUN: Final[dict[str, Any]] = {
    "type": "object",
    "description": "A run's current verdict.",
    "required": ["tenant", "version", "failure_id", "service", "provisional", "decided_ns"],
    "properties": {
        "run_id": {"type": "string"},
        "status": {"type": "string", "enum": [status.value for status in Status]},
        "agent": _NULLABLE["string"],
        "step": {**_NULLABLE["integer"], "description": "0-based."},
        "span_id": _NULLABLE["string"],
        "trace_id": _NULLABLE["string"],
        "confidence": {
            **_NULLABLE["number"],
            "description": "Probability that it is this step.",
        },
        "reason": {"type": "string"},
        "fix": _NULLABLE["string"],
        "mode": _NULLABLE["string"],
        "evidence": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"step": {"type": "integer"}, "quote": {"type": "string"}},
            },
        },
        "ranking": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "step": {"type": "integer"},
                    "agent": {"type": "string"},
                    "probability": {"type": "number"},
                },
            },
        },
        "method": {"type": "string"},
        "model": _NULLABLE["string"],
        "fallback": _NULLABLE["string"],
        "truncated": {"type": "boolean"},
        "coverage": {"type": "number"},
        "calls": {"type": "integer"},
        "input_tokens": {"type": "integer"},
        "output_tokens": {"type": "integer"},
        "cost_usd": {**_NULLABLE["number"], "description": "`null`: the price is not known."},
        "duration_s": {"type": "number"},
        "error": _NULLABLE["string"],
        "tenant": {"type": "string"},
        "version": {"type": "integer"},
        "failure_id": {"type": "string"},
        "service": {"type": "string"},
        "provisional": {"type": "boolean", "description": "Given while the run still went on."},
        "decided_ns": {"type": "integer", "description": "Nanoseconds since the epoch."},
    },
}
_LABEL: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "run_id": {"type": "string"},
        "label": {"type": "string", "enum": ["confirmed", "corrected", "rejected", "not_a_failure"]},
        "agent": _NULLABLE["string"],
        "step": _NULLABLE["integer"],
        "span_id": _NULLABLE["string"],
        "tenant": {"type": "string"},
        "service": {"type": "string"},
        "verdict_version": {"type": "integer"},
        "labelled_ns": {"type": "integer"},
    },
}
_GIVEN: Final[dict[str, Any]] = {
    "allOf": [
        {"$ref": "#/components/schemas/Label"},
        {
            "type": "object",
            "properties": {"can_be_learned": {"type": "boolean"}, "obstacle": _NULLABLE["string"]},
        },
    ]
}
_RUN_ID: Final[dict[str, Any]] = {
    "name": "run_id",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _said(description: str) -> dict[str, Any]:
    return {"description": description, "content": _TEXT}


_REFUSED: Final[dict[str, Any]] = {
    "401": _said("No token, or a Host header that does not name this machine."),
    "404": _said("No such run."),
    "409": _said("Several tenants have a run of this id."),
}


def _labelling(summary: str, body: dict[str, Any] | None) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": summary,
        "responses": {
            "200": {"description": "The label that was kept.", "content": _json(_GIVEN)},
            "400": _said("The body says nothing of the kind."),
            "403": _said("Sent by another site's page."),
            "415": _said("Not JSON by its content type."),
            "422": _said("The label does not fit the run."),
            "503": _said("The disk refuses."),
            **_REFUSED,
        },
    }
    if body is not None:
        operation["requestBody"] = {"required": True, "content": _json(body)}
    return {"parameters": [_RUN_ID], "post": operation}


OPENAPI: Final[dict[str, Any]] = {
    "openapi": "3.1.0",
    "info": {
        "title": "blamespan",
        "version": version("blamespan"),
        "description": "Which agent broke the run, at which step and why.",
    },
    "security": [{"bearer": []}, {}],
    "components": {
        "securitySchemes": {
            "bearer": {
                "type": "http",
                "scheme": "bearer",
                "description": "`BLAMESPAN_TOKEN`.",
            }
        },
        "schemas": {"Run": _RUN, "Label": _LABEL},
    },
    "paths": {
        "/healthz": {
            "get": {"summary": "The process lives.", "security": [], "responses": {"200": _said("ok")}}
        },
        "/readyz": {
            "get": {
                "summary": "It takes spans.",
                "security": [],
                "responses": {"200": _said("ready"), "503": _said("not ready")},
            }
        },
        "/metrics": {
            "get": {
                "summary": "Metrics, in Prometheus's text.",
                "responses": {"200": _said("Metrics.")},
            }
        },
        "/api/openapi.json": {
            "get": {
                "summary": "This description.",
                "responses": {"200": {"description": "OpenAPI 3.1.", "content": _json({"type": "object"})}},
            }
        },
        "/api/runs": {
            "get": {
                "summary": "The newest verdicts, one a run.",
                "parameters": [
                    {
                        "name": "limit",
                        "in": "query",
                        "schema": {"type": "integer", "minimum": 1, "maximum": 500, "default": 100},
                    }
                ],
                "responses": {
                    "200": {
                        "description": "Verdicts, newest first.",
                        "content": _json(
                            {
                                "type": "object",
                                "properties": {
                                    "runs": {"type": "array", "items": {"$ref": "#/components/schemas/Run"}}
                                },
                            }
                        ),
                    },
                    "400": _said("A limit that is none."),
                    "401": _REFUSED["401"],
                },
            }
        },
        "/api/runs/{run_id}": {
            "parameters": [_RUN_ID],
            "get": {
                "summary": "A run's verdict, and what people said of it.",
                "responses": {
                    "200": {
                        "description": "The verdict with its labels.",
                        "content": _json(
                            {
                                "allOf": [
                                    {"$ref": "#/components/schemas/Run"},
                                    {
                                        "type": "object",
                                        "properties": {
                                            "label": {
                                                "anyOf": [
                                                    {"$ref": "#/components/schemas/Label"},
                                                    {"type": "null"},
                                                ]
                                            },
                                            "earlier_labels": {
                                                "type": "array",
                                                "items": {"$ref": "#/components/schemas/Label"},
                                            },
                                        },
                                    },
                                ]
                            }
                        ),
                    },
                    **_REFUSED,
                },
            },
        },
        "/api/runs/{run_id}/label": _labelling(
            "Say who is to blame instead, or that the run did not fail.",
            {
                "type": "object",
                "properties": {
                    "agent": _NULLABLE["string"],
                    "step": _NULLABLE["integer"],
                    "failed": {"type": "boolean"},
                },
                "additionalProperties": False,
            },
        ),
        "/api/runs/{run_id}/confirm": _labelling("Say that the verdict is right.", None),
        "/api/runs/{run_id}/reject": _labelling("Say that the verdict is wrong.", None),
    },
}
