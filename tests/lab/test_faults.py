"""Faults corrupt one answer by kind, in the run's own words; twins decide which make honest labels."""

from __future__ import annotations

import json
import random

import pytest

from analyzer.experiment.replay.tape import Answer, RecordedCall
from analyzer.experiment.sequential import Arm, Reason
from analyzer.lab.injection.fault_kinds import FaultKind, corrupted
from analyzer.lab.injection.gates import Gate, balanced_weights, purity, shortcut_gates
from analyzer.lab.injection.injector import Failure, Fault, Next, Plan, Tried, Twin, course, faults_of
from semconv.dialects.reading.action import Message
from semconv.model import Step, StepKind, ToolCall, Trajectory
from semconv.record import replace
from tests.tapes import call, tape

SEATS = ToolCall(name="find_seats", arguments='{"class": "first", "many": 12}')
FARES = ToolCall(name="find_fare", arguments='{"class": "second"}')
TO_CLERK = ToolCall(name="transfer_to_clerk", arguments="{}")
TO_WRITER = ToolCall(name="transfer_to_writer", arguments="{}")
RESULT = Message(role="tool", text="85 seats", answers=("c",))
CALLS = (
    call(0, "a", answer=Answer(text="I look for seats.", calls=(SEATS,))),
    call(1, "b", answer=Answer(calls=(FARES,))),
    call(2, messages=(RESULT,), answer="There are 85 seats, row 4. Only first class."),
    call(3, "d", answer=Answer(calls=(TO_CLERK,))),
    call(4, "e", answer=Answer(calls=(TO_WRITER,))),
    call(5, "f", answer="It is 1,234.50 euros; no refund."),
)
TAPE = replace(tape(*CALLS), delegations=frozenset({"transfer_to_clerk", "transfer_to_writer"}))


def corrupt(kind: FaultKind, index: int) -> Answer | None:
    return corrupted(kind, TAPE, TAPE.calls[index], random.Random(1))


def said(index: int) -> str:
    return TAPE.calls[index].answer.text


def test_a_wrong_value_differs_in_one_digit() -> None:
    found = corrupt(FaultKind.WRONG_VALUE, 5)
    assert found is not None
    assert len(found.text) == len(said(5))
    assert sum(one != other for one, other in zip(found.text, said(5), strict=True)) == 1


def test_an_invented_result_changes_a_number_that_a_tool_returned() -> None:
    for seed in range(20):
        found = corrupted(FaultKind.INVENTED_RESULT, TAPE, TAPE.calls[2], random.Random(seed))
        assert found is not None
        assert "85 seats" not in found.text
        assert "row 4" in found.text
    assert corrupt(FaultKind.INVENTED_RESULT, 5) is None


def test_a_dropped_constraint_is_a_part_of_the_answer() -> None:
    found = corrupt(FaultKind.DROPPED_CONSTRAINT, 5)
    assert found is not None
    assert found.text in {"It is 1,234.50 euros", "no refund.", " no refund."}


def test_ignored_input_repeats_an_earlier_answer() -> None:
    found = corrupt(FaultKind.IGNORED_INPUT, 5)
    assert found is not None
    assert found.text == said(2)
    assert corrupt(FaultKind.IGNORED_INPUT, 2) is None


def test_ignored_input_prefers_another_runs_answer_at_the_same_place() -> None:
    call = TAPE.calls[5]
    answers = [replace(each, answer=replace(each.answer, text=f"no. {each.index}")) for each in TAPE.calls]
    other = replace(TAPE, run_id="another", calls=tuple(answers))
    found = corrupted(FaultKind.IGNORED_INPUT, TAPE, call, random.Random(0), [TAPE, other])
    assert found is not None
    assert found.text == "no. 5"


def test_no_answer_is_lent_to_two_runs() -> None:
    """Each of five runs borrows from another run at each call, and each answer is borrowed once."""
    tapes = []
    for name in "abcde":
        answers = [
            replace(each, answer=replace(each.answer, text=f"{name} {each.index}", calls=()))
            for each in TAPE.calls
        ]
        tapes.append(replace(TAPE, run_id=name, calls=tuple(answers)))
    borrowed = [
        corrupted(FaultKind.IGNORED_INPUT, tape, tape.calls[5], random.Random(seed), tapes)
        for seed, tape in enumerate(tapes)
    ]
    texts = [each.text for each in borrowed if each is not None]
    assert sorted(texts) == [f"{name} 5" for name in "abcde"]
    assert not any(text.startswith(tape.run_id) for text, tape in zip(texts, tapes, strict=True))


