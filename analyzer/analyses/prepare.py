"""Step 1 of a verdict: prepares runs from the bytes of a trace. Pure.

Step 1 computes everything that depends on the bytes alone: the runs, their steps, triage and, if no model is
needed, the analysis. An executor decides where that happens: in a thread, in a worker process or on another
machine. Step 2 is an ``Analyst``, step 3 ``decide``.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from analyzer.analyses.composition import kept_texts, notice_text, open_span_keeper
from analyzer.history.early import elements_so_far
from analyzer.history.elements import elements_of
from analyzer.history.known_runs import (
    ComparedParts,
    FailedRun,
    facts_of,
    failed_run,
    parts_of,
    release_of,
    to_text,
)
from analyzer.inquiry.verdict import NOTHING_SAYS_SO
from analyzer.issues.counting import noted_run
from analyzer.issues.issue_store import noted_document
from analyzer.issues.labels.kept_run import Ends, pack, searched_text, task_alone
from analyzer.methods.history import COMPARED
from analyzer.methods.registry import AUTO
from collector_processor.core.analysis import Analysis, Analyst, KeepRun, KeptRun
from collector_processor.core.records import AbsentParent, RunFacts, RunIdentity
from collector_processor.core.runs import TRACE_KEY, Run, RunTotals
from collector_processor.mapping_files import open_reader
from collector_processor.otlp import NO_TENANT, MalformedRequestError, TraceKey
from collector_processor.rebuild.decode import decode
from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.kept_spans import SpanKeeper
from collector_processor.rebuild.redaction import Cleaner, omit, redact
from collector_processor.rebuild.runs import Continuation, continuation_of, keep_run_ids, run_keys, total_up
from collector_processor.rebuild.stages import rebuild
from collector_processor.settings import Settings
from collector_processor.store.small_tables import MAX_TRIAL_CHARS
from collector_processor.store.verdicts import MAX_JOINED
from collector_processor.wire.facts import kind_of
from collector_processor.writeback.carriers import pack_steps
from collector_processor.writeback.evaluations import is_taken
from collector_processor.writeback.outgoing import SERVICE_NAME, service_of
from semconv.attributes import TRIAL
from semconv.dialects import USUAL, Reader
from semconv.model import BLAMELESS, Completion, Span, Status, Step, Trace, TraceId, Trajectory

logger = logging.getLogger(__name__)

_MOST_ERROR: Final = 300
"""Characters of an error that are kept, for the kind of failure."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparer:
    """Prepares traces; keeps no state between calls."""

    unasked: Look
    """Analyses a run that has ended."""
    glance: Callable[[Trajectory], Analysis]
    """Analyses a run that has not ended, without a model."""
    kept: KeepRun
    cleaner: Cleaner
    """Redacts; only its rules are used, and its counts do not change."""
    spans: SpanKeeper = field(default_factory=lambda: SpanKeeper(redactor=None))
    """Packs the spans of runs that are kept."""
    reader: Reader = USUAL
    """Reads the spans; with the user's mappings."""
    compared: Collection[Status] = frozenset()
    """Statuses of the verdicts that are compared with other runs."""

    def __call__(self, trace: TraceBytes) -> Prepared:
        """Prepare the runs of a trace, in the order of their first spans."""
        cleaner, tenant = self.cleaner.empty_copy(), trace.key.tenant
        try:
            found = rebuild(
                trace.bodies, trace.logs, completion=trace.completion, tenant=tenant, reader=self.reader
            )
        except MalformedRequestError as error:
            return Prepared(fault=f"the spans cannot be read: {error}")
        named = _named(found, trace.before)
        # From here on, texts contain no secrets.
        redactors = [cleaner.for_run() for _ in named]
        runs = [
            replace(run, trajectory=cleaner(run.trajectory, redact))
            for run, redact in zip(named, redactors, strict=True)
        ]
        prepared = [self._prepared(run, trace) for run in runs]
        parts = [(run.trace.spans, redact) for run, redact in zip(runs, redactors, strict=True)]
        spans = self.spans.pack(trace.bodies, trace.logs, parts, [self._keeps(one) for one in prepared])
        return Prepared(
            names=tuple(key_names(trace.key.trace_id, found)),
            runs=tuple(_with_spans(one, packed) for one, packed in zip(prepared, spans, strict=True)),
            absent=_absent_parents(found, trace),
            redacted=cleaner.counts,
        )

    def _keeps(self, run: PreparedRun) -> bool:
        """Return whether the run's spans are kept with its verdict."""
        match run:
            case Analysed():
                return self.spans.wants(is_failure=run.analysis.attribution.status not in BLAMELESS)
            case ToAsk():
                return self.spans.wants(is_failure=None)
            case _:
                return False

    def _prepared(self, run: Run, trace: TraceBytes) -> PreparedRun:
        rebuilt = RebuiltRun(
            identity=RunIdentity(
                run_id=run.trajectory.run_id,
                trace_ids=frozenset(span.trace_id for span in run.trace.spans),
                digest=_digest(run.trajectory),
            ),
            trajectory=run.trajectory,
            spans=encode(_bare(run.trace.spans)),
            trials=claimed_trials(run.trace.spans),
        )
        if trace.completion is Completion.IDLE_OPEN:
            analysis = self.glance(run.trajectory)
            return Open(run=_without_texts(rebuilt), analysis=analysis, so_far=_so_far(run))
        known = {(one.run_id, one.digest) for one in trace.before}
        if (rebuilt.identity.run_id, rebuilt.identity.digest) in known:
            return Unchanged(run=rebuilt)
        return self._changed(run, rebuilt)

    def _changed(self, run: Run, rebuilt: RebuiltRun) -> Changed:
        analysis = self.unasked(run.trajectory)
        parts = parts_of(run.trajectory)
        news = News(
            place=pack_steps(run),
            totals=total_up(run),
            facts=facts_of(parts, run.trajectory, run.trace.spans),
            continuation=continuation_of(run.trace, run.trajectory),
        )
        if analysis is None:
            return ToAsk(run=rebuilt, news=news)
        return Analysed(
            run=_without_texts(rebuilt),
            news=news,
            analysis=analysis,
            kept=self.kept(run.trajectory, analysis),
            compared=self._compared(run, analysis, parts),
        )

    def _compared(self, run: Run, analysis: Analysis, parts: ComparedParts) -> str:
        """Return the parts of a run that are compared with other runs; empty if it is not compared."""
        verdict = analysis.attribution.verdict
        has_passed = verdict.status is Status.NO_FAILURE and verdict.reason != NOTHING_SAYS_SO
        if verdict.status not in self.compared or has_passed:
            return ""
        return to_text(failed_run(parts, service_of(run)))


