"""People's statements on a verdict, checked against the run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analyzer.issues.labels.run_label import (
    Label,
    LabelKind,
    LabelRefused,
    Statement,
    as_label,
    place_of,
    to_json,
)
from collector_processor.core.records import StoredVerdict
from collector_processor.otlp import Tenant
from semconv.model import SpanId, Trajectory
from tests.runs import run, step, tool
from tests.verdicts import stored, stored_without_blame

RUN = run(step("planner"), tool("clerk", "1,450"), step("Cost Analyst", "14,500"), tool("clerk", "ok"))
VERDICT = stored(tenant=Tenant("x-scope-orgid=a"), version=3)
FINE = stored_without_blame("no_failure")


def corrected(agent: str | None = None, step: int | None = None, kept: Trajectory | None = RUN) -> Label:
    return as_label(Statement(kind=LabelKind.CORRECTED, agent=agent, step=step), VERDICT, kept, 9)


def said(kind: LabelKind, verdict: StoredVerdict = VERDICT) -> Label:
    return as_label(Statement(kind=kind), verdict, RUN, 9)


def test_a_step_alone_names_its_agent() -> None:
    label = corrected(step=2)
    assert (label.kind, label.agent, label.step) == (LabelKind.CORRECTED, "Cost Analyst", 2)
    assert label.span_id == RUN.steps[2].span_id
    assert (label.tenant, label.version, label.service) == (VERDICT.tenant, 3, "shop")
    assert label.labelled_ns == 9


def test_a_reason_is_printable_bounded_and_without_secrets() -> None:
    told = Statement(kind=LabelKind.REJECTED, why=" sk-1\0\ud800 is\nwrong\u202e ", author="ada\n" * 99)
    label = as_label(told, VERDICT, RUN, 9, lambda text: text.replace("sk-1", "<key>"))
    assert (label.why, len(label.author)) == ("<key> is\nwrong", 100)
    assert to_json(label)["why"] == label.why
    assert to_json(said(LabelKind.REJECTED))["why"] is None
    with pytest.raises(LabelRefused, match="why: expected at most 1,000 characters, got 1,001"):
        as_label(replace(told, why="x" * 1_001), VERDICT, RUN, 9)


def test_another_reason_is_another_statement_and_another_author_is_not() -> None:
    one = said(LabelKind.REJECTED)
    assert one.says_the_same_as(replace(one, author="ada", labelled_ns=1))
    assert not one.says_the_same_as(replace(one, why="it is right"))


def test_an_agent_alone_names_no_step() -> None:
    label = corrected(agent="cost_analyst")
    assert (label.agent, label.step, label.names_a_step) == ("Cost Analyst", None, False)


def test_agent_and_step_must_match() -> None:
    assert corrected(agent="clerk", step=3).names_a_step
    with pytest.raises(LabelRefused, match=r"step 2 is Cost Analyst's, not clerk's, whose steps are 1, 3"):
        corrected(agent="clerk", step=2)


@pytest.mark.parametrize(
    ("agent", "step", "message"),
    [
        ("writer", None, "its agents are planner, clerk, Cost Analyst"),
        ("", None, "its agents are"),
        (None, 4, "its steps are 0 to 3"),
        (None, -1, "its steps are 0 to 3"),
        (None, None, "expected an agent, a step or both"),
    ],
)
def test_an_unknown_agent_or_step_is_refused_with_a_list_of_known_ones(
    agent: str | None, step: int | None, message: str
) -> None:
    with pytest.raises(LabelRefused, match=message):
        corrected(agent, step)


def test_a_thousand_agents_are_not_all_listed() -> None:
    many = run(*(step(f"agent {number}") for number in range(1_000)))
    with pytest.raises(LabelRefused, match="and 980 more") as refusal:
        corrected(agent="writer", kept=many)
    assert len(str(refusal.value)) < 400


def test_no_step_of_a_run_without_steps_can_be_blamed() -> None:
    with pytest.raises(LabelRefused, match="its steps are none"):
        corrected(step=0, kept=run())


def test_labels_of_a_run_that_is_not_kept_are_not_checked() -> None:
    with pytest.raises(LabelRefused, match="not kept"):
        corrected(step=1, kept=None)


def test_a_confirmation_takes_over_what_the_verdict_said() -> None:
    label = said(LabelKind.CONFIRMED)
    assert (label.kind, label.agent, label.step) == (LabelKind.CONFIRMED, "clerk", 1)
    assert label.span_id == VERDICT.span_id


def test_confirming_a_verdict_without_failure_labels_the_run_as_not_failed() -> None:
    assert said(LabelKind.CONFIRMED, FINE).kind is LabelKind.NOT_A_FAILURE


@pytest.mark.parametrize("verdict", [VERDICT, FINE])
def test_a_rejection_names_no_agent(verdict: StoredVerdict) -> None:
    label = said(LabelKind.REJECTED, verdict)
    assert (label.kind, label.agent, label.step) == (LabelKind.REJECTED, None, None)


@pytest.mark.parametrize("kind", [LabelKind.CONFIRMED, LabelKind.REJECTED])
@pytest.mark.parametrize("status", ["undetermined", "error"])
def test_a_verdict_without_a_statement_cannot_be_confirmed_or_rejected(kind: LabelKind, status: str) -> None:
    word = "confirm" if kind is LabelKind.CONFIRMED else "reject"
    with pytest.raises(LabelRefused, match=f"nothing to {word}.*{status}"):
        said(kind, stored_without_blame(status))


def test_a_run_can_always_be_labelled_as_not_failed() -> None:
    assert said(LabelKind.NOT_A_FAILURE, stored_without_blame("undetermined")).kind is LabelKind.NOT_A_FAILURE


def test_a_label_follows_its_step_when_late_spans_move_it() -> None:
    label = corrected(step=2)
    assert place_of(label, RUN) == 2
    moved = run(step("planner", span_id=SpanId("f" * 16)), *RUN.steps)
    assert place_of(label, moved) == 3
    assert place_of(label, run(*RUN.steps[:2])) is None


def test_among_several_steps_of_a_span_the_index_decides() -> None:
    shared = replace(RUN.steps[2], span_id=RUN.steps[2].span_id)
    twice = run(*RUN.steps[:3], shared)
    label = corrected(step=2)
    assert place_of(label, twice) == 2
    assert place_of(label, run(step("new"), *twice.steps)) is None


def test_a_step_without_a_span_is_known_by_its_index() -> None:
    bare = replace(corrected(step=2), span_id=None)
    assert place_of(bare, RUN) == 2
    assert place_of(replace(bare, step=9), RUN) is None
