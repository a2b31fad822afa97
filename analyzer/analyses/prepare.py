"""Step 1 of a verdict: prepares runs from the bytes of a trace. Pure.

Step 1 computes everything that depends on the bytes alone: the runs, their steps, triage and, if no model is
needed, the analysis. An executor decides where that happens: in a thread, in a worker process or on another
machine. Step 2 is an ``Analyst``, step 3 ``decide``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from analyzer.analyses.composition import open_span_keeper
from analyzer.analyses.prepared import (
    MAX_KEYS,
    Analysed,
    Changed,
    Look,
    News,
    Open,
    Prepared,
    PreparedRun,
    RebuiltRun,
    ToAsk,
    TraceBytes,
    Unchanged,
    keeping,
)
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
from analyzer.inquiry.verdict import COMPARED, NOTHING_SAYS_SO
from analyzer.methods.registry import AUTO
from collector_processor.core.analysis import Analysis, Analyst, KeepRun
from collector_processor.core.records import AbsentParent, RunIdentity
from collector_processor.core.runs import TRACE_KEY, Run
from collector_processor.mapping_files import open_reader
from collector_processor.otlp import MalformedRequestError
from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.kept_spans import SpanKeeper
from collector_processor.rebuild.redaction import Cleaner, redact
from collector_processor.rebuild.runs import continuation_of, keep_run_ids, run_keys, total_up
from collector_processor.rebuild.stages import rebuild
from collector_processor.settings import Settings
from collector_processor.store.small_tables import MAX_TRIAL_CHARS
from collector_processor.wire.facts import kind_of
from collector_processor.writeback.carriers import pack_steps
from collector_processor.writeback.evaluations import is_taken
from collector_processor.writeback.outgoing import SERVICE_NAME, service_of
from semconv.attributes import TRIAL
from semconv.dialects import USUAL, Reader
from semconv.model import BLAMELESS, Completion, Span, Status, Step, TraceId, Trajectory

_MOST_ERROR: Final = 300
"""Characters of an error that are kept, for the kind of failure."""


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
        known = {(identity.run_id, identity.digest) for identity in trace.before}
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
            service=service_of(run),
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
