"""What the API can be asked. Pure data."""

from __future__ import annotations

from typing import Any, Final

from analyzer.recurrence import IssueState
from analyzer.web.issues_api import MAX_LISTED, MAX_MUTE_S
from analyzer.web.openapi.parts import (
    CHANGING,
    NULLABLE,
    UNKNOWN,
    answer,
    as_json,
    in_path,
    in_query,
    limit,
    listed,
    missing,
    named,
    record,
    said,
)

_STATED: Final[dict[str, Any]] = {"id": {"type": "string"}, "tenant": {"type": "string"}}


def _labelling(summary: str, body: dict[str, Any] | None) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": summary,
        "responses": {
            "200": answer("The label that was kept.", named("GivenLabel")),
            **CHANGING,
            **missing("run"),
            "422": said("The label does not fit the run."),
        },
    }
    if body is not None:
        operation["requestBody"] = {"required": True, "content": as_json(body)}
    return {"parameters": [in_path("run_id")], "post": operation}


def _deciding(summary: str, given: dict[str, Any], body: dict[str, Any] | None) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": summary,
        "responses": {
            "200": answer("Done.", record("What it is now.", {**_STATED, **given})),
            **CHANGING,
            **missing("issue"),
        },
    }
    if body is not None:
        operation["requestBody"] = {"required": True, "content": as_json(body)}
    return {"parameters": [in_path("issue_id")], "post": operation}


_OPEN: Final[dict[str, Any]] = {
    "/healthz": {"get": {"summary": "The process lives.", "security": [], "responses": {"200": said("ok")}}},
    "/readyz": {
        "get": {
            "summary": "It takes spans.",
            "security": [],
            "responses": {"200": said("ready"), "503": said("not ready")},
        }
    },
    "/metrics": {
        "get": {
            "summary": "Metrics, in Prometheus's text.",
            "responses": {
                "200": {
                    "description": "Metrics.",
                    "content": {
                        kind: {"schema": {"type": "string"}}
                        for kind in ("text/plain", "application/openmetrics-text")
                    },
                },
                "401": UNKNOWN,
            },
        }
    },
    "/events": {
        "get": {
            "summary": "Server-sent events: `runs`, whenever the list of runs has changed.",
            "responses": {
                "200": {
                    "description": "A stream without end.",
                    "content": {"text/event-stream": {"schema": {"type": "string"}}},
                },
                "401": UNKNOWN,
                "503": said("As many listen as may."),
            },
        }
    },
    "/api/openapi.json": {
        "get": {
            "summary": "This description.",
            "responses": {"200": answer("OpenAPI 3.1.", {"type": "object"}), "401": UNKNOWN},
        }
    },
}
_RUNS: Final[dict[str, Any]] = {
    "/api/runs": {
        "get": {
            "summary": "The newest verdicts, one a run.",
            "parameters": [limit(MAX_LISTED)],
            "responses": {
                "200": answer("Verdicts, newest first.", record("Runs.", {"runs": listed(named("Run"))})),
                "400": said("A limit that is none."),
                "401": UNKNOWN,
            },
        },
    },
    "/api/runs/{run_id}": {
        "parameters": [in_path("run_id")],
        "get": {
            "summary": "A run's verdict, and what people said of it.",
            "responses": {
                "200": answer("The verdict with its labels.", named("LabelledRun")),
                "401": UNKNOWN,
                **missing("run"),
            },
        },
    },
    "/api/runs/{run_id}/label": _labelling(
        "Say who is to blame instead, or that the run did not fail.",
        {
            "type": "object",
            "properties": {
                "agent": NULLABLE["string"],
                "step": NULLABLE["integer"],
                "failed": {"type": "boolean"},
            },
            "additionalProperties": False,
        },
    ),
    "/api/runs/{run_id}/confirm": _labelling("Say that the verdict is right.", None),
    "/api/runs/{run_id}/reject": _labelling("Say that the verdict is wrong.", None),
}
_ISSUES: Final[dict[str, Any]] = {
    "/api/issues": {
        "get": {
            "summary": "Recurring failures: what came back and what is new first, then the last that failed.",
            "parameters": [
                limit(MAX_LISTED),
                in_query("state", {"type": "string", "enum": [state.value for state in IssueState]}),
                in_query("service", {"type": "string"}),
                in_query("agent", {"type": "string"}),
            ],
            "responses": {
                "200": answer(
                    "Issues, as they stand now.", record("Issues.", {"issues": listed(named("Issue"))})
                ),
                "400": said("A limit or state that is none."),
                "401": UNKNOWN,
            },
        }
    },
    "/api/issues/{issue_id}/resolve": _deciding(
        "Close an issue: if it comes back, it is a regression.",
        {"state": {"type": "string", "const": IssueState.RESOLVED.value}},
        None,
    ),
    "/api/issues/{issue_id}/mute": _deciding(
        "Tell nobody of an issue for so many seconds; 0 ends it.",
        {"muted_until_ns": {"type": "integer", "description": "Nanoseconds since the epoch; 0: not muted."}},
        {
            "type": "object",
            "properties": {"for_s": {"type": "number", "minimum": 0, "maximum": MAX_MUTE_S}},
            "required": ["for_s"],
            "additionalProperties": False,
        },
    ),
}
PATHS: Final[dict[str, Any]] = {**_OPEN, **_RUNS, **_ISSUES}
