"""A program whose prompts changed plays on its old tape; its calls are matched by what was said in them."""

from __future__ import annotations

import pytest

from analyzer.experiment.replay.tape import Answer, Matching, RecordedCall, Tape
from analyzer.experiment.replay.trial import Change, Decision, Edit, Live, Refuse, Request, Serve, Trial
from semconv.record import replace
from tests.tapes import call, said, tape

PLANNER = "You are the planner. Split the task into steps and name each of them."
CRITIC = "You are the critic. Find what is wrong with an answer, and say so."


def asked(index: int, prompt: str) -> RecordedCall:
    return call(index, messages=said("the task", system=prompt))


def asking(prompt: str, text: str, model: str = "m") -> Request:
    return Request(messages=said(text, system=prompt), model=model)


def recorded(*calls: RecordedCall) -> Tape:
    return replace(tape(*calls), matching=Matching.CONVERSATION)


def served(decision: Decision) -> int:
    assert isinstance(decision, Serve), decision
    return decision.call


PLAN = asked(0, PLANNER)
CHECK = asked(1, CRITIC)


def test_other_instructions_are_served_and_counted() -> None:
    trial = Trial(recorded(PLAN))
    assert served(trial.ask(asking("Something else entirely.", "the task"))) == 0
    assert trial.report().masked == 1


def test_another_conversation_is_refused_and_never_live() -> None:
    trial = Trial(recorded(PLAN, CHECK), Change(call=1))
    assert isinstance(trial.ask(asking(PLANNER, "another task")), Refuse)
    report = trial.report()
    assert (report.live, bool(report.invalid)) == (0, True)
    assert report.first_difference is not None


def test_an_ordinary_tape_still_wants_the_whole_request() -> None:
    assert isinstance(Trial(tape(PLAN)).ask(asking(PLANNER + " Be brief.", "the task")), Refuse)


def test_agents_that_were_asked_the_same_are_told_apart_by_their_instructions() -> None:
    trial = Trial(recorded(PLAN, CHECK))
    assert served(trial.ask(asking(CRITIC + " Be brief.", "the task"))) == 1
    assert served(trial.ask(asking(PLANNER, "the task"))) == 0
    assert trial.report().masked == 1


def test_a_call_that_several_agents_could_make_is_refused() -> None:
    trial = Trial(recorded(PLAN, CHECK))
    assert isinstance(trial.ask(asking("Do your work well.", "the task")), Refuse)


@pytest.mark.parametrize(
    ("prompt", "model", "differs"),
    [
        (CRITIC, "m", ()),
        (CRITIC, "openai/m-2025-01-31", ()),
        (CRITIC + " Add carefully.", "m", ("instructions",)),
        (CRITIC, "m-mini", ("model",)),
        (CRITIC + " Add carefully.", "other", ("instructions", "model")),
    ],
)
def test_a_difference_in_the_decisive_request_is_noted(
    prompt: str, model: str, differs: tuple[str, ...]
) -> None:
    decisive = replace(CHECK, answer=Answer(text="wrong", model="m"))
    yesterday = Edit(system=CRITIC)
    trial = Trial(recorded(PLAN, decisive), Change(call=1, edit=yesterday))
    assert served(trial.ask(asking(PLANNER + " Be brief.", "the task"))) == 0
    decision = trial.ask(asking(prompt, "the task", model))
    assert isinstance(decision, Live)
    assert decision.edit == yesterday
    trial.answering(decision.serial)
    assert trial.report().differs == differs


@pytest.mark.parametrize(
    "decisive",
    [
        pytest.param(call(0, "the task", has_system=False), id="not recorded"),
        pytest.param(asked(0, CRITIC + " Write to [e-mail]."), id="a secret removed"),
    ],
)
def test_instructions_that_are_not_known_whole_do_not_differ(decisive: RecordedCall) -> None:
    trial = Trial(recorded(decisive), Change(call=0))
    assert isinstance(trial.ask(asking("Anything.", "the task")), Live)
    assert trial.report().differs == ()