def _so_far(run: Run) -> str:
    """Return the parts of an unfinished run that are compared with other runs."""
    elements = elements_so_far(elements_of(run.trajectory))
    release = release_of(run.trace.spans)
    return to_text(FailedRun(service=service_of(run), elements=elements, release=release))


def prepare_each(preparer: Preparer, traces: Sequence[TraceBytes]) -> list[Prepared | None]:
    """Prepare several traces; ``None`` for those that raised an exception."""
    return [_prepared(preparer, trace) for trace in traces]


def _prepared(preparer: Preparer, trace: TraceBytes) -> Prepared | None:
    try:
        return preparer(trace)
    except Exception:
        logger.debug("preparation failed", extra={"trace_id": trace.key.trace_id}, exc_info=True)
        return None


def preparer_of(settings: Settings, analyst: Analyst, unasked: Look, cleaner: Cleaner) -> Preparer:
    """Return the preparer of traces; ``unasked`` analyses runs that need no model."""
    # Other runs may say that a run failed of which nothing says so itself.
    silent = {Status.NO_FAILURE} if settings.suspect_false_alarms else set()
    return Preparer(
        unasked=unasked,
        glance=analyst.glance,
        kept=keeping(settings),
        cleaner=cleaner,
        spans=open_span_keeper(settings),
        reader=open_reader(settings.mappings),
        compared={*COMPARED, *silent} if settings.method == AUTO else frozenset(),
    )


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


def _with_spans(run: PreparedRun, packed: bytes | None) -> PreparedRun:
    """Return a run with its kept spans, if they are kept."""
    if packed and isinstance(run, Analysed | ToAsk):
        return replace(run, news=replace(run.news, kept_spans=packed))
    return run