def test_a_premature_end_calls_nothing() -> None:
    found = corrupt(FaultKind.PREMATURE_END, 0)
    assert found is not None
    assert (found.text, found.calls) == (said(0), ())
    assert corrupt(FaultKind.PREMATURE_END, 1) is None


def test_calls_go_to_another_tool_with_other_arguments_or_again() -> None:
    wrong, loop = corrupt(FaultKind.WRONG_TOOL, 0), corrupt(FaultKind.LOOP, 2)
    other, handoff = corrupt(FaultKind.WRONG_ARGUMENTS, 0), corrupt(FaultKind.WRONG_HANDOFF, 3)
    assert wrong is not None
    assert loop is not None
    assert other is not None
    assert handoff is not None
    assert [(each.name, each.arguments) for each in wrong.calls] == [("find_fare", SEATS.arguments)]
    assert {each.name for each in loop.calls} <= {"find_seats", "find_fare"}
    changed = json.loads(other.calls[0].arguments)
    assert (changed["class"] == "second") != (changed["many"] != 12)
    assert handoff.calls[0].name == "transfer_to_writer"
    assert corrupt(FaultKind.WRONG_TOOL, 3) is None


@pytest.mark.parametrize("index", range(len(CALLS)))
def test_no_fault_says_what_was_recorded(index: int) -> None:
    for kind in FaultKind:
        found = corrupt(kind, index)
        assert found is None or (found.text, found.calls) != (said(index), TAPE.calls[index].answer.calls)


def test_the_same_seed_gives_the_same_faults_and_no_place_comes_first() -> None:
    one, same, other = (faults_of(TAPE, Plan(seed=seed)) for seed in (1, 1, 2))
    assert one == same
    assert [each.call.index for each in one] != [each.call.index for each in other]


def arm(successes: int, n: int, **more: int) -> Arm:
    reasons = (Reason(text="the upstream failed", n=1),) if more.get("invalid") else ()
    return Arm(n=n, successes=successes, reasons=reasons, **more)


@pytest.mark.parametrize(
    ("recorded", "faulty", "restored", "wanted", "reason"),
    [
        pytest.param(arm(0, 0), arm(0, 0), arm(0, 0), Next.FAULTY, "", id="the first trial"),
        pytest.param(arm(5, 5), arm(0, 6), arm(0, 0), Next.RECORDED, "", id="in turn"),
        pytest.param(arm(11, 11), arm(0, 11), arm(0, 0), Next.FAULTY, "", id="not clear yet"),
        pytest.param(arm(12, 12), arm(0, 12), arm(0, 0), Next.RESTORE, "", id="clear, to be restored"),
        pytest.param(arm(12, 12), arm(0, 12), arm(4, 5), Next.KEEP, "", id="honest"),
        pytest.param(arm(12, 12), arm(0, 12), arm(2, 4), Next.DISCARD, "restoring", id="does not heal"),
        pytest.param(arm(11, 12), arm(0, 12), arm(0, 0), Next.FAULTY, "", id="failed once without it"),
        pytest.param(arm(9, 18), arm(0, 18), arm(0, 0), Next.DISCARD, "often fails", id="unreliable"),
        pytest.param(arm(9, 9), arm(9, 9), arm(0, 0), Next.DISCARD, "often passes", id="fault does little"),
        pytest.param(arm(33, 40), arm(8, 40), arm(0, 0), Next.DISCARD, "not clear", id="not clear"),
        pytest.param(arm(2, 2), arm(0, 1, invalid=3), arm(0, 0), Next.DISCARD, "invalid", id="invalid"),
        pytest.param(arm(1, 1), arm(0, 1, copies=80), arm(0, 0), Next.DISCARD, "the same", id="copies"),
    ],
)
def test_only_honest_twins_are_kept(
    recorded: Arm, faulty: Arm, restored: Arm, wanted: Next, reason: str
) -> None:
    found = course(Twin(recorded=recorded, faulty=faulty, restored=restored), 40)
    assert found.next is wanted
    assert reason in found.reason


