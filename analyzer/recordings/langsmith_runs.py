"""Reader of LangSmith's runs: its API, its SDKs, its bulk export. Pure.

``list_runs`` and the API give runs as JSON, in a list, one a line, or under ``runs``; a run loaded with its
children holds them as ``child_runs``; the bulk export is Parquet with JSON in its cells. Each run becomes the
span that LangSmith's own OpenTelemetry exporter would have sent, so that one dialect reads both. Feedback, as
``feedback_stats`` or in records beside the runs, becomes OpenInference's annotations: of the trace if it is
about a root.
Source: langsmith 0.15 (2026), ``langsmith/schemas.py`` and ``_internal/otel/_otel_exporter.py``, seen with
langgraph 1.2.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from analyzer.recordings.fields import json_text, nanoseconds, objects, span_id_of, trace_id_of, unwrapped
from analyzer.recordings.recording import FileFormat, Records, Spans
from analyzer.recordings.span_fields import annotation, attribute_of, exception_event
from analyzer.recordings.table_text import cell_of, rows_of
from semconv.attributes import (
    GEN_AI_REQUEST_MODEL,
    GEN_AI_TOOL_CALL_ID,
    GEN_AI_TOOL_NAME,
    GEN_AI_USAGE_INPUT_TOKENS,
    GEN_AI_USAGE_OUTPUT_TOKENS,
)
from semconv.dialects.conventions.langsmith import COMPLETION, METADATA, PROMPT, SCOPE, SPAN_KIND
from semconv.model import AttributeValue, Resource, Scope, Span, SpanStatus

_TYPES: Final = frozenset({"chain", "llm", "tool", "retriever", "embedding", "prompt", "parser", "agent"})
_SCOPE: Final = Scope(name=SCOPE)
_RESOURCE: Final = Resource(attributes={"service.name": SCOPE})
_UUID: Final = 36
"""Characters of a run's id, which ends each part of ``dotted_order``."""
_PEOPLE: Final = frozenset({"app", "human"})
"""Sources of feedback that a person gave; others are programs and models."""


def is_langsmith(records: Records) -> bool:
    """Tell whether records are runs, with feedback among them or without."""
    found = _items(records)
    return all(_is_run(one) or _is_feedback(one) for one in found) and any(map(_is_run, found))


def _items(records: Records) -> Records:
    return unwrapped(rows_of(records), "runs", "data")


def _is_run(one: Any) -> bool:
    return (
        isinstance(one, dict)
        and {"id", "name", "run_type", "start_time"} <= one.keys()
        and str(one["run_type"]) in _TYPES
        and any(key in one for key in ("inputs", "dotted_order", "parent_run_id", "child_runs"))
    )


def _is_feedback(one: Any) -> bool:
    return isinstance(one, dict) and {"run_id", "key", "score"} <= one.keys()


def read_langsmith(records: Records) -> Spans:
    """Read runs, of several traces too."""
    items = objects(_items(records))
    runs = {str(child["id"]): child for child in _with_children([one for one in items if _is_run(one)])}
    said: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for one in items:
        if not _is_run(one):
            said[str(one["run_id"])].append(one)
    traces: dict[str, str] = {}
    return (_span(one, _trace_of(one, runs, traces), said[name]) for name, one in runs.items())


