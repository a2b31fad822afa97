"""A failed workflow is called again with the verdict's fix, if a check or a measured gate allows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analyzer import Retried, RetryAdvice, RetryGate, retry
from analyzer.experiment.retry_gate import GENERIC_HINT, Gate, RetryArm, Share, gate, to_json
from tests.shown import FIXTURES
from tests.web.test_try import LOG

CRASH = (FIXTURES / "langgraph_openinference-crash.json.gz").read_bytes()
SOUND = (FIXTURES / "langgraph_openinference-sound.json.gz").read_bytes()
HELPFUL = gate(Share(k=25, n=50), Share(k=20, n=25), Share(k=1, n=25))
HARMFUL = gate(Share(k=25, n=50), Share(k=2, n=25), Share(k=15, n=25))


def history(answer: str) -> Any:
    """Return the conversation behind an answer."""
    assert answer
    return LOG


class Team:
    """A workflow that is right from its n-th call on, and notes what it is told."""

    def __init__(self, right_at: int) -> None:
        self.right_at = right_at
        self.told: list[RetryAdvice | None] = []

    def __call__(self, task: str, *, advice: RetryAdvice | None = None) -> str:
        self.told.append(advice)
        return f"{task}: {'right' if len(self.told) >= self.right_at else 'wrong'} {len(self.told)}"

    async def later(self, task: str, *, advice: RetryAdvice | None = None) -> str:
        return self(task, advice=advice)


def crashed(_: str) -> bytes:
    return CRASH


def sound(_: str) -> bytes:
    return SOUND


def unreadable(_: str) -> bytes:
    return b"\0"


def is_right(said: str) -> bool:
    return "right" in said


def test_a_failed_workflow_is_called_again_with_the_fix() -> None:
    team = Team(right_at=2)
    retrying = retry(source=history, passed=is_right)
    assert retrying(team)("sum") == "sum: right 2"
    first, second = team.told
    assert first is None
    assert second is not None
    assert (second.agent, second.step) == ("clerk", 1)
    assert second.text


def test_a_workflow_that_passes_is_called_once_and_its_run_is_not_read() -> None:
    team = Team(right_at=1)

    def source(_: str) -> Any:
        raise AssertionError("the run of a passing call was read")

    found = retry(source=source, passed=is_right).run(team, "sum")
    assert (found.result, len(found.attempts), team.told) == ("sum: right 1", 1, [None])


def test_the_first_result_is_returned_if_no_attempt_passes() -> None:
    team = Team(right_at=9)
    found = retry(source=history, passed=is_right, times=3).run(team, "sum")
    assert found.result == "sum: wrong 1"
    assert [each.result for each in found.attempts] == [f"sum: wrong {n}" for n in (1, 2, 3, 4)]
    assert found.attempts[-1].verdict is None  # nobody would have used it


async def test_an_async_workflow_is_retried_alike() -> None:
    team, seen = Team(right_at=2), list[Retried[str]]()
    decorated = retry(source=history, passed=is_right, told=seen.append)(team.later)
    assert await decorated("sum") == "sum: right 2"
    assert [each.result for each in seen[0].attempts] == ["sum: wrong 1", "sum: right 2"]
    assert team.told[1] is not None


@pytest.mark.parametrize(("way", "told"), [("blind", None), ("generic", RetryAdvice(text=GENERIC_HINT))])
def test_the_other_ways_of_intervening_give_a_shorter_hint(way: str, told: RetryAdvice | None) -> None:
    team = Team(right_at=2)
    assert retry(source=history, passed=is_right, way=way).run(team, "sum").result == "sum: right 2"
    assert team.told == [None, told]


def allowed(found: Gate) -> RetryGate:
    return RetryGate(way=RetryArm.FIX, gate=found)


def test_a_gate_that_shows_harm_is_obeyed_without_asking_for_a_verdict() -> None:
    team = Team(right_at=2)

    def source(_: str) -> bytes:
        raise AssertionError("the run was read although the gate is shut")

    found = retry(source=source, gate=allowed(HARMFUL)).run(team, "sum")
    assert (found.result, len(team.told)) == ("sum: wrong 1", 1)
    assert "refuse" in found.refused
    assert "88%" in found.refused  # d / (r + d) of .6 and .08


def test_an_open_gate_retries_where_the_verdict_sees_a_failure() -> None:
    team = Team(right_at=2)
    found = retry(source=crashed, gate=allowed(HELPFUL)).run(team, "sum")
    assert (found.result, found.refused) == ("sum: right 2", "")
    assert team.told[1] is not None
    assert team.told[1].agent == "purser"


def test_an_open_gate_leaves_a_sound_run_alone() -> None:
    team = Team(right_at=1)
    found = retry(source=sound, gate=allowed(HELPFUL)).run(team, "sum")
    assert (len(team.told), found.refused) == (1, "")
    assert found.attempts[0].verdict is not None
    assert found.attempts[0].verdict.status == "no_failure"


def test_a_conversation_does_not_say_whether_it_failed() -> None:
    found = retry(source=history, gate=allowed(HELPFUL)).run(Team(right_at=1), "sum")
    assert "expected a trace" in found.refused
    assert len(found.attempts) == 1


def test_a_run_that_cannot_be_read_is_not_retried() -> None:
    found = retry(source=unreadable, passed=is_right).run(Team(right_at=2), "sum")
    assert found.result == "sum: wrong 1"
    assert "cannot be read" in found.refused


def test_exceptions_of_the_workflow_are_the_callers() -> None:
    def broken(_: str) -> str:
        raise ConnectionError("away")

    with pytest.raises(ConnectionError):
        retry(source=history, passed=is_right)(broken)("sum")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"passed": is_right, "gate": allowed(HELPFUL)},
        {"gate": allowed(HELPFUL), "times": 2},
        {"gate": allowed(HELPFUL), "way": "blind"},
        {"passed": is_right, "way": "none"},
        {"passed": is_right, "times": 0},
    ],
)
def test_fields_that_exclude_each_other_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        retry(source=history, **fields)


def test_a_gate_is_read_from_the_result_of_a_pilot(tmp_path: Path) -> None:
    place = tmp_path / "gate.json"
    gates = {arm: {"flagged": to_json(HELPFUL), "always": to_json(HARMFUL)} for arm in ("blind", "fix")}
    place.write_text(json.dumps({"gates": gates, "final": True}))
    assert RetryGate.read(place).gate == HELPFUL
    assert RetryGate.read(place, way="blind").way is RetryArm.BLIND
    with pytest.raises(ValueError, match="way: expected"):
        RetryGate.read(place, way="none")
    with pytest.raises(ValueError, match="expected the result"):
        RetryGate.read(place, way="generic")