def failure(step: int, *outputs: str) -> Failure:
    steps = tuple(
        Step(index=place, agent="a", kind=StepKind.LLM, output=text) for place, text in enumerate(outputs)
    )
    return Failure(trajectory=Trajectory(run_id="r", steps=steps), step=step, agent="a", document={})


def verdicts(gates: tuple[Gate, ...]) -> dict[str, str]:
    return {gate.name: gate.verdict for gate in gates}


def test_labels_that_lie_at_one_step_fail_the_gate_of_positions() -> None:
    one_place = [failure(1, "x", "y", "z") for _ in range(30)]
    spread = [failure(place % 3, "x", "y", "z") for place in range(30)]
    passing = [tape(call(0, "x y z"))]
    assert verdicts(shortcut_gates(one_place, passing))["position alone"] == "failed"
    assert verdicts(shortcut_gates(spread, passing))["position alone"] == "passed"
    assert verdicts(shortcut_gates(one_place[:3], passing))["position alone"] == "too few labels"


def test_a_place_that_a_short_run_does_not_have_is_a_wrong_guess() -> None:
    failures = [failure(0, "x", "y"), *(failure(2, "x", "y", "z") for _ in range(3))]
    (gate,) = (one for one in shortcut_gates(failures, []) if one.name == "position alone")
    assert gate.accuracy == 0.75


def test_weights_balance_the_frequency_of_places_but_invent_none() -> None:
    often_last = [failure(2, "x", "y", "z") for _ in range(24)]
    others = [failure(place, "x", "y", "z") for place in (0, 0, 0, 0, 1, 1, 1, 1)]
    passing = [tape(call(0, "x y z"))]
    found = verdicts(shortcut_gates([*often_last, *others], passing))
    assert (found["position alone"], found["position alone, weighted"]) == ("failed", "passed")
    assert verdicts(shortcut_gates(often_last, passing))["position alone, weighted"] == "failed"
    two_places = [*often_last, *(failure(1, "x", "y", "z", *"abc") for _ in range(24))]
    (gate,) = (one for one in shortcut_gates(two_places, passing) if one.name.endswith("weighted"))
    assert gate.accuracy == pytest.approx(0.5)
    assert gate.effective == pytest.approx(48)


def test_a_rare_place_does_not_decide_alone() -> None:
    weights = balanced_weights([failure(0, "x", "y"), *(failure(1, "x", "y") for _ in range(200))])
    assert (weights[0], weights[1]) == (1.0, 0.05)
    assert balanced_weights([]) == []


def test_labels_with_a_marker_word_fail_the_gate_of_words() -> None:
    marked = [
        failure(place % 3, *("oops" if place % 3 == at else "fine" for at in range(3))) for place in range(30)
    ]
    unmarked = [failure(place % 3, "fine 1", "fine 2", "fine 3") for place in range(30)]
    passing = [tape(call(0, "x", answer="fine 0"))]
    assert verdicts(shortcut_gates(marked, passing))["marker words alone"] == "failed"
    assert verdicts(shortcut_gates(unmarked, passing))["marker words alone"] == "passed"


def test_purity_counts_what_was_discarded_and_why() -> None:
    recorded: RecordedCall = call(0, "a")
    fault = Fault(kind=FaultKind.WRONG_VALUE, call=recorded, answer=Answer(text="x"))
    twin = Twin(recorded=arm(12, 12), faulty=arm(3, 12), restored=arm(3, 3))
    kept = Tried(run_id="r", fault=fault, twin=twin, failure=failure(0, "x"))
    lost = Tried(run_id="r", fault=fault, twin=twin, reason="invalid trials: x")
    found = purity([kept, lost, lost])
    assert (found.tried, found.kept, found.flip_rate) == (3, 1, 0.75)
    assert found.discarded == (("invalid trials", 2),)
    assert found.organic == pytest.approx(0.204, abs=0.001)  # of 0 failures in 15, Wilson's
