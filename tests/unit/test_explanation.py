"""A verdict as Markdown: whole, bounded, and nothing of a run outside fences and code spans."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.inquiry.explanation import DATA, MOST_TEXT, explain
from analyzer.inquiry.verdict import to_json
from semconv.model import (
    Abstention,
    Attribution,
    Blame,
    Evidence,
    Ranked,
    Resource,
    Span,
    SpanId,
    Status,
    StepKind,
    TraceId,
    Trajectory,
)
from semconv.record import replace
from tests.runs import run, step, tool


def explained(
    trajectory: Trajectory, spans: Sequence[Span] = (), *, reason: str = "it is wrong", for_agent: bool = True
) -> str:
    one = trajectory.steps[1]
    blame = Blame(
        agent=one.agent,
        step=1,
        reason=reason,
        confidence=0.7,
        fix="Copy it.",
        mode="wrong_computation",
        evidence=(Evidence(step=1, quote=one.output),),
        ranking=(
            Ranked(step=1, agent=one.agent, probability=0.7),
            Ranked(step=0, agent="reader", probability=0.2),
        ),
    )
    document = to_json(Attribution(run_id="r-1", verdict=blame, method="signals"), trajectory)
    return explain(document, trajectory, spans, "r-1", for_agent=for_agent, is_kept=True)


SALES = run(
    tool("reader", "16 GPUs"), step("analyst", "It costs 450.", instructions="Compute."), task="How much?"
)


def test_it_says_who_where_why_what_is_open_and_how_to_prove_it() -> None:
    text = explained(SALES)
    for said in (
        "# Run `r-1`: attributed",
        "**`analyst`, step 1**, confidence 70%, wrong_computation.",
        "```text\nit is wrong\n```",
        "```text\nCopy it.\n```",
        "Nothing has proved this verdict",
        "It may have been `reader`, step 0: 20%.",
        "## Step 1: `analyst`, llm",
        "| 1 **decisive** | `analyst` | llm |  |",
        "blamespan experiment r-1 --check CHECK -- COMMAND",
        "blamespan label r-1 wrong",
    ):
        assert said in text, said
    assert DATA in text
    assert DATA not in explained(SALES, for_agent=False)


def test_the_place_in_the_code_is_that_of_the_span_or_of_the_nearest_above() -> None:
    resource = Resource(attributes={"service.name": "desk", "vcs.ref.head.revision": "9d59409"})
    above = Span(
        trace_id=TraceId("t"),
        span_id=SpanId("a"),
        attributes={"code.function.name": "desk.compute", "code.lineno": 42},
    )
    own = Span(trace_id=TraceId("t"), span_id=SpanId("b"), parent_id=SpanId("a"), resource=resource)
    steps = (SALES.steps[0], replace(SALES.steps[1], span_id=SpanId("b")))
    text = explained(replace(SALES, steps=steps), (above, own))
    for said in (
        "code.function.name: `desk.compute`",
        "code.lineno: `42`",
        "vcs.ref.head.revision: `9d59409`",
    ):
        assert f"- {said}" in text


def test_a_run_that_did_not_fail_has_no_decisive_step() -> None:
    verdict = Abstention(status=Status.NO_FAILURE, reason="nothing says that the run failed")
    document = to_json(Attribution(run_id="r-1", verdict=verdict, method="triage"), SALES)
    text = explain(document, SALES, (), "it's a file.json", for_agent=True, is_kept=False)
    assert text.startswith("# Run `r-1`: no_failure\n")
    assert "Prove it" not in text


def test_a_name_of_a_file_is_quoted_for_the_shell() -> None:
    document = to_json(
        Attribution(
            run_id="r",
            verdict=Blame(agent="analyst", step=1, reason="", confidence=0.5, ranking=()),
            method="signals",
        ),
        SALES,
    )
    text = explain(document, SALES, (), "it's; rm -rf.json", for_agent=True, is_kept=False)
    assert "blamespan experiment 'it'\\''s; rm -rf.json' --check" in text
    assert "blamespan label" not in text


def test_long_runs_and_texts_are_shortened() -> None:
    long = run(*(step("a", f"n{at}" * 5_000) for at in range(300)), task="t")
    text = explained(long)
    assert len(text) < 20 * MOST_TEXT
    assert "60 of 300, around the decisive one." in text
    assert "characters …]" in text


_HOSTILE = st.text(st.sampled_from("`~#|<>[]()*_!\n\r\t \u202e\u200b\U000e0041ab1-"), max_size=60)


@given(_HOSTILE, _HOSTILE, _HOSTILE, _HOSTILE)
def test_no_text_of_a_run_leaves_its_fence_or_code_span(
    name: str, said: str, reason: str, target: str
) -> None:
    trajectory = run(
        tool("reader", "x", target=target), step(name, said, instructions=said, kind=StepKind.LLM), task="t"
    )
    outside, fence = [], ""
    for line in explained(trajectory, reason=reason).splitlines():
        mark = re.fullmatch(r"(`{3,})(\w*)", line)
        if fence:
            fence = "" if line == fence else fence
        elif mark:
            fence = mark[1]
        else:
            outside.append(line)
    assert not fence
    bare = "\n".join(re.sub(r"`[^`\n]*`", "", line) for line in outside)
    assert not re.search(r"[`~<>\[\]!\u202e\u200b\U000e0041]", bare)
    assert all(line.count("|") in {0, 5, 6} for line in outside)


@pytest.mark.parametrize("character", ["\x1b", "\x00", "\u202e"])
def test_invisible_characters_are_removed(character: str) -> None:
    assert character not in explained(run(step("a", "x"), step(f"b{character}c", f"d{character}e"), task="t"))
