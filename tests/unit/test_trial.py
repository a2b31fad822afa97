"""A trial's rules: which calls are served from the tape, which are live, and no stale answers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from analyzer.experiment.replay.matching import Spoken
from analyzer.experiment.replay.tape import Answer, CallKind, RecordedCall, RecordedTool
from analyzer.experiment.replay.trial import (
    CLIENT_GONE,
    Change,
    Decision,
    Edit,
    Live,
    Refuse,
    Request,
    Serve,
    Trial,
)
from analyzer.experiment.replay.trial_tools import RunTool, ToolRules
from analyzer.experiment.replay.wire import WIRES
from semconv.dialects.reading.action import Message
from semconv.model import ToolCall
from semconv.record import replace
from tests.tapes import again, asking, call, said, tape, tool

THREE = (call(0, "a"), call(1, "b"), call(2, "c"))


def served(decision: Decision) -> int:
    assert isinstance(decision, Serve), decision
    return decision.call


def ask(trial: Trial, request: Request) -> Decision:
    """Send a request, and let its answer be delivered."""
    decision = trial.ask(request)
    if not isinstance(decision, Refuse):
        trial.answering(decision.serial)
    return decision


def test_a_fidelity_trial_serves_every_call_once_and_refuses_any_other() -> None:
    trial = Trial(tape(*THREE))
    assert [served(ask(trial, again(each))) for each in (THREE[1], THREE[0], THREE[2])] == [1, 0, 2]
    assert trial.report().served == 3
    assert isinstance(ask(trial, again(THREE[0])), Refuse)
    assert trial.report().invalid


def test_equal_calls_are_served_in_recorded_order() -> None:
    trial = Trial(tape(call(0, "same", answer="first"), call(1, "same", answer="second")))
    assert [served(ask(trial, asking("same"))) for _ in range(2)] == [0, 1]


def test_a_miss_before_the_change_invalidates_the_trial_and_says_how() -> None:
    trial = Trial(tape(*THREE), Change(call=1, answer=Answer(text="right")))
    ask(trial, again(THREE[0]))
    assert isinstance(ask(trial, asking("bb")), Refuse)
    assert isinstance(ask(trial, again(THREE[1])), Refuse)
    report = trial.report()
    assert report.invalid
    assert report.first_difference is not None
    assert (report.first_difference.call, report.first_difference.found) == (1, "user: bb")


def test_the_changed_answer_is_served_and_all_after_it_is_live_equal_or_not() -> None:
    trial = Trial(tape(*THREE), Change(call=1, answer=Answer(text="right")))
    ask(trial, again(THREE[0]))
    changed = ask(trial, again(THREE[1]))
    assert isinstance(changed, Serve)
    assert changed.answer.text == "right"
    assert isinstance(ask(trial, again(THREE[2])), Live)
    assert isinstance(ask(trial, asking("else")), Live)
    report = trial.report()
    assert (report.calls, report.served, report.live, report.changed, report.invalid) == (2, 2, 2, True, "")


def test_a_call_that_ran_beside_the_changed_one_is_served_after_it() -> None:
    beside = call(2, "c", begin=1.5)
    trial = Trial(tape(THREE[0], THREE[1], beside), Change(call=1, answer=Answer(text="right")))
    ask(trial, again(THREE[0]))
    ask(trial, again(THREE[1]))
    assert served(ask(trial, again(beside))) == 2


def test_masked_keys_serve_before_the_change_only() -> None:
    def dated(day: int) -> tuple[Message, ...]:
        return said(f"It is 2026-11-{day}.")

    early, beside = call(0, messages=dated(10)), call(2, messages=said("Done at 10:00."), begin=1.5)
    trial = Trial(tape(early, call(1, "b"), beside), Change(call=1, answer=Answer(text="right")))
    assert served(ask(trial, Request(messages=dated(23)))) == 0
    ask(trial, asking("b"))
    assert isinstance(ask(trial, Request(messages=said("Done at 11:00."))), Live)
    assert trial.report().masked == 1


def test_a_changed_call_may_be_asked_anew_with_an_edit() -> None:
    edit = Edit(hint="Check the sum.")
    trial = Trial(tape(*THREE), Change(call=0, edit=edit))
    decision = ask(trial, again(THREE[0]))
    assert isinstance(decision, Live)
    assert decision.edit == edit
    after = ask(trial, again(THREE[1]))
    assert isinstance(after, Live)
    assert after.edit == Edit()


def test_a_retry_gets_the_same_answer_again_also_of_the_changed_call() -> None:
    trial = Trial(tape(*THREE), Change(call=1, answer=Answer(text="right")))
    assert served(ask(trial, again(THREE[0]))) == served(ask(trial, again(THREE[0], retry=1))) == 0
    ask(trial, again(THREE[1]))
    repeated = ask(trial, again(THREE[1], retry=1))
    assert isinstance(repeated, Serve)
    assert repeated.answer.text == "right"
    assert trial.report().served == 2


def test_an_answer_that_the_client_cut_is_served_again() -> None:
    trial = Trial(tape(call(0, "same", answer="first"), call(1, "same", answer="second")))
    cut = trial.ask(asking("same"))
    assert isinstance(cut, Serve)
    trial.failed(cut.serial, CLIENT_GONE)
    assert [served(ask(trial, asking("same"))) for _ in range(2)] == [0, 1]


def test_a_live_call_that_failed_upstream_is_live_again() -> None:
    trial = Trial(tape(*THREE), Change(call=0))
    first = trial.ask(again(THREE[0]))
    assert isinstance(first, Live)
    trial.failed(first.serial, "rate_limited")
    assert isinstance(ask(trial, again(THREE[0])), Live)
    assert trial.report().live_failures == {"rate_limited": 1}


def test_calls_that_bypass_the_gateway_stop_the_trial_before_the_change() -> None:
    trial = Trial(tape(*THREE), Change(call=2, answer=Answer(text="right")))
    ask(trial, again(THREE[0]))
    refused = ask(trial, again(THREE[2]))
    assert isinstance(refused, Refuse)
    assert refused.reason.startswith("1 of the recorded calls")


def test_a_run_recorded_without_system_messages_is_compared_without_them() -> None:
    trial = Trial(tape(call(0, "a", has_system=False)))
    assert served(ask(trial, asking("a"))) == 0


def test_a_run_recorded_without_tool_calls_is_compared_without_them() -> None:
    wanted = ToolCall(name="find", arguments="{}", call_id="c")
    result = Message(role="tool", text="85", answers=("c",))
    asked = (*said("a"), Message(role="assistant", calls=(wanted,)), result)
    silent = replace(call(0, messages=(*said("a"), result)), has_calls=False)
    assert served(ask(Trial(tape(silent)), Request(messages=asked))) == 0


def test_results_recorded_without_calls_may_be_sent_as_the_users_words() -> None:
    """As smolagents records and sends them."""
    asked, calling = Message(role="user", text="How many seats?"), "Calling tools: find"
    said_once = Message(role="assistant", text=calling)
    kept = (asked, Message(role="tool", text="Error: no name"), said_once, Message(role="tool", text="85"))
    recorded = replace(call(0, messages=kept), has_calls=False)
    words = "How many seats?\n\nError: no name"
    sent = (Message(role="user", text=words), said_once, Message(role="user", text="85"))
    assert isinstance(Trial(tape(recorded)).ask(Request(messages=sent)), Serve)
    assert isinstance(Trial(tape(recorded)).ask(Request(messages=kept)), Serve)
    changed = (*sent[:2], Message(role="user", text="86"))
    assert isinstance(Trial(tape(recorded)).ask(Request(messages=changed)), Refuse)
    assert isinstance(Trial(tape(replace(recorded, has_calls=True))).ask(Request(messages=sent)), Refuse)


def test_an_undeclared_tool_keeps_calls_from_going_live() -> None:
    change = Change(call=0, answer=Answer(text="right"))
    handoff = frozenset({"transfer_to_worker"})
    offered = {"tools": ("transfer_to_worker", "wire_money"), "transfers": handoff}
    trial = Trial(tape(*THREE), change)
    ask(trial, again(THREE[0], **offered))
    assert trial.report().undeclared == {"wire_money": 0}
    refused = ask(trial, again(THREE[1], **offered))
    assert isinstance(refused, Refuse)
    assert "--allow-tool wire_money" in refused.reason
    declared = Trial(tape(*THREE), change, ToolRules(allowed=frozenset({"wire_money"})))
    ask(declared, again(THREE[0], **offered))
    assert isinstance(ask(declared, again(THREE[1], **offered)), Live)


@pytest.mark.parametrize(
    ("name", "parameters", "is_safe"),
    [
        pytest.param("transfer_to_worker", ("reason",), True, id="to an agent of the run"),
        pytest.param("transfer_to_worker", ("amount",), False, id="with what no handoff takes"),
        pytest.param("transfer_to_savings", (), False, id="to nobody that the run knows"),
        pytest.param("handoff", ("agent",), False, id="to whom is not said"),
    ],
)
def test_a_function_that_is_only_offered_is_a_handoff_only_to_an_agent_of_the_run(
    name: str, parameters: tuple[str, ...], *, is_safe: bool
) -> None:
    schema = {"type": "object", "properties": {each: {"type": "string"} for each in parameters}}
    function = {"name": name, "parameters": schema}
    said_by = {
        "chat/completions": {"type": "function", "function": function},
        "responses": {"type": "function", **function},
        "messages": {"name": name, "input_schema": schema},
    }
    for path, definition in said_by.items():
        messages = [{"role": "user", "content": "Go on."}]
        asked = WIRES[path].read({"messages": messages, "input": "Go on.", "tools": [definition]})
        request = Request(messages=asked.messages, tools=asked.tools, transfers=asked.transfers)
        trial = Trial(tape(*THREE), Change(call=0, answer=Answer(text="right")))
        ask(trial, again(THREE[0]))
        assert isinstance(ask(trial, request), Live) is is_safe, path


def test_a_handoff_that_the_trace_shows_needs_no_agent_of_its_name() -> None:
    played = replace(tape(*THREE), delegations=frozenset({"escalate"}))
    trial = Trial(played, Change(call=0, answer=Answer(text="right")))
    ask(trial, again(THREE[0], tools=("escalate",)))
    assert isinstance(ask(trial, again(THREE[1], tools=("escalate",))), Live)


def test_a_tool_gets_each_recorded_result_once_and_then_is_refused() -> None:
    recorded = [tool(0, "find", "none", name="x"), tool(1, "find", "85", name="x")]
    trial = Trial(tape(*THREE, tools=recorded))
    results = [trial.use_tool("find", '{"name":"x"}') for _ in range(2)]
    assert results == recorded
    assert isinstance(trial.use_tool("find", '{"name":"x"}'), Refuse)
    assert "--allow-tool find" in trial.report().invalid


def test_a_declared_tool_may_run_where_the_tape_has_no_result() -> None:
    trial = Trial(
        tape(*THREE, tools=[tool(0, "find", "85", name="x")]), rules=ToolRules(allowed=frozenset({"find"}))
    )
    assert isinstance(trial.use_tool("find", '{"name":"x"}'), RecordedTool)
    assert isinstance(trial.use_tool("find", '{"name":"y"}'), RunTool)
    assert trial.report().invalid == ""


def test_embeddings_that_the_tape_does_not_hold_are_live_also_before_the_change() -> None:
    trial = Trial(tape(*THREE))
    wanted = Request(messages=(Message(role="user", text="a"),), kind=CallKind.EMBEDDINGS)
    assert isinstance(ask(trial, wanted), Live)
    assert (trial.report().live_embeddings, trial.report().invalid) == (1, "")


def test_a_change_of_a_call_that_is_not_there_is_refused() -> None:
    with pytest.raises(IndexError):
        Trial(tape(*THREE), Change(call=3))


TEXTS = st.sampled_from(["a", "b", "c"])


@st.composite
def tapes(draw: st.DrawFn) -> tuple[RecordedCall, ...]:
    texts = draw(st.lists(TEXTS, min_size=1, max_size=6))
    lengths = draw(st.lists(st.sampled_from([0.5, 1.5, 2.5]), min_size=len(texts), max_size=len(texts)))
    return tuple(
        call(index, text, answer=f"{index}:{text}", begin=index, end=index + length)
        for index, (text, length) in enumerate(zip(texts, lengths, strict=True))
    )


class Replay(RuleBasedStateMachine):
    """Any workflow: requests in any order, retries, truncated answers."""

    @precondition(lambda self: not hasattr(self, "trial"))
    @rule(calls=tapes(), place=st.integers(0, 5), is_resampled=st.booleans())
    def begin(self, calls: tuple[RecordedCall, ...], place: int, *, is_resampled: bool) -> None:
        self.calls = calls
        self.changed = place % len(calls)
        answer = None if is_resampled else Answer(text="changed")
        self.trial = Trial(tape(*calls), Change(call=self.changed, answer=answer))
        self.was_invalid = self.is_changed = False
        self.given: dict[int, int] = {}
        self.last: Decision | None = None

    @precondition(lambda self: hasattr(self, "trial"))
    @rule(text=TEXTS, is_answered=st.booleans(), retry=st.integers(0, 1))
    def request(self, text: str, retry: int, *, is_answered: bool) -> None:
        request = asking(text, retry=retry)
        decision = self.trial.ask(request)
        self.check(decision, request)
        if isinstance(decision, Refuse):
            return
        if is_answered:
            self.trial.answering(decision.serial)
            self.is_changed = self.trial.report().changed
        else:
            self.trial.failed(decision.serial, CLIENT_GONE)

    def check(self, decision: Decision, request: Request) -> None:
        if self.was_invalid:
            assert isinstance(decision, Refuse)
        match decision:
            case Refuse():
                self.was_invalid = True
            case Serve():
                recorded = self.calls[decision.call]
                keys = {Spoken(each, CallKind.CHAT).key() for each in (recorded.messages, request.messages)}
                assert len(keys) == 1
                is_first = decision.call not in self.given
                self.given.setdefault(decision.call, decision.serial)
                wanted = "changed" if decision.call == self.changed else recorded.answer.text
                assert decision.answer.text == wanted
                if self.is_changed and is_first and not request.retry:
                    assert recorded.start_ns < self.calls[self.changed].end_ns, "a stale answer"
            case Live():
                changed = self.calls[self.changed].messages
                assert self.is_changed or request.messages == changed, "live before the change"

    @invariant()
    def nothing_is_live_before_the_changed_call_was_reached(self) -> None:
        if hasattr(self, "trial") and self.trial.report().live:
            reached = self.changed not in self.trial.report().missing
            assert reached


TestReplay = Replay.TestCase
TestReplay.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)


@given(tapes())
def test_any_tape_is_served_whole_to_the_workflow_that_recorded_it(calls: tuple[RecordedCall, ...]) -> None:
    trial = Trial(tape(*calls))
    for each in calls:
        decision = ask(trial, again(each))
        assert isinstance(decision, Serve)
    report = trial.report()
    assert (report.served, report.missing, report.invalid) == (len(calls), (), "")
