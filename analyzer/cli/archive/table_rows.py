"""Rows of the archive's tables, from what the store has of a run. Pure.

Every text passes through ``clean``, because a name may hold a secret too: an agent's, a tool's, a model's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from analyzer.history.elements import digest_of, digests_in, elements_of
from collector_processor.core.records import StoredVerdict
from semconv.model import Step, Trajectory

Row: TypeAlias = dict[str, Any]
Clean: TypeAlias = Callable[[str], str]

_LAST_NS: Final = 1 << 63
"""Times at and beyond it are not stored: no clock wrote them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedRun:
    """A verdict, and what the store has of its run."""

    verdict: StoredVerdict
    totals: Mapping[str, Any] = field(default_factory=dict)
    """The run's row in ``run_totals``, by column; empty if it has none."""
    outcome: str | None = None
    """``passed``, ``failed`` or ``unsaid``; ``None`` if unknown."""
    release: str | None = None
    workflow_version: str | None = None
    elements: bytes = b""
    """Packed spectrum (``history.elements``)."""
    trajectory: Trajectory | None = None
    """The run's steps; ``None`` if not kept, or if a later verdict supersedes this one."""


def verdict_row(run: ArchivedRun, clean: Clean) -> Row:
    """Return the row of a verdict."""
    verdict, said, totals = run.verdict, run.verdict.fields, run.totals
    return {
        **_of_run(run, clean),
        **_of_history(run, clean),
        "release": _cleaned(run.release, clean),
        "status": verdict.status,
        "agent": _cleaned(verdict.agent, clean),
        "step": verdict.step,
        "trace_id": verdict.trace_id,
        "span_id": verdict.span_id,
        "failure_id": verdict.failure_id,
        "mode": _cleaned(said.get("mode"), clean),
        "confidence": said.get("confidence"),
        "failed_probability": said.get("failed_probability"),
        "method": _cleaned(said.get("method"), clean),
        "model": _cleaned(said.get("model"), clean),
        "is_by_person": verdict.is_persons_word,
        "decided_at": _microseconds(verdict.decided_ns),
        "calls": said.get("calls"),
        "analysis_input_tokens": said.get("input_tokens"),
        "analysis_output_tokens": said.get("output_tokens"),
        "analysis_cost_usd": said.get("cost_usd"),
        "started_at": _microseconds(totals.get("started_ns")),
        "duration_s": _seconds(totals.get("duration_ns")),
        **{name: totals.get(name) for name in ("steps", "input_tokens", "output_tokens", "cost_usd")},
    }


def step_rows(run: ArchivedRun, clean: Clean) -> Iterator[Row]:
    """Yield the rows of a run's steps; none if they are not kept."""
    if run.trajectory is None:
        return
    of_run, probabilities = _of_run(run, clean), _probabilities(run.verdict)
    for step in run.trajectory.steps:
        yield {
            **of_run,
            **_of_step(step, clean),
            "is_decisive": step.index == run.verdict.step,
            "probability": probabilities.get(step.index),
        }


def spectrum_rows(run: ArchivedRun, clean: Clean) -> Iterator[Row]:
    """Yield a row for each element of a run; those of a run whose steps are not kept have no name."""
    of_run = {**_of_run(run, clean), **_of_history(run, clean)}
    found = () if run.trajectory is None else elements_of(run.trajectory)
    known = {digest_of(element.key): element for element in reversed(found)}
    for digest in digests_in(run.elements):
        element = known.get(digest)
        yield {
            **of_run,
            "element": int.from_bytes(digest),
            "name": None if element is None else _cleaned(element.key, clean),
            "step": None if element is None else element.step,
        }


def _of_run(run: ArchivedRun, clean: Clean) -> Row:
    return {
        "run_id": _text(run.verdict.run_id),
        "version": run.verdict.version,
        "service": _cleaned(run.verdict.service, clean),
        "workflow": _cleaned(run.totals.get("workflow"), clean),
    }


def _of_history(run: ArchivedRun, clean: Clean) -> Row:
    return {"workflow_version": _cleaned(run.workflow_version, clean), "outcome": run.outcome}


def _of_step(step: Step, clean: Clean) -> Row:
    return {
        "step": step.index,
        "agent": _cleaned(step.agent, clean),
        "kind": step.kind.value,
        "target": _cleaned(step.target, clean),
        "status": step.status.value,
        "is_error": bool(step.error) and step.stop is None,
        "trace_id": step.trace_id,
        "span_id": step.span_id,
        "started_at": _microseconds(step.start_ns),
        "duration_s": _seconds(step.end_ns - step.start_ns) if step.start_ns and step.end_ns else None,
        "input_chars": len(step.input),
        "output_chars": len(step.output),
    }


def _probabilities(verdict: StoredVerdict) -> dict[int, float]:
    ranking = verdict.fields.get("ranking")
    return {one["step"]: one["probability"] for one in ranking or () if isinstance(one, dict)}


def _cleaned(value: object, clean: Clean) -> str | None:
    return clean(_text(value)) if isinstance(value, str) else None


def _text(value: str) -> str:
    """Return a text that is valid Unicode: lone surrogates come from JSON escapes."""
    return value.encode("utf-8", "replace").decode()


def _microseconds(time_ns: int | None) -> int | None:
    return time_ns // 1_000 if time_ns is not None and 0 < time_ns < _LAST_NS else None


def _seconds(duration_ns: int | None) -> float | None:
    return None if duration_ns is None else duration_ns / 1e9
