from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.experiment.replay import canonical as module
from analyzer.experiment.replay.canonical import Utterance, canonical, first_difference, key_of, masked
from analyzer.experiment.replay.tape import Answer, Matching, RecordedCall, Tape
from analyzer.experiment.replay.trial import Change, Decision, Edit, Live, Refuse, Request, Serve, Trial
from semconv.dialects.reading.action import Message
from semconv.model import ToolCall
from semconv.record import replace
from tests.tapes import call, said, tape

TEXTS = st.text(max_size=20)
CALLS = st.builds(ToolCall, name=st.sampled_from(["find", "book"]), arguments=st.just('{"a": 1}'))
MESSAGES = st.lists(
    st.builds(Message, role=st.sampled_from(["system", "user", "assistant"]), text=TEXTS), max_size=6
)


def key(*messages: Message) -> bytes:
    return key_of(canonical(messages))


@given(MESSAGES, MESSAGES)
def test_equal_keys_mean_equal_canonical_forms(one: list[Message], other: list[Message]) -> None:
    assert (key(*one) == key(*other)) == (canonical(one) == canonical(other))


def test_ids_are_renumbered_and_arguments_compared_as_json() -> None:
    def asked(id_: str, arguments: str) -> tuple[Message, ...]:
        wanted = ToolCall(name="find", arguments=arguments, call_id=id_)
        result = Message(role="tool", text="3", answers=(id_,))
        return (Message(role="assistant", calls=(wanted,)), result)

    assert key(*asked("call_1", '{"a": 1, "b": [2]}')) == key(*asked("toolu_9", '{"b":[2],"a":1}'))
    assert key(*asked("call_1", '{"a": 1}')) != key(*asked("call_1", '{"a": 2}'))


def test_results_of_parallel_calls_may_come_in_any_order_but_not_for_each_other() -> None:
    wanted = tuple(ToolCall(name="find", arguments=f'{{"n":{n}}}', call_id=f"c{n}") for n in range(2))
    asked = Message(role="assistant", calls=wanted)
    first, second = (Message(role="tool", text=f"result {n}", answers=(f"c{n}",)) for n in range(2))
    assert key(asked, first, second) == key(asked, second, first)
    swapped = (replace(first, answers=("c1",)), replace(second, answers=("c0",)))
    assert key(asked, first, second) != key(asked, *swapped)


def test_joined_and_split_messages_are_the_same() -> None:
    joined = Message(role="tool", text="one\ntwo", answers=("a", "b"))
    split = (
        Message(role="tool", text="one", answers=("a",)),
        Message(role="tool", text="two", answers=("b",)),
    )
    assert key(joined) == key(*split)
    assert key(Message(role="user", text="hi ")) == key(Message(role="user", text="hi"), Message(role="user"))


def test_the_text_none_beside_calls_equals_a_missing_text() -> None:
    wanted = (ToolCall(name="find", arguments="{}"),)
    spelled = Message(role="assistant", text="None", calls=wanted)
    assert key(spelled) == key(Message(role="assistant", calls=wanted))
    assert key(Message(role="assistant", text="None")) != key(Message(role="assistant"))


def test_masked_forms_leave_out_results_and_times_but_no_amounts() -> None:
    def rough(*messages: Message) -> bytes:
        return key_of(masked(canonical(messages)))

    def system(text: str) -> Message:
        return Message(role="system", text=text)

    today = system("Today is Monday, 23 November 2026, 14:05. Order 7f3a9c0e1b2d4f5a6b7c.")
    later = system("Today is Friday, 1 January 2027, 9:30. Order 0123456789abcdef0123.")
    assert rough(today) == rough(later)
    assert rough(system("2026-11-23T10:00:00Z")) == rough(system("2026-11-24T11:30:01Z"))
    assert rough(Message(role="tool", text="85")) == rough(Message(role="tool", text="40"))
    assert rough(Message(role="user", text="pay 450")) != rough(Message(role="user", text="pay 480"))


def test_a_difference_after_a_common_beginning_shows_what_follows_it() -> None:
    longer = canonical([Message(role="user", text="x" * 500 + " and an error")])
    shorter = canonical([Message(role="user", text="x" * 500)])
    difference = first_difference({0: shorter}, longer)
    assert (difference.expected[-3:], difference.found[-13:]) == ("xxx", " and an error")


def test_the_first_difference_is_to_the_most_similar_recorded_call() -> None:
    first = canonical([Message(role="system", text="A"), Message(role="user", text="x")])
    second = canonical([Message(role="system", text="B"), Message(role="user", text="seats: 85")])
    found = canonical([Message(role="system", text="B"), Message(role="user", text="seats: 58")])
    difference = first_difference({0: first, 1: second}, found)
    assert (difference.call, difference.message) == (1, 1)
    assert (difference.expected, difference.found) == ("user: seats: 85", "user: seats: 58")


VOLATILE = st.sampled_from(
    (
        *("2026-01-02T03:04:05.678Z", "2 January 2026", "Jan. 2, 2026", "Monday", "12:30:01 pm", "1:05"),
        *(
            "123e4567-e89b-42d3-a456-426614174000",
            "0123456789abcdef",
            "1700000000.25",
            "a so",
            " ",
            "\n",
            ".",
        ),
    )
)


@given(st.lists(VOLATILE | TEXTS, max_size=40).map("".join))
def test_a_text_masked_in_pieces_is_as_if_masked_at_once(text: str) -> None:
    (at_once,) = masked([Utterance(role="user", text=text)])
    pieces = list(module._cut(text, 1))
    assert "".join(pieces) == text
    assert "".join(masked([Utterance(role="user", text=piece)])[0].text for piece in pieces) == at_once.text


def test_a_long_text_is_masked_in_short_pieces() -> None:
    text = "so it is 12:00 now\n" * (1 << 16)
    assert max(map(len, module._cut(text))) <= (32 << 10) + 40


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
