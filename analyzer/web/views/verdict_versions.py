"""View model of the versions of a run's verdict: when, by whom, and what each changed. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from collector_processor.core.records import EXPERIMENT, SECOND_OPINION, StoredVerdict
from semconv.model import Status, agent_label

_WORDS: Final = {
    Status.NO_FAILURE: "no failure",
    Status.UNDETERMINED: "undetermined",
    Status.WAITING: "waiting",
    Status.CANCELLED: "cancelled",
    Status.UNREADABLE: "not readable",
    Status.ERROR: "not analysed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownVersion:
    """One version of a verdict."""

    version: int
    said: str
    """The agent to blame, else the status."""
    step: int | None
    confidence: float | None
    failed_probability: float | None
    author: str
    """A person, an experiment, or a method with its model."""
    reason: str
    decided_ns: int
    changed: tuple[str, ...]
    """Differences from the version before it; empty for the first one."""


def versions_of(verdicts: Sequence[StoredVerdict]) -> tuple[ShownVersion, ...]:
    """Return the versions, newest first, from the verdicts in the same order."""
    before = [*verdicts[1:], None]
    return tuple(_shown(verdict, earlier) for verdict, earlier in zip(verdicts, before, strict=False))


def _shown(verdict: StoredVerdict, earlier: StoredVerdict | None) -> ShownVersion:
    fields = verdict.fields
    return ShownVersion(
        version=verdict.version,
        said=agent_label(verdict.agent) if verdict.agent else _status(verdict),
        step=verdict.step if verdict.agent else None,
        confidence=_number(fields.get("confidence")),
        failed_probability=_number(fields.get("failed_probability")),
        author=_author(verdict),
        reason=str(fields.get("reason") or ""),
        decided_ns=verdict.decided_ns,
        changed=tuple(_changes(verdict, earlier)) if earlier else (),
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _status(verdict: StoredVerdict) -> str:
    return {each.value: word for each, word in _WORDS.items()}.get(verdict.status, verdict.status)


def _author(verdict: StoredVerdict) -> str:
    if verdict.is_by_person:
        return "a person"
    fields: Any = verdict.fields
    if fields.get("method") == EXPERIMENT:
        return "an experiment"
    model = f" with {fields['model']}" if fields.get("model") else ""
    asked = "a second opinion: " if fields.get(SECOND_OPINION) is True else ""
    so_far = " (while the run was in progress)" if verdict.is_provisional else ""
    return f"{asked}{fields.get('method') or 'an unknown method'}{model}{so_far}"


def _changes(verdict: StoredVerdict, earlier: StoredVerdict) -> Iterator[str]:
    if verdict.status != earlier.status:
        yield "status"
    if verdict.agent != earlier.agent:
        yield "agent"
    if (verdict.step, verdict.span_id) != (earlier.step, earlier.span_id):
        yield "step"
    if verdict.fields.get("method") != earlier.fields.get("method"):
        yield "method"
