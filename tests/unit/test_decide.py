"""The commit for each state of the store, including hostile timings, without a store."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from analyzer.analyses.analyst import RunAnalyst
from analyzer.analyses.commit import AnalysedTraces, Decided, decide, decide_provisionally
from analyzer.analyses.prepare import Preparer
from analyzer.analyses.prepared import Analysed, Open, TraceBytes
from analyzer.methods.attribution import Attributor
from collector_processor.core.records import CONFIRMED, PERSON, Standing, StoredVerdict
from collector_processor.otlp import NO_TENANT, Signal, Tenant, TraceKey
from collector_processor.rebuild.decode import decode
from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.redaction import Cleaner, Redactor
from collector_processor.writeback.annotate import CarrierPolicy
from semconv import attributes as names
from semconv.model import Completion, Span, TraceId
from tests.factories import TRACE, agent, chat, workflow
from tests.slow_lane import KEPT

KEY = TraceKey(NO_TENANT, TRACE)
OTHER = TraceKey(NO_TENANT, TraceId("b" * 32))
ANALYST = RunAnalyst(attributor=Attributor(clock=lambda: 0.0))
NEVER = (0, -1)
FAILED = (
    workflow(1, error="it failed"),
    agent(4, "writer", parent=1),
    chat(5, answer="There is nothing to write.", agent_name="writer", parent=4),
)


def prepared(*spans: Span) -> Analysed:
    preparer = Preparer(
        unasked=ANALYST.unasked, glance=ANALYST.glance, kept=KEPT, cleaner=Cleaner(Redactor())
    )
    trace = TraceBytes(key=KEY, completion=Completion.ROOT_ENDED, bodies=(encode(spans),))
    (run,) = preparer(trace).runs
    assert isinstance(run, Analysed)
    return run


RUN = prepared(*FAILED)


def analysed(run: Analysed = RUN, *, tenant: Tenant = NO_TENANT) -> AnalysedTraces:
    return AnalysedTraces(
        tenant=tenant,
        seen={KEY: NEVER},
        upto={KEY: 7},
        times=1,
        identities=(run.run.identity,),
        runs=((run, run.analysis),),
    )


def decided(
    previous: StoredVerdict | None = None, run: Analysed = RUN, *, held: dict[int, bytes] | None = None
) -> Decided:
    verdicts: dict[str, StoredVerdict] = {} if previous is None else {TRACE: previous}
    found = decide(analysed(run), Standing(seen={KEY: NEVER}, verdicts=verdicts), CarrierPolicy(), 5, held)
    assert found is not None
    return found


FIRST = decided().commit.verdicts[0]


def test_a_first_verdict_is_committed_with_all_that_it_sends() -> None:
    commit = decided().commit
    assert (FIRST.version, FIRST.agent, FIRST.decided_ns) == (1, "writer", 5)
    assert (commit.analysed, commit.times, commit.identities) == (((KEY, 7),), 1, (RUN.run.identity,))
    assert [out.signal for out in commit.outgoing] == [Signal.TRACES, Signal.LOGS]
    assert len(commit.places) == 1


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param({KEY: (1, 7)}, id="analysed meanwhile"),
        pytest.param({KEY: (1, 3)}, id="analysed meanwhile along with a trace that joined the run"),
        pytest.param({KEY: NEVER, OTHER: (1, 9)}, id="another trace"),
        pytest.param({}, id="forgotten"),
    ],
)
def test_nothing_is_decided_once_more_is_known(seen: dict[TraceKey, tuple[int, int]]) -> None:
    standing = Standing(seen=seen, verdicts={})
    assert decide(analysed(), standing, CarrierPolicy(), 5) is None


def test_a_later_version_that_says_the_same_stands_and_nothing_is_sent_again() -> None:
    later = replace(FIRST, version=3, failure_id="f" * 32, decided_ns=1)
    commit = decided(later).commit
    assert commit.verdicts == (later,)
    assert commit.outgoing == ()


def test_a_later_version_that_says_otherwise_is_superseded_and_withdrawn() -> None:
    later = replace(FIRST, version=3, failure_id="f" * 32, agent="planner", span_id=None)
    commit = decided(later).commit
    assert [verdict.version for verdict in commit.verdicts] == [4]
    spans = [
        span for out in commit.outgoing if out.signal is Signal.TRACES for span in decode(out.body).spans
    ]
    statuses = {span.attributes[names.FAILURE_STATUS] for span in spans}
    assert names.FailureStatus.WITHDRAWN in statuses
    assert {span.attributes.get(names.FAILURE_SUPERSEDES) for span in spans} == {"f" * 32}


def test_a_mark_on_a_span_that_is_no_step_any_more_is_withdrawn_beside_it() -> None:
    root = decode(encode(FAILED[:1])).spans[0]
    marked = replace(FIRST, agent="planner", span_id=root.span_id, trace_id=root.trace_id)
    (out, _) = decided(marked).commit.outgoing
    parents = [span.parent_id for span in decode(out.body).spans if "withdrawn" in str(span.attributes)]
    assert root.span_id in parents


@pytest.mark.parametrize(
    "word",
    [
        pytest.param({CONFIRMED: True, "confidence": 0.4}, id="confirmed meanwhile"),
        pytest.param({"method": PERSON}, id="corrected meanwhile"),
    ],
)
def test_a_persons_word_stands_whatever_an_analysis_says(word: dict[str, object]) -> None:
    persons = replace(FIRST, version=2, agent="planner", span_id=None, document=json.dumps(word))
    found = decided(persons)
    assert found.commit.verdicts == (persons,)
    assert found.commit.outgoing == ()
    assert found.commit.identities == (RUN.run.identity,), "the spans are not analysed again"


def test_a_provisional_verdict_is_replaced_as_if_it_had_never_been() -> None:
    assert decided(replace(FIRST, is_provisional=True, agent="planner")).commit.verdicts == (FIRST,)


def test_a_final_verdict_is_never_replaced_by_a_provisional_one() -> None:
    unfinished = Open(run=RUN.run, analysis=RUN.analysis)
    final = decide_provisionally(NO_TENANT, [unfinished], {TRACE: FIRST}, 6)
    assert (final.verdicts, final.analysed, final.outgoing) == ((), (), ())
    before = replace(FIRST, is_provisional=True)
    (again,) = decide_provisionally(NO_TENANT, [unfinished], {TRACE: before}, 6).verdicts
    assert (again.is_provisional, again.version, again.decided_ns) == (True, 1, 6)


def test_held_originals_get_the_verdict_and_no_carrier_says_it_again() -> None:
    commit = decided(held={3: encode(FAILED)}).commit
    ((seq, body),) = commit.rewrites
    assert seq == 3
    assert names.FAILURE_DECISIVE in {name for span in decode(body).spans for name in span.attributes}
    assert [out.signal for out in commit.outgoing] == [Signal.LOGS]
    assert [seq for seq, _ in commit.late] == [3], "if the journal cannot store the rewrite"


def test_an_original_that_has_jaegers_error_mark_keeps_it_as_it_is() -> None:
    marked = [replace(span, attributes={**span.attributes, names.ERROR: False}) for span in FAILED]
    ((_, body),) = decided(run=prepared(*marked), held={3: encode(marked)}).commit.rewrites
    decisive = [span for span in decode(body).spans if names.FAILURE_DECISIVE in span.attributes]
    assert [span.attributes[names.ERROR] for span in decisive] == [False]
