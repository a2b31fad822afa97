"""Records of step 1 of a verdict: what it is given and returns. Every process of the service knows them.

Step 1 itself is ``prepare.py``. It imports all that judges a run, and worker processes prepare most runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from analyzer.analyses.composition import kept_texts, notice_text
from analyzer.issues.counting import noted_run
from analyzer.issues.issue_store import noted_document
from analyzer.issues.labels.kept_run import Ends, pack, searched_text, task_alone
from collector_processor.core.analysis import Analysis, KeepRun, KeptRun
from collector_processor.core.records import AbsentParent, RunFacts, RunIdentity
from collector_processor.core.runs import Run, RunTotals
from collector_processor.otlp import NO_TENANT, TraceKey
from collector_processor.rebuild.decode import decode
from collector_processor.rebuild.redaction import omit
from collector_processor.rebuild.runs import Continuation
from collector_processor.settings import Settings
from collector_processor.store.verdicts import MAX_JOINED
from semconv.model import BLAMELESS, Completion, Status, Trace, Trajectory

logger = logging.getLogger(__name__)

MAX_KEYS: Final = 4 * MAX_JOINED
"""Bound on the stored run keys of one trace, because a span may link to any number of others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceBytes:
    """A complete trace and the traces joined to it, as read from the journal."""

    key: TraceKey
    completion: Completion
    bodies: tuple[bytes, ...]
    """Export requests that hold its spans."""
    logs: tuple[bytes, ...] = ()
    before: tuple[RunIdentity, ...] = ()
    """The runs that these traces formed when last analysed."""
    given_up: frozenset[int] = frozenset()
    """Kinds of spans whose parents the assembler no longer expects."""

    @property
    def byte_count(self) -> int:
        """Total bytes of all requests."""
        return sum(map(len, (*self.bodies, *self.logs)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltRun:
    """One run of the trace: what every state of it has."""

    identity: RunIdentity
    trajectory: Trajectory
    """The steps; without texts once they are analysed."""
    spans: bytes
    """An export request of the run's spans, reduced to what carriers and records need."""
    trials: frozenset[str] = frozenset()
    """Ids of trials that its traces claim to belong to; empty if one of its traces carries none."""

    def unpacked(self) -> Run:
        """Return the run, with its reduced spans unpacked."""
        run_id = self.trajectory.run_id
        return Run(trace=Trace(spans=decode(self.spans).spans, run_id=run_id), trajectory=self.trajectory)


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What is known of a run that has ended and changed since it was last analysed."""

    place: bytes | None
    """Packed span positions, for later labels; ``None`` if that depends on the verdict."""
    totals: RunTotals
    facts: RunFacts | None
    """Facts by which it is compared with other runs; ``None`` if it is not."""
    continuation: Continuation
    """Quotes that may link it to another run."""
    service: str
    """As in its verdict."""
    kept_spans: bytes | None = None
    """The spans and logs as received, packed for storage; ``None`` if they are not kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """A run that has not ended: it gets a provisional verdict."""

    run: RebuiltRun
    analysis: Analysis
    so_far: str = ""
    """Parts of the run that are compared with other runs; opaque here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchanged:
    """A run that was analysed as it is: its verdict stands."""

    run: RebuiltRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysed:
    """A run that needed no model."""

    run: RebuiltRun
    news: News
    analysis: Analysis
    kept: KeptRun
    """The kept form of ``analysis``."""
    compared: str = ""
    """Parts of a failed run that are compared with other runs; opaque here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToAsk:
    """A run for which the analyst must be asked."""

    run: RebuiltRun
    news: News


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A run of an experiment, by ids that the store issued: it gets no verdict."""

    run: RebuiltRun


Changed: TypeAlias = Analysed | ToAsk
"""A run that gets a new verdict."""
PreparedRun: TypeAlias = Open | Unchanged | Analysed | ToAsk | Trial
"""One run of the trace, prepared. Only the store can tell a ``Trial``: step 1 returns none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The result of step 1 for one trace."""

    names: tuple[str, ...] = ()
    """Its run keys; the first is its own trace id."""
    runs: tuple[PreparedRun, ...] = ()
    absent: tuple[AbsentParent, ...] = ()
    """Kinds of spans whose parents never arrive; ``since_ns`` is 0."""
    redacted: Mapping[str, int] = field(default_factory=dict)
    """Number of secrets redacted, by kind."""
    fault: str = ""
    """Reason why the bytes cannot be read; if set, all other fields are empty."""


Look: TypeAlias = Callable[[Trajectory], Analysis | None]
"""Returns the analysis of a run; ``None`` if a model or another process must be asked."""


Prepare: TypeAlias = Callable[[TraceBytes], Prepared]
"""Prepares a trace in the calling thread."""


def prepare_each(preparer: Prepare, traces: Sequence[TraceBytes]) -> list[Prepared | None]:
    """Prepare several traces; ``None`` for those that raised an exception."""
    return [_prepared(preparer, trace) for trace in traces]


def _prepared(preparer: Prepare, trace: TraceBytes) -> Prepared | None:
    try:
        return preparer(trace)
    except Exception:
        logger.debug("preparation failed", extra={"trace_id": trace.key.trace_id}, exc_info=True)
        return None


def passed_by(unasked: Look) -> Look:
    """Return a function that analyses successful runs; all others are left to the analyzers."""

    def look(trajectory: Trajectory) -> Analysis | None:
        analysis = unasked(trajectory)
        is_done = analysis and analysis.attribution.status in {*BLAMELESS, Status.UNREADABLE}
        return analysis if is_done else None

    return look


def keeping(settings: Settings) -> KeepRun:
    """Return a function that produces the stored form of an analysed run."""
    texts, noticed = kept_texts(settings), notice_text(settings)
    ends: Ends = {"task": texts, "output": texts} if settings.keep_passed_bytes > 0 else {"task": texts}

    def kept(trajectory: Trajectory, analysis: Analysis) -> KeptRun:
        is_failure = analysis.attribution.status not in BLAMELESS
        # Successful runs keep only both ends, agents and order: most runs succeed, and cleaning takes time.
        packed = pack(trajectory, texts) if is_failure else pack(trajectory, omit, ends)
        noted = noted_document(noted_run(NO_TENANT, trajectory, analysis, noticed))
        has_steps = is_failure or settings.keep_passed_bytes > 0
        text = (searched_text if has_steps else task_alone)(trajectory, texts)
        return KeptRun(run_id=trajectory.run_id, is_failure=is_failure, packed=packed, noted=noted, text=text)

    return kept
