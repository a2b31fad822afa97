"""Inputs on which a published analyzer is wrong; ours must be right or abstain."""

from __future__ import annotations

from typing import Any

import pytest

from analyzer.analyses.models.scripted import ScriptedModel
from analyzer.methods.attribution import Attributor
from analyzer.recordings.conversation_log import read_conversation
from semconv.model import Attribution, Blame, Status

TURNS = [{"role": "user", "name": name, "content": f"turn {n}"} for n, name in enumerate("ABCABCABCABC")]
"""Twelve steps; A speaks at 0, 3, 6 and 9, B at 1, 4, 7 and 10, C at 2, 5, 8 and 11."""


async def told(log: dict[str, Any], *replies: str, method: str = "all-at-once") -> Attribution:
    model = ScriptedModel(replies=replies)
    return await Attributor(method=method, model=model)(read_conversation(log).trajectory)


def answer(agent: str, at: object) -> str:
    return f"Agent Name: {agent}\nStep Number: {at}\nReason for Mistake: r"


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param("**Agent Name:** B\n**Step Number:** 1\n**Reason for Mistake:** r", id="bold"),
        pytest.param("1. Agent Name: B\n2. Step Number: 1\n3. Reason for Mistake: r", id="numbered"),
        pytest.param('{"agent_name": "B", "step_number": 1, "reason": "r"}', id="json"),
        pytest.param(answer("B", "1 (the 2nd of 3 steps)"), id="number explained"),
    ],
)
async def test_readable_replies_are_read(reply: str) -> None:
    verdict = (await told({"history": TURNS}, reply)).verdict
    assert isinstance(verdict, Blame)
    assert (verdict.agent, verdict.step) == ("B", 1)


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(answer("B", "4 or 12"), id="two steps"),
        pytest.param(answer("B", 99), id="a step that does not exist"),
    ],
)
async def test_unusable_steps_are_errors_that_keep_the_text(reply: str) -> None:
    attribution = await told({"history": TURNS}, reply, reply)
    assert attribution.status is Status.ERROR
    assert "Agent Name: B" in attribution.verdict.reason


async def test_an_agent_that_does_not_exist_is_not_repeated() -> None:
    verdict = (await told({"history": TURNS}, answer("Santa", 4))).verdict
    assert isinstance(verdict, Blame)
    assert (verdict.agent, verdict.step) == ("B", 4)
    assert "'Santa', which is not an agent of this run" in verdict.reason


async def test_agent_and_step_never_contradict_each_other() -> None:
    verdict = (await told({"history": TURNS}, answer("A", 5))).verdict
    assert isinstance(verdict, Blame)
    assert (verdict.agent, verdict.step) == ("A", 6)
    assert "named A and step 5, which is C's" in verdict.reason


async def test_a_turn_without_content_is_an_empty_step() -> None:
    log = {"history": [*TURNS[:3], {"role": "user", "name": "D", "content": None}]}
    verdict = (await told(log, answer("D", 3))).verdict
    assert isinstance(verdict, Blame)
    assert (verdict.agent, verdict.step) == ("D", 3)


async def test_the_other_documented_key_is_read() -> None:
    verdict = (await told({"conversation": TURNS}, answer("B", 1))).verdict
    assert isinstance(verdict, Blame)
    assert verdict.step == 1


async def test_an_empty_log_is_an_error_and_asks_nothing() -> None:
    attribution = await told({"history": []})
    assert attribution.status is Status.ERROR
    assert attribution.effort.calls == 0


@pytest.mark.parametrize("reply", ["Yes", "1. **Yes**", "1) Yes"])
async def test_a_yes_in_any_dress_stops_step_by_step_there(reply: str) -> None:
    verdict = (await told({"history": TURNS}, "1. No. 2. Reason: r", reply, method="step-by-step")).verdict
    assert isinstance(verdict, Blame)
    assert verdict.step == 1
