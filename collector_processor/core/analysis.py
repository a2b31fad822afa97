"""Interface between processor and analyzer: what one calls of the other, and what passes between them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, ParamSpec, Protocol, TypeAlias, TypeVar

from collector_processor.core.records import RunFacts, StoredVerdict, VerdictSummary
from collector_processor.core.runs import RunTotals
from collector_processor.otlp import CollectorError, Tenant
from semconv.model import Attribution, Trajectory

P = ParamSpec("P")
T = TypeVar("T")

NOTES: Final = "notes"
"""Key of a verdict's notes in its document; absent if there are none."""

EARLY: Final = "early_warning"
"""Key of the warning in a provisional verdict's document; absent if there is none."""


FILE: Final = "file"
"""Key of the file that a run was saved in, empty if in none; absent if the service's store keeps the run."""


class AnalysisLostError(CollectorError):
    """The worker process crashed repeatedly on this trace, or used up its CPU time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """An attribution and its JSON document."""

    attribution: Attribution
    document: str

    def with_note(self, note: str) -> Analysis:
        """Return the analysis with one more note for people in its document."""
        fields = json.loads(self.document)
        notes = list(dict.fromkeys([*fields.get(NOTES, ()), note]))
        return replace(self, document=json.dumps({**fields, NOTES: notes}, ensure_ascii=False))

    def with_file(self, path: str) -> Analysis:
        """Return the analysis of a run that is kept in a file alone; an empty ``path``: nowhere."""
        fields = json.loads(self.document)
        return replace(self, document=json.dumps({**fields, FILE: path}, ensure_ascii=False))

    def with_warning(self, warning: Mapping[str, object], note: str) -> Analysis:
        """Return the analysis with an early warning in its document, and a note of it for people."""
        fields = json.loads(self.document)
        document = json.dumps({**fields, EARLY: dict(warning)}, ensure_ascii=False)
        return replace(self, document=document).with_note(note)

    def with_warning_of(self, before: Mapping[str, Any]) -> Analysis:
        """Return the analysis with the warning of an earlier document, unless it has a warning of its own."""
        warning = before.get(EARLY)
        if warning is None or json.loads(self.document).get(EARLY) is not None:
            return self
        note = (before.get(NOTES) or [""])[-1]  # ``with_warning`` put it last
        return self.with_warning(warning, note)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackRecord:
    """What labels and proofs said of a model's own steps, as numbers of runs; a proof counts half."""

    labelled: float = 0.0
    """Runs whose decisive step, or a step that is not, is known."""
    right: float = 0.0
    """Those in which the model named the decisive step."""
    won: float = 0.0
    """Those in which the model named it, and signals or the ranker another one."""
    lost: float = 0.0
    """Those in which signals or the ranker named it, and the model another one."""


UNKNOWN: Final = TrackRecord()
"""The record of a model without labels."""
Earned: TypeAlias = Mapping[str, TrackRecord]
"""What each model, by its name, has earned with one tenant."""
NOTHING_EARNED: Final[Earned] = MappingProxyType({})
ReadEarned: TypeAlias = Callable[[Tenant], Awaitable[Earned]]
"""Returns what each model has earned with a tenant."""


async def nothing_earned(_tenant: Tenant) -> Earned:
    """Know nothing of any model."""
    return NOTHING_EARNED


class Analyst(Protocol):
    """Decides whether a run failed and which agent is to blame. Never raises because a model failed."""

    async def analyse(self, trajectory: Trajectory, earned: Earned) -> Analysis:
        """Triage and attribute a run with all configured methods; ``earned`` with the run's tenant."""
        ...

    def glance(self, trajectory: Trajectory) -> Analysis:
        """Triage and attribute a run at once, without a model: for runs that have not ended."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRun:
    """Data of a run that is stored beside its verdict. Opaque to the processor."""

    run_id: str
    is_failure: bool
    packed: bytes | None
    """Its steps as JSON; ``None`` if they are too large."""
    noted: str
    """Its data for counting issues."""
    text: str
    """The text that searches look through."""
    spans: bytes | None = None
    """Its spans and logs, packed by ``kept_spans.py``; ``None`` if they are not kept."""
    totals: RunTotals | None = None
    """``None`` if they are not known."""
    facts: RunFacts | None = None
    """Facts by which it is compared with other runs; ``None`` if unknown."""


KeepRun: TypeAlias = Callable[[Trajectory, Analysis], KeptRun]
"""Returns the stored form of an analysed run. Pure."""
Keep: TypeAlias = Callable[[Sequence[tuple[Tenant, KeptRun]]], Awaitable[None]]
"""Stores runs whose verdicts are about to be committed; a full disk is logged, not raised."""


class CommitPort(Protocol):
    """The store's thread, for commits besides those of analyses: labels, second opinions, experiments."""

    async def in_db(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make one call on the store's thread.

        Raises:
            StoreError: the store refuses.
        """
        ...

    async def in_turn(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a call that may commit verdicts; meanwhile no analysis commits.

        Raises:
            StoreError: the store refuses.
        """
        ...

    def committed(self, verdicts: Iterable[tuple[VerdictSummary, StoredVerdict]]) -> None:
        """Report verdicts that were committed through ``in_turn``, and start sending their spans."""
        ...
