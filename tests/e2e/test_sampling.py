"""Votes through litellm over HTTP: the first answer is the most likely one, the others are sampled."""

from __future__ import annotations

import json

from analyzer.analyses.models.completion import LiteLLM
from analyzer.methods.attribution import Attributor
from semconv.model import Blame
from tests.e2e.model_server import Scripted, serve
from tests.runs import run, step

RUN = run(step("A", "text 0"), step("B", "text 1"), task="do it")
ANSWER = json.dumps(
    {
        "reason": "r",
        "step": 1,
        "evidence": [{"step": 1, "quote": "text 1"}],
        "ranking": [{"step": 1, "probability": 0.6}],
    }
)


async def test_further_votes_of_a_model_are_drawn_and_the_first_is_not() -> None:
    async with serve(Scripted(text=ANSWER)) as server:
        model = LiteLLM(name="openai/local", api_base=server.url, api_key="none")
        attribution = await Attributor(method="judge*3", model=model)(RUN)
    assert isinstance(attribution.verdict, Blame)
    assert attribution.verdict.step == 1
    assert attribution.effort.calls == 3
    assert [request.body["temperature"] for request in server.received] == [0.0, 0.7, 0.7]
