"""LangGraph's resumptions: which traces continue a run that waited for a person.

A thread (``thread_id``) holds any number of runs, so it does not tell which traces are one. A task does. The
id at the end of ``langgraph_checkpoint_ns`` is a hash of the task's checkpoint, and every run of a thread has
checkpoints of its own. A task that raised ``GraphInterrupt`` runs again under the same id when its graph gets
``Command(resume=…)``. In subgraphs the outermost task counts. Source: langgraph ``pregel/_algo.py``
(``task_id``) and ``types.Command``; seen with langgraph 1.2 under OpenInference and Traceloop.

Graphs that use ``interrupt()`` as their chat's prompt resume with every message of the user. Each of these is
a turn of its own, so a resumption with a text longer than a decision joins nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from semconv.dialects.reading.agent_names import LANGGRAPH_NAMESPACE
from semconv.dialects.reading.control_flow import Raised, raised_by
from semconv.dialects.reading.values import mapping
from semconv.model import Span

_STEP: Final = "langgraph_step"
_METADATA: Final = "metadata"
"""OpenInference's and MLflow's attribute with all of it as JSON."""
_PREFIXES: Final = (
    "traceloop.association.properties.",
    "langsmith.metadata.",
    "langfuse.observation.metadata.",
)
_INPUTS: Final = (
    "input.value", "traceloop.entity.input", "langfuse.observation.input", "mlflow.spanInputs",
    "gen_ai.prompt",
)  # fmt: skip
_COMMAND: Final = {"graph", "update", "resume", "goto"}
"""The fields of a ``Command``."""
_UNKNOWN: Final = 1 << 62
_MOST_WORDS: Final = 3
_MOST_CHARS: Final = 24
"""A decision is as long as "yes, do it"; any other text is a message. Chinese has no spaces to count."""


class _Task(NamedTuple):
    id: str
    step: int


def resumption_keys(spans: Sequence[Span]) -> Iterator[str]:
    """Yield the tasks in which a trace waits for a person, and those with which it resumes."""
    return (f"langgraph:{task.id}" for task in _joining_tasks(spans))


def _joining_tasks(spans: Sequence[Span]) -> Iterator[_Task]:
    waiting = [span for span in spans if span.events and raised_by(span, None) is Raised.WAIT]
    yield from (task for span in waiting for task in _tasks(span))
    if any(map(_is_resumed, spans)):
        tasks = [task for span in spans for task in _tasks(span)]
        first = min((task.step for task in tasks), default=0)
        yield from (task for task in tasks if task.step == first)


def _tasks(span: Span) -> Iterator[_Task]:
    """Yield the outermost task that a span is part of; steps within a subgraph are not comparable."""
    for at, step in _places(span):
        outermost, _, inner = str(at).strip('"').partition("|")
        if ":" in outermost:
            yield _Task(outermost, int(step) if str(step).isdecimal() and not inner else _UNKNOWN)


def _places(span: Span) -> Iterator[tuple[object, Any]]:
    packed = span.attributes.get(_METADATA)
    if isinstance(packed, str) and LANGGRAPH_NAMESPACE in packed:
        fields = mapping(packed)
        yield fields.get(LANGGRAPH_NAMESPACE), fields.get(_STEP)
    for prefix in _PREFIXES:
        if f"{prefix}{LANGGRAPH_NAMESPACE}" in span.attributes:
            yield span.attributes[f"{prefix}{LANGGRAPH_NAMESPACE}"], span.attributes.get(f"{prefix}{_STEP}")


def _is_resumed(span: Span) -> bool:
    """Say whether a graph was given a decision; a state of the user's may have a field ``resume`` too."""
    for name in _INPUTS:
        said = span.attributes.get(name)
        if isinstance(said, str) and '"resume"' in said:
            given = mapping(said)
            if any(_decides(each) for each in (given, mapping(given.get("inputs")))):
                return True
    return False


def _decides(given: Mapping[str, Any]) -> bool:
    if set(given) != _COMMAND or given["resume"] is None:
        return False
    said = given["resume"]
    return not isinstance(said, str) or (len(said) <= _MOST_CHARS and len(said.split()) <= _MOST_WORDS)