def key_names(trace_id: TraceId, runs: Iterable[Run]) -> list[str]:
    """Return the run keys of a trace's runs, its own ids first, up to the bound."""
    found = {name for run in runs for name in run_keys(run.trace)}
    return sorted(found, key=lambda name: (name != f"{TRACE_KEY}{trace_id}", name))[:MAX_KEYS]


def claimed_trials(spans: Sequence[Span]) -> frozenset[str]:
    """Return the trial ids in a run's spans or resources, one for each trace.

    Empty if one of the traces carries none: a trial that links to a production run does not hide it.
    """
    found: dict[TraceId, str] = {}
    for span in spans:
        claimed = span.attributes.get(TRIAL) or span.resource.attributes.get(TRIAL)
        if isinstance(claimed, str) and len(claimed) <= MAX_TRIAL_CHARS:
            found.setdefault(span.trace_id, claimed)
    is_whole = bool(found) and all(span.trace_id in found for span in spans)
    return frozenset(found.values()) if is_whole else frozenset()


def _named(runs: Sequence[Run], before: Iterable[RunIdentity]) -> list[Run]:
    """Return the runs under their previous ids: a run keeps its first id when traces are added."""
    run_ids = keep_run_ids([run.trace for run in runs], {known.run_id: known.trace_ids for known in before})
    return [
        run
        if run.trajectory.run_id == run_id
        else replace(
            run, trace=replace(run.trace, run_id=run_id), trajectory=replace(run.trajectory, run_id=run_id)
        )
        for run, run_id in zip(runs, run_ids, strict=True)
    ]


def _digest(trajectory: Trajectory) -> bytes:
    """Return a digest of everything an analyst sees; warnings are left out, since they are for people."""
    return hashlib.blake2b(repr(replace(trajectory, warnings=())).encode(), digest_size=16).digest()


def _absent_parents(runs: Iterable[Run], trace: TraceBytes) -> tuple[AbsentParent, ...]:
    """Return the kinds of spans, with names, whose parents are no longer expected after this trace.

    Names appear in logs and in ``doctor``, so secrets in them (a request's query) are redacted.
    """
    found: dict[int, AbsentParent] = {}
    for run in runs if trace.given_up else ():  # most traces have none: no span is read
        for span in run.trace.spans:
            service = str(span.resource.attributes.get(SERVICE_NAME, ""))
            kind = kind_of(service.encode(), span.scope.name.encode(), span.name.encode())
            if kind in trace.given_up:
                found[kind] = AbsentParent(
                    tenant=trace.key.tenant,
                    kind=kind,
                    service=service,
                    scope=span.scope.name,
                    name=redact(span.name),
                    since_ns=0,
                )
    return tuple(found.values())


def _without_texts(run: RebuiltRun) -> RebuiltRun:
    """Return a run with the parts of its trajectory that ``decide`` and comparisons with other runs read."""
    trajectory = run.trajectory
    bare = Trajectory(
        run_id=trajectory.run_id,
        steps=tuple(map(_bare_step, trajectory.steps)),
        complete=trajectory.complete,
        agents=trajectory.agents,
        dialects=trajectory.dialects,
        root_trace_id=trajectory.root_trace_id,
        root_span_id=trajectory.root_span_id,
        outcome=trajectory.outcome,
        outcome_source=trajectory.outcome_source,
    )
    return replace(run, trajectory=bare)


def _bare_step(step: Step) -> Step:
    return Step(
        index=step.index,
        agent=step.agent,
        kind=step.kind,
        agent_source=step.agent_source,
        content=step.content,
        target=step.target,
        error=step.error[:_MOST_ERROR],
        group=step.group,
        trace_id=step.trace_id,
        span_id=step.span_id,
    )


def _bare(spans: Sequence[Span]) -> list[Span]:
    """Return the parts of spans that ``decide`` reads, grouped to write each Resource once."""
    order: dict[int, int] = {}
    for span in spans:
        order.setdefault(id(span.resource), len(order))
    return [
        Span(
            trace_id=span.trace_id,
            span_id=span.span_id,
            start_ns=span.start_ns,
            end_ns=span.end_ns,
            attributes=dict.fromkeys(filter(is_taken, span.attributes), True),
            resource=span.resource,
            trace_state=span.trace_state,
            flags=span.flags,
        )
        for span in sorted(spans, key=lambda span: order[id(span.resource)])
    ]
