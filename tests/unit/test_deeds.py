"""Which step is blamed where nothing stands out: one that did something, and not words that prepared it."""

from __future__ import annotations

import pytest

from analyzer.methods.without_model import judge_by_signals
from analyzer.signals.registry import findings
from analyzer.texts.run_view import read
from semconv.model import Blame, Step, StepKind
from tests.runs import calling, failed_tool, run, step, tool


def idle(*steps: Step) -> list[int]:
    return sorted(finding.step for finding in findings(read(run(*steps))) if finding.is_idle)


def blamed(*steps: Step, output: str = "It is done.") -> int:
    verdict = judge_by_signals(run(*steps, output=output))
    assert isinstance(verdict, Blame)
    return verdict.step


def person(words: str) -> Step:
    return step("customer", words, StepKind.HUMAN)


FACTS, PLAN = step("clerk", "Facts: the parcel is late."), step("clerk", "Plan: look, then tell.")


class TestPreparation:
    def test_a_plan_before_the_first_call_is_not_blamed_for_it(self) -> None:
        steps = (FACTS, PLAN, calling("clerk", ("track", "{}")), tool("clerk", "in Lyon", "track"))
        assert idle(*steps) == [0, 1]
        assert blamed(*steps, step("clerk", "Your parcel is in Nice.")) == 2

    def test_a_plan_after_which_another_agent_acts_is_a_deed(self) -> None:
        assert idle(PLAN, step("courier", "I brought it."), PLAN) == []

    def test_the_last_words_of_a_run_are_its_answer(self) -> None:
        assert idle(FACTS, PLAN) == []

    def test_code_is_a_deed(self) -> None:
        code = step("clerk", "```python\nsend(1)\n```")
        assert idle(code, PLAN, tool("terminal", "ok")) == []

    def test_a_call_is_a_deed_though_no_step_shows_its_result(self) -> None:
        assert idle(calling("clerk", ("track", "{}")), calling("clerk", ("track", '{"id": 2}'))) == []

    def test_a_failed_attempt_is_a_deed(self) -> None:
        broken = step("clerk", "", error="RateLimitError", status=failed_tool("x").status)
        assert idle(broken, PLAN, tool("clerk", "in Lyon", "track")) == []

    def test_a_coordinators_ledger_is_no_preparation(self) -> None:
        handing = step("lead", "Who is next?", StepKind.HANDOFF, target="courier")
        assert idle(step("lead", "Ledger: all is well."), step("lead", "Next."), handing, FACTS) == []

    def test_a_container_span_between_two_steps_changes_nothing(self) -> None:
        wrapper = step("clerk", "", StepKind.OTHER)
        assert idle(PLAN, wrapper, calling("clerk", ("track", "{}")), tool("clerk", "in Lyon", "track")) == [
            0
        ]


class TestDialogue:
    GREETING, ORDER = person("Guten Tag!"), person("Bitte stornieren Sie Nummer 7.")

    @pytest.mark.parametrize("change", ["cancel_booking", "modifyBooking", "changeBooking"])
    def test_the_call_that_changed_something_is_blamed(self, change: str) -> None:
        steps = (
            self.GREETING,
            step("desk", "Wie kann ich helfen?"),
            self.ORDER,
            calling("desk", ("get_booking", "7")),
            tool("desk", "Nummer 7: Lima", "get_booking"),
            calling("desk", (change, "7")),
            tool("desk", "ok", change),
            step("desk", "Die Buchung ist storniert."),
        )
        assert idle(*steps) == [1, 3, 7]
        assert blamed(*steps) == 5

    def test_the_tool_after_a_step_tells_what_it_called_in_a_log(self) -> None:
        said = step("desk", "[cancel_booking 7]")
        ran = step("tool:cancel_booking", "ok", StepKind.TOOL)
        assert idle(self.GREETING, step("desk", "Ja?"), self.ORDER, said, ran) == [1]

    def test_a_tool_whose_name_tells_nothing_is_not_idle(self) -> None:
        ran = (calling("desk", ("zx81", "7")), tool("desk", "ok", "zx81"))
        assert idle(self.GREETING, step("desk", "Ja?"), self.ORDER, *ran) == [1]

    def test_a_run_with_one_request_is_no_dialogue(self) -> None:
        steps = (self.ORDER, calling("desk", ("get_booking", "7")), tool("desk", "Lima", "get_booking"))
        assert idle(*steps) == []

    def test_a_record_of_changes_is_read_not_changed(self) -> None:
        read_only = (calling("desk", ("change_history", "7")), tool("desk", "none", "change_history"))
        assert idle(self.GREETING, step("desk", "Ja?"), self.ORDER, *read_only) == [1, 3]
