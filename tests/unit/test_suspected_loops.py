"""Repeated calls and words that are a loop, and repeats of runs that get on."""

from __future__ import annotations

import pytest

from analyzer.methods.suspicion import suspect
from analyzer.signals.loops import repetition
from analyzer.signals.suspicion import ClueKind, clues
from analyzer.texts.run_view import read
from semconv.model import Step, StepKind, Trajectory
from tests.runs import calling, failed_tool, run, step, tool

LEAST = 0.4752
TAKE = "Let me hand this over to the colleague who knows about kilns."


def looping(trajectory: Trajectory) -> int:
    return len([clue for clue in clues(read(trajectory)) if clue.kind is ClueKind.LOOP])


def glaze(name: str, result: str = "", **fields: str) -> Step:
    return tool("potter", result, target=name, input='{"kiln": 4}', **fields)


def done(*steps: Step, task: str = "Fire the kiln.", **fields: str) -> Trajectory:
    return run(*steps, step("potter", "The kiln is ready."), task=task, output="The kiln is ready.", **fields)


@pytest.mark.parametrize(
    "trajectory",
    [
        pytest.param(done(*[glaze("read_glaze", "cobalt, 40 g")] * 5), id="the same result"),
        pytest.param(done(*[failed_tool("potter", "KilnTimeout")] * 5), id="the same failure"),
        pytest.param(done(*[glaze("find_glaze", "[]"), glaze("find_clay", "[]")] * 5), id="in turns"),
        pytest.param(
            done(*[glaze("read_glaze", "cobalt, 40 g"), step("potter", "Let me look at it again.")] * 5),
            id="with words",
        ),
        pytest.param(
            done(
                *[step("potter", TAKE), step("clerk", "I know nothing of kilns: please ask the potter.")] * 4
            ),
            id="two agents",
        ),
        pytest.param(done(*[glaze("post_offer", "Error: the market is closed")] * 5), id="a failing deed"),
    ],
)
def test_repeats_without_anything_new_are_a_loop(trajectory: Trajectory) -> None:
    assert looping(trajectory) >= 1
    assert suspect(trajectory, LEAST) is not None


def changing(number: int) -> list[Step]:
    change = tool(
        "potter", f"shelf {number} set to {number}0", target="set_shelf", input=f'{{"n": {number}}}'
    )
    return [glaze("read_door", "closed"), change]


@pytest.mark.parametrize(
    "trajectory",
    [
        pytest.param(done(*[one for n in range(5) for one in changing(n)]), id="changes between"),
        pytest.param(
            done(
                *[one for n in range(5) for one in (step("potter", TAKE), step("clerk", f"Bowl {n} is in."))]
            ),
            id="other answers between",
        ),
        pytest.param(
            done(*[step("potter", TAKE)] * 4, task=f"Begin each reply with: {TAKE} Fire the kiln."),
            id="words of the task",
        ),
        pytest.param(
            done(*[step("potter", TAKE, instructions=f"Always say: {TAKE}")] * 4), id="words of instructions"
        ),
        pytest.param(
            done(step("guest", TAKE, StepKind.HUMAN), *[step("potter", TAKE)] * 4), id="words of a person"
        ),
        pytest.param(done(*[glaze("read_heat", f"{n} degrees") for n in range(5)]), id="other results"),
    ],
)
def test_repeats_of_a_run_that_gets_on_are_no_loop(trajectory: Trajectory) -> None:
    assert looping(trajectory) == 0


@pytest.mark.parametrize(
    "deed",
    [
        glaze("notify_owner", '{"sent": true, "kiln": 4}'),
        glaze("send_note", '{"note": "N-12", "state": "open"}'),
        tool("potter", '{"status": "ok"}', target="ofen_schalten", input='{"stufe": 2}'),
    ],
)
def test_an_accepted_deed_done_again_is_weak(deed: Step) -> None:
    trajectory = done(*[deed] * 6)
    assert looping(trajectory) == 1
    assert suspect(trajectory, LEAST) is None
    weak = suspect(trajectory, 0.01)
    assert weak is not None
    assert weak.confidence <= 0.2


def test_the_words_that_go_with_a_repeated_call_are_judged_with_it() -> None:
    asking = calling(
        "potter", ("send_note", '{"kiln": 4}'), words="The kiln is hot, so I tell the owner now."
    )
    noted = glaze("send_note", '{"note": "N-12", "state": "open"}')
    assert suspect(done(*[asking, noted] * 4), LEAST) is None
    read_again = calling(
        "potter", ("read_glaze", '{"kiln": 4}'), words="The kiln is hot, so I look at it now."
    )
    assert suspect(done(*[read_again, glaze("read_glaze", "cobalt, 40 g")] * 4), LEAST) is not None


def test_a_repeated_call_with_another_result_is_no_repetition() -> None:
    heats = [glaze("read_heat", "the heat is 700"), glaze("read_heat", "the heat is 900")]
    assert list(repetition(read(done(*heats)))) == []
    assert len(list(repetition(read(done(*heats[:1] * 2))))) == 1


def test_words_that_were_given_are_no_repetition() -> None:
    given = [step("potter", TAKE, instructions=f"Always say: {TAKE}")] * 2
    assert list(repetition(read(done(*given)))) == []
    assert len(list(repetition(read(done(*[step("potter", TAKE)] * 2))))) == 1
