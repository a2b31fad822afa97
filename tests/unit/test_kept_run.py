"""A kept run contains what a ranker reads, excludes what must not be kept, and stays small."""

from __future__ import annotations

import base64
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.inquiry.errors import UnreadableInput
from analyzer.issues.labels.kept_run import MAX_PACKED, pack, unpack
from analyzer.methods.ranker_features import featurise
from collector_processor.rebuild.redaction import keep, omit, redact
from semconv.model import Heard, SpanStatus, StepKind, ToolCall
from tests.runs import failed_tool, run, step, tool

RUN = run(
    step(
        "planner", "Ask the clerk.", StepKind.HANDOFF, target="clerk", instructions="You plan.", tools="none"
    ),
    tool("clerk", "2023: 1,450 each", input='{"year": 2023}', causes=(0,)),
    failed_tool("clerk", "TimeoutError: no answer"),
    step("writer", "The answer is 14,500.", name="chat model", group=1),
    task="What do ten cost?",
    output="14,500",
    reference="SECRET RIGHT ANSWER",
    root_status=SpanStatus.ERROR,
    root_error="it ended badly",
)


def packed(clean: object = keep) -> bytes:
    kept = pack(RUN, clean)  # type: ignore[arg-type]
    assert kept is not None
    return kept


def test_the_ranker_rates_a_kept_run_like_the_run() -> None:
    kept = unpack(packed())
    assert kept.has_texts
    assert [one.span_id for one in kept.trajectory.steps] == [one.span_id for one in RUN.steps]
    assert featurise(kept.trajectory) == featurise(run(*RUN.steps, task=RUN.task, output=RUN.output))


def test_calls_and_messages_are_kept_without_secrets() -> None:
    calls = (ToolCall(name="pay", arguments='{"password": "hunter2-hunter2"}', call_id="c1"),)
    heard = (Heard(role="user", start=0, end=4),)
    kept = pack(run(step("a", "x", input="Pay.", calls=calls, heard=heard)), redact)
    assert kept is not None
    assert b"hunter2" not in zlib.decompress(kept)
    (one,) = unpack(kept).trajectory.steps
    assert ([call.name for call in one.calls], one.heard) == (["pay"], heard)


def test_results_within_an_output_are_kept() -> None:
    said = (Heard(role="tool", start=5, end=9, author="pay", answers=("c1",)),)
    kept = pack(run(step("a", "Paid 9.50", said=said)), redact)
    assert kept is not None
    assert unpack(kept).trajectory.steps[0].said == said


def test_messages_of_shortened_texts_are_not_kept() -> None:
    places = (Heard(role="user", start=0, end=4),)
    kept = pack(run(step("a", "Paid", said=places, input="Pay.", heard=places)), omit)
    assert kept is not None
    (one,) = unpack(kept).trajectory.steps
    assert (one.heard, one.said) == ((), ())


def test_instructions_tools_and_the_right_answer_are_not_kept() -> None:
    kept = unpack(packed()).trajectory
    assert kept.reference is None
    assert {(one.instructions, one.tools) for one in kept.steps} == {("", "")}


def test_without_its_texts_a_run_still_says_which_agent_acted_when() -> None:
    kept = unpack(packed(omit))
    assert not kept.has_texts
    assert [(one.agent, one.kind) for one in kept.trajectory.steps] == [(s.agent, s.kind) for s in RUN.steps]
    assert (kept.trajectory.task, kept.trajectory.output, kept.trajectory.root_error) == ("", "", "")


@pytest.mark.parametrize("place", [0, 3_000, 14_990, 14_999, 15_000, 30_000, 44_990, 45_005, 59_950])
def test_a_secret_is_found_wherever_a_long_text_is_cut(place: int) -> None:
    secret = "sk-" + "a1B2c3D4" * 5
    text = ("word " * 12_000)[: place + 1] + " " + secret + " " + ("word " * 12_000)[: 60_000 - place]
    kept = unpack(pack(run(step("a", text)), redact) or b"").trajectory.steps[0].output
    assert len(kept) < 21_000
    assert secret[:12] not in kept
    assert secret[-12:] not in kept


def noise(characters: int) -> str:
    """Return text that compresses to three quarters at best."""
    return base64.b64encode(random.Random(3).randbytes(characters)).decode()[:characters]


def test_a_run_too_large_is_kept_with_shorter_texts_and_then_with_none() -> None:
    said = noise(900_000)
    large = run(*(step("a", said[n * 30_000 : (n + 1) * 30_000]) for n in range(30)))
    kept = pack(large, keep)
    assert kept is not None
    assert len(kept) <= MAX_PACKED
    back = unpack(kept)
    assert (back.has_texts, len(back.trajectory.steps)) == (True, 30)
    huge = run(*(step("a", said[n * 900 : (n + 1) * 900]) for n in range(1_000)))
    assert not unpack(pack(huge, keep) or b"").has_texts


def test_a_run_that_is_too_large_even_without_texts_is_not_kept() -> None:
    said = noise(900_000)
    assert pack(run(*(step(said[n * 30_000 : (n + 1) * 30_000]) for n in range(30))), keep) is None


@pytest.mark.parametrize("broken", [b"", b"no zlib", packed()[:-9]])
def test_damage_is_reported(broken: bytes) -> None:
    with pytest.raises(UnreadableInput, match="cannot be read"):
        unpack(broken)


@given(st.text(), st.text(), st.text())
def test_any_text_is_kept_as_it_is(agent: str, said: str, task: str) -> None:
    original = run(step(agent, said), task=task)
    back = unpack(pack(original, keep) or b"").trajectory
    assert (back.steps, back.task, back.agents) == (original.steps, original.task, original.agents)
