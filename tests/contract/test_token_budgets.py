"""Size of the methods' prompts for recorded runs, counted by a real tokenizer."""

from __future__ import annotations

import json

import pytest

from analyzer.inquiry.method import Prompt, Reply
from analyzer.methods.investigate import Investigate
from analyzer.methods.judge import Judge
from semconv.model import Trajectory
from tests.inquiries import MARKER, attribute
from tests.tokens import count_tokens, recorded_failures, text_of

PLENTY = 10_000_000


def log_and_instructions(trajectory: Trajectory) -> str:
    instructions = {step.agent: step.instructions for step in trajectory.steps if step.instructions}
    return "\n".join([*(step.output for step in trajectory.steps), *instructions.values()])


def test_a_judge_sends_little_more_than_the_log() -> None:
    count = count_tokens()
    worst = 0.0
    for recorded in recorded_failures():
        prompt = next(Judge(marker=MARKER, max_bytes=PLENTY).investigate(recorded.trajectory))
        assert not prompt.truncated
        allowed = 1.2 * count(log_and_instructions(recorded.trajectory)) + 800
        worst = max(worst, count(text_of([prompt])) / allowed)
    assert 0 < worst <= 1


@pytest.mark.parametrize("greed", ["one step at a time", "all at once", "searches", "never answers"])
async def test_an_investigation_of_the_longest_logs_stays_within_60k_tokens(greed: str) -> None:
    count = count_tokens()
    longest = sorted(
        (recorded.trajectory for recorded in recorded_failures()),
        key=lambda trajectory: -sum(len(step.output) for step in trajectory.steps),
    )
    for trajectory in longest[:6]:
        sent: list[Prompt] = []
        received: list[str] = []
        model = _Reader(greed=greed, last=len(trajectory.steps) - 1, sent=sent, received=received)
        await attribute(Investigate(marker=MARKER, max_bytes=300_000), trajectory, model)
        spent = count(text_of([*sent])) + count("\n".join(received))
        assert len(sent) > 1
        assert spent <= 60_000


class _Reader:
    def __init__(self, *, greed: str, last: int, sent: list[Prompt], received: list[str]) -> None:
        self.greed, self.last, self.sent, self.received = greed, last, sent, received

    async def __call__(self, prompt: Prompt) -> Reply:
        number = len(self.sent)
        self.sent.append(prompt)
        requests = {
            "one step at a time": [{"tool": "read_step", "step": self.last - number}],
            "all at once": [{"tool": "read_range", "first": 0, "last": self.last}] * 4,
            "searches": [{"tool": "search", "text": word} for word in ("the", "and", "http", "er")],
            "never answers": [],
        }[self.greed]
        text = json.dumps({"note": "n" * 500, "do": requests}) if requests else "x " * 1_000
        self.received.append(text)
        return Reply(text=text)
