"""A verdict is believed as often as verdicts led by such evidence were right."""

from __future__ import annotations

import pytest

from analyzer.methods.without_model import judge_by_signals
from analyzer.signals.worth import MEASURED, highest_confidence
from semconv.model import Blame
from tests.runs import failed_tool, run, step, tool


def test_evidence_that_was_seldom_right_lowers_the_confidence() -> None:
    seldom, often = {"loop": (1, 80), "crash": (60, 80)}, {"loop": (70, 80), "crash": (60, 80)}
    assert highest_confidence("loop", seldom) < 0.15
    assert highest_confidence("loop", often) > 0.8


def test_few_verdicts_prove_little() -> None:
    counts = {"loop": (0, 1), "crash": (40, 99)}
    assert highest_confidence("loop", counts) == pytest.approx(0.364, abs=0.01)


def test_a_signal_never_seen_to_lead_is_believed_as_the_others_together() -> None:
    assert highest_confidence("new", {"loop": (30, 60)}) == pytest.approx(0.5)


def test_labels_of_ones_own_runs_move_the_limit() -> None:
    right, n = MEASURED["loop"]
    own = {**MEASURED, "loop": (right + 60, n + 60)}
    assert highest_confidence("loop", own) > highest_confidence("loop") + 0.2


def confidence(**fields: str) -> float:
    found = judge_by_signals(run(step("a", "We deliver 7100 crates."), step("b", "Done."), **fields))
    assert isinstance(found, Blame)
    assert found.step == 0
    return found.confidence


def test_a_verdict_led_by_a_signal_is_limited_by_its_worth() -> None:
    said = confidence(task="How many crates?", output="7100 crates")
    assert said <= max(highest_confidence(name) for name in MEASURED)


def test_an_indisputable_error_is_not_limited() -> None:
    found = judge_by_signals(run(step("a", "x"), failed_tool("b", "TimeoutError"), tool("c", "ok", "other")))
    assert isinstance(found, Blame)
    assert found.confidence > max(highest_confidence(name) for name in MEASURED)
