"""Methods with several questions, through litellm over HTTP, without the provider's tool calling."""

from __future__ import annotations

import json

from analyzer.analyses.models.completion import LiteLLM
from analyzer.methods.attribution import Attributor
from semconv.model import Attribution, Blame
from tests.e2e.model_server import ModelServer, Scripted, serve
from tests.runs import run, step, tool

RUN = run(
    step("clerk", "I take the list of 2023."),
    tool("clerk", "2023: 1,450 each"),
    step("analyst", "Ten cost 14,500."),
    task="What do ten cost today?",
)
READING = {"note": "an old list?", "do": [{"tool": "read_step", "step": 0}]}
ANSWER = {
    "reason": "the list is out of date",
    "step": 0,
    "fix": "take this year's list",
    "evidence": [{"step": 0, "quote": "the list of 2023"}],
    "path": [{"step": 2, "quote": "Ten cost"}, {"step": 0, "quote": "the list of 2023"}],
    "ranking": [{"step": 0, "probability": 0.8}],
}
RULING = {
    "answers": [
        {"step": n, "holds": n == 0, "confidence": 0.9, "why": "w", "quote": RUN.steps[n].output}
        for n in range(3)
    ]
}


async def asked(method: str, *replies: object) -> tuple[Attribution, ModelServer]:
    script = [Scripted(text=json.dumps(reply)) for reply in replies]
    async with serve(*script) as server:
        model = LiteLLM(name="openai/local", api_base=server.url, api_key="none")
        attribution = await Attributor(method=method, model=model)(RUN)
    return attribution, server


async def test_an_investigation_reads_by_json_in_words() -> None:
    attribution, server = await asked("investigate", READING, ANSWER)
    assert isinstance(attribution.verdict, Blame)
    assert (attribution.verdict.step, attribution.verdict.fix) == (0, "take this year's list")
    assert attribution.effort.calls == 2
    assert all("tools" not in request.body for request in server.received)
    assert "you asked to read step 0" in server.received[1].body["messages"][1]["content"]


async def test_verifiers_answer_by_schema() -> None:
    attribution, server = await asked("verify", ANSWER, RULING, RULING, RULING)
    assert isinstance(attribution.verdict, Blame)
    assert attribution.verdict.step == 0
    names = [request.body["response_format"]["json_schema"]["name"] for request in server.received]
    assert names == ["decisive_error", "criterion", "criterion", "criterion"]


async def test_a_bisection_ends_when_one_step_is_likely_enough() -> None:
    found = {"reason": "r", "step": 2, "quote": "Ten cost 14,500."}
    # Is it step 0 or 1? Asked again, the question is inverted: no and yes in turn always mean step 2.
    attribution, server = await asked(
        "bisect", *[found | {"answer": answer} for answer in ("no", "yes")] * 15
    )
    assert isinstance(attribution.verdict, Blame)
    assert attribution.verdict.step == 2
    assert len(server.received) == attribution.effort.calls < 31


async def test_a_bisection_of_answers_that_contradict_each_other_asks_its_last_question() -> None:
    found = {"reason": "r", "answer": "yes", "step": 0, "quote": "the list of 2023"}
    attribution, server = await asked("bisect", found)
    assert len(server.received) == attribution.effort.calls == 31
