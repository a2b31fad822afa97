"""Methods with several questions end with a valid verdict, whatever mixture of good, odd and hostile replies
they get."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analyzer.analyses.models.scripted import ScriptedModel
from analyzer.inquiry.errors import ModelError, ModelFailure
from analyzer.inquiry.method import Prompt, Reply
from analyzer.methods.attribution import Attributor
from semconv.model import Abstention, Status, StepKind, Trajectory
from tests.runs import run, step, tool

RUN = run(
    step("planner", "Ask the clerk.", StepKind.HANDOFF, target="clerk"),
    tool("clerk", "2023: 1,450 each"),
    step("analyst", "Ten cost 14,500."),
    step("writer", "The answer is 14,500."),
    task="What do ten cost?",
)
INDEX = st.integers(-2, 6)
QUOTES = st.sampled_from(["Ten cost 14,500", "1,450", "invented", "", None, 7])
QUOTED = st.lists(st.fixed_dictionaries({"step": INDEX, "quote": QUOTES}), max_size=3)
CHANCE = st.one_of(st.floats(-0.5, 1.5), st.just("high"), st.just(float("nan")))
JUDGED = st.fixed_dictionaries(
    {"reason": st.sampled_from(["r", ""]), "step": INDEX},
    optional={
        "evidence": QUOTED,
        "path": QUOTED,
        "ranking": st.lists(st.fixed_dictionaries({"step": INDEX, "probability": CHANCE}), max_size=3),
    },
)
ASKED = st.fixed_dictionaries(
    {
        "do": st.lists(
            st.one_of(
                st.fixed_dictionaries({"tool": st.just("read_step"), "step": INDEX}),
                st.fixed_dictionaries(
                    {"tool": st.just("read_range"), "first": INDEX, "last": st.integers(0, 10**9)}
                ),
                st.fixed_dictionaries({"tool": st.just("search"), "text": st.text(max_size=5)}),
            ),
            max_size=5,
        )
    },
    optional={"note": st.text(max_size=20)},
)
RULED = st.fixed_dictionaries(
    {
        "answers": st.lists(
            st.fixed_dictionaries(
                {"step": INDEX, "holds": st.booleans()},
                optional={"confidence": CHANCE, "quote": QUOTES, "why": st.text(max_size=9)},
            ),
            max_size=6,
        )
    }
)


def all_ruled(holding: bool) -> dict[str, Any]:
    return {"answers": [{"step": n, "holds": holding, "quote": "1,450"} for n in range(len(RUN.steps))]}


REPLIES = st.one_of(
    st.one_of(JUDGED, ASKED, RULED, st.builds(all_ruled, st.booleans())).map(json.dumps),
    st.sampled_from(["yes", "No.", '{"answer": "yes"}', "", "{", "[]", "both or neither"]),
    st.just(ModelError("gone", kind=ModelFailure.CONNECTION)),
)


def check(verdict: Any, trajectory: Trajectory) -> None:
    if isinstance(verdict, Abstention):
        assert verdict.reason
        return
    assert verdict.agent == trajectory.steps[verdict.step].agent
    assert 0 <= verdict.confidence <= 1
    assert verdict.reason
    assert verdict.ranking[0].step == verdict.step
    assert verdict.ranking[0].probability == verdict.confidence
    assert sum(candidate.probability for candidate in verdict.ranking) <= 1.001
    assert len({candidate.step for candidate in verdict.ranking}) == len(verdict.ranking)
    for evidence in verdict.evidence:
        assert evidence.quote.split()[0] in f"{trajectory.steps[evidence.step].output}"


@pytest.mark.parametrize("method", ["judge", "investigate", "verify", "bisect", "verify*2"])
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(replies=st.lists(REPLIES, max_size=14))
async def test_any_mixture_of_replies_ends_in_a_sound_verdict(
    method: str, replies: list[str | ModelError]
) -> None:
    attribution = await Attributor(method=method, model=ScriptedModel(replies=replies))(RUN)
    check(attribution.verdict, RUN)


@pytest.mark.parametrize(
    ("method", "most"),
    [("judge", 2), ("investigate", 10), ("verify", 16), ("bisect", 32), ("judge*3", 6)],
)
@pytest.mark.parametrize(
    "said",
    [
        "nothing of use",
        json.dumps({"do": [{"tool": "read_range", "first": 0, "last": 10**9}]}),
        json.dumps({"reason": "r", "step": 1, "path": [{"step": 3, "quote": "never said"}]}),
        "yes",
    ],
)
async def test_a_model_that_says_the_same_for_ever_is_asked_a_bounded_number_of_times(
    method: str, most: int, said: str
) -> None:
    asked: list[Prompt] = []

    class Stubborn(ScriptedModel):
        async def complete(self, prompt: Prompt) -> Reply:
            asked.append(prompt)
            return Reply(text=said)

    attribution = await Attributor(method=method, model=Stubborn(replies=[]))(RUN)
    assert 0 < len(asked) <= most
    assert attribution.effort.calls == len(asked)
    check(attribution.verdict, RUN)


@pytest.mark.parametrize("method", ["judge", "investigate", "verify", "bisect"])
async def test_a_run_that_does_not_fit_is_folded_said_to_be_and_keeps_every_step(method: str) -> None:
    long = run(*(step(f"agent{n % 3}", f"head{n} " + "words " * 3_000) for n in range(40)), task="t")
    model = ScriptedModel(replies=[], context_tokens=12_000)
    attribution = await Attributor(method=method, model=model)(long)
    assert attribution.status is Status.ERROR, "the model is away"
    assert attribution.truncated
    assert 0 < attribution.coverage < 0.2
    (prompt,) = model.prompts
    shown = prompt.messages[1].content
    assert all(f"[{n}] agent{n % 3}" in shown and f"head{n} " in shown for n in range(40))
    assert sum(len(message.content) for message in prompt.messages) / 3 < model.context_tokens
