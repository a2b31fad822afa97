"""What the API's answers are like: runs, labels, issues. Pure data."""

from __future__ import annotations

from typing import Any, Final

from analyzer.labels import LabelKind
from analyzer.recurrence import IssueState
from analyzer.web.openapi.parts import MOMENT, NULLABLE, listed, named, record
from semconv.model import Status

_SHARE: Final[dict[str, Any]] = {
    "estimate": {"type": "number"},
    "low": {"type": "number"},
    "high": {"type": "number"},
}
RUN: Final = record(
    "A run's current verdict.",
    {
        "run_id": {"type": "string"},
        "status": {"type": "string", "enum": [status.value for status in Status]},
        "agent": NULLABLE["string"],
        "step": {**NULLABLE["integer"], "description": "0-based."},
        "span_id": NULLABLE["string"],
        "trace_id": NULLABLE["string"],
        "confidence": {**NULLABLE["number"], "description": "Probability that it is this step."},
        "reason": {"type": "string"},
        "fix": NULLABLE["string"],
        "mode": NULLABLE["string"],
        "evidence": listed(
            record("A quote.", {"step": {"type": "integer"}, "quote": {"type": "string"}}),
        ),
        "ranking": listed(
            record(
                "A suspect.",
                {
                    "step": {"type": "integer"},
                    "agent": {"type": "string"},
                    "probability": {"type": "number"},
                },
            )
        ),
        "method": {"type": "string"},
        "model": NULLABLE["string"],
        "fallback": NULLABLE["string"],
        "truncated": {"type": "boolean"},
        "coverage": {"type": "number"},
        "calls": {"type": "integer"},
        "input_tokens": {"type": "integer"},
        "output_tokens": {"type": "integer"},
        "cost_usd": {**NULLABLE["number"], "description": "`null`: the price is not known."},
        "duration_s": {"type": "number"},
        "error": NULLABLE["string"],
        "tenant": {"type": "string"},
        "version": {"type": "integer"},
        "failure_id": {"type": "string"},
        "service": {"type": "string"},
        "provisional": {"type": "boolean", "description": "Given while the run still went on."},
        "decided_ns": {"type": "integer", "description": "Nanoseconds since the epoch."},
    },
)
LABEL: Final = record(
    "What a person said of a verdict.",
    {
        "run_id": {"type": "string"},
        "label": {"type": "string", "enum": [kind.value for kind in LabelKind]},
        "agent": NULLABLE["string"],
        "step": NULLABLE["integer"],
        "span_id": NULLABLE["string"],
        "tenant": {"type": "string"},
        "service": {"type": "string"},
        "verdict_version": {"type": "integer"},
        "labelled_ns": {"type": "integer"},
    },
)
LABELLED_RUN: Final[dict[str, Any]] = {
    "type": "object",
    "description": "A run's current verdict with what people said of it.",
    "required": [*RUN["required"], "label", "earlier_labels"],
    "properties": {
        **RUN["properties"],
        "label": {"anyOf": [named("Label"), {"type": "null"}]},
        "earlier_labels": listed(named("Label")),
    },
}
GIVEN: Final = record(
    "A label that was kept.",
    {
        **LABEL["properties"],
        "can_be_learned": {"type": "boolean"},
        "obstacle": {**NULLABLE["string"], "description": "Why a ranker learns nothing from it."},
        "trace_follows": {
            "type": "boolean",
            "description": "Whether the trace is corrected too, within seconds.",
        },
        "trace_obstacle": {**NULLABLE["string"], "description": "Why the run's trace cannot be corrected."},
    },
)
AGENT_SHARE: Final[dict[str, Any]] = {
    **record(
        "In what share of its runs of the last seven days the agent was to blame, with the interval that"
        " allows for the method's own errors.",
        {
            **_SHARE,
            "blamed": {"type": "integer", "description": "Runs it was blamed for."},
            "runs": {"type": "integer", "description": "Runs it took part in."},
            "labelled": {"type": "integer", "description": "Labels that say how often the method is wrong."},
            "against_past": record("Against its own past: how many times as often.", _SHARE),
            "against_fellows": record("Against the other agents of its service.", _SHARE),
            "alarm": {"type": "boolean", "description": "It fails more often than it did."},
        },
    ),
    "type": ["object", "null"],
}
ISSUE: Final = record(
    "A recurring failure.",
    {
        "id": {"type": "string"},
        "state": {"type": "string", "enum": [state.value for state in IssueState]},
        "title": {"type": "string", "description": "One line for people."},
        "tenant": {"type": "string"},
        "service": {"type": "string"},
        "agent": {"type": "string"},
        "mode": {"type": "string"},
        "kind": {"type": "string", "description": "Of the decisive step."},
        "tool": {"type": "string", "description": "Called, or the agent handed over to; empty for others."},
        "error": {"type": "string", "description": "The type of error; empty where there was none."},
        "count": {"type": "integer", "description": "Runs it broke, over all its life."},
        "first_seen": MOMENT,
        "last_seen": MOMENT,
        "since": {**MOMENT, "description": "When it came into its state."},
        "trend": listed(
            record("A day.", {"day": {"type": "string", "format": "date"}, "count": {"type": "integer"}}),
            "Failures a day of the last fortnight, oldest first.",
        ),
        "examples": listed({"type": "string"}, "Ids of the last runs it broke, newest first."),
        "muted": {"type": "boolean"},
        "muted_until": {"type": ["string", "null"], "format": "date-time"},
        "share": AGENT_SHARE,
        "share_off": {**NULLABLE["string"], "description": "Why there is no share."},
    },
)