def _with_children(runs: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield runs and those inside them, which name their parent and their trace only by their place."""
    waiting = list(reversed(runs))
    while waiting:
        run = waiting.pop()
        yield run
        above = {"parent_run_id": run["id"], "trace_id": run.get("trace_id")}
        waiting += [
            {**above, **{name: value for name, value in child.items() if value is not None}}
            for child in reversed(objects(run.get("child_runs") or []))
            if _is_run(child)
        ]


def _trace_of(run: Mapping[str, Any], runs: Mapping[str, Mapping[str, Any]], known: dict[str, str]) -> str:
    """Return the id of a run's trace: as recorded, else the id of the run above all others."""
    passed: dict[str, None] = {}
    found = ""
    while not found:
        own = str(run["id"])
        passed[own] = None
        above = runs.get(str(run.get("parent_run_id")))
        found = known.get(own) or str(
            run.get("trace_id") or json_text(run.get("dotted_order")).partition(".")[0][-_UUID:]
        )
        if not found and (above is None or str(above["id"]) in passed):
            found = own
        run = above or run
    known.update(dict.fromkeys(passed, found))
    return found


def _span(run: Mapping[str, Any], trace: str, said: Sequence[Mapping[str, Any]]) -> Span:
    start_ns, parent = nanoseconds(run["start_time"]), run.get("parent_run_id")
    end_ns, error = nanoseconds(run.get("end_time")) or start_ns, json_text(run.get("error"))
    failed = bool(error) or run.get("status") == "error"
    return Span(
        trace_id=trace_id_of(trace),
        span_id=span_id_of(run["id"]),
        parent_id=span_id_of(parent) if parent else None,
        name=json_text(run["name"]),
        kind=1,
        start_ns=start_ns,
        end_ns=end_ns,
        status=SpanStatus.ERROR if failed else SpanStatus.OK,
        status_message=error,
        attributes={**_attributes(run), **_judgements(run, said)},
        events=(exception_event("Exception", error, end_ns),) if error else (),
        scope=_SCOPE,
        resource=_RESOURCE,
    )


def _attributes(run: Mapping[str, Any]) -> dict[str, AttributeValue]:
    extra = cell_of(run.get("extra")) or {}
    metadata = cell_of(extra.get("metadata")) or {}
    settings = extra.get("invocation_params") or {}
    is_tool = run["run_type"] == "tool"
    model = metadata.get("ls_model_name") or settings.get("model") or settings.get("model_name")
    found: dict[str, AttributeValue] = {
        SPAN_KIND: json_text(run["run_type"]),
        PROMPT: json_text(cell_of(run.get("inputs"))),
        COMPLETION: json_text(cell_of(run.get("outputs"))),
        GEN_AI_TOOL_NAME: json_text(run["name"]) if is_tool else None,
        GEN_AI_TOOL_CALL_ID: extra.get("tool_call_id") if is_tool else None,
        GEN_AI_REQUEST_MODEL: attribute_of(model),
        GEN_AI_USAGE_INPUT_TOKENS: attribute_of(run.get("prompt_tokens")),
        GEN_AI_USAGE_OUTPUT_TOKENS: attribute_of(run.get("completion_tokens")),
        **{f"{METADATA}{name}": attribute_of(value) for name, value in metadata.items()},
    }
    return {name: value for name, value in found.items() if value is not None and value != ""}


def _judgements(run: Mapping[str, Any], said: Sequence[Mapping[str, Any]]) -> dict[str, AttributeValue]:
    prefix = "annotations" if run.get("parent_run_id") else "trace.annotations"
    found: dict[str, AttributeValue] = {}
    given = [*objects(run.get("feedback") or []), *said]
    for number, one in enumerate(given):
        source = one.get("feedback_source") or {}
        kind = "HUMAN" if source.get("type") in _PEOPLE else "CODE"
        label = one.get("value") if isinstance(one.get("value"), str) else None
        found |= annotation(
            prefix, number, name=one.get("key"), label=label, score=one.get("score"), annotator_kind=kind
        )
    if not given:  # the statistics are of the same feedback
        for number, (name, one) in enumerate((cell_of(run.get("feedback_stats")) or {}).items()):
            labels = list(one.get("values") or {})
            label = labels[0] if len(labels) == 1 else None
            found |= annotation(prefix, number, name=name, label=label, score=one.get("avg"))
    return found


LANGSMITH: Final = FileFormat(
    name="LangSmith runs",
    example="langsmith-runs.json",
    source="langsmith 0.15, langsmith/schemas.py",
    how=(
        '`Client().list_runs(project_name="P")`, each run as JSON on a line, or a bulk export; '
        "[`blamespan pull langsmith`](pull.md)"
    ),
    recognizes=is_langsmith,
    read=read_langsmith,
)
