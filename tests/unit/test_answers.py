"""Where a failed run's answer came from, and what its root says of the end."""

from __future__ import annotations

import pytest

from analyzer.folding import folded
from analyzer.reading import read
from analyzer.signals import findings
from tests.runs import run, step, tool


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("Paris has 2.1 million people", "Paris has 2.1 million people."),
        ("PARIS has\n2,100,000 people", "**Paris** has 2100000 people"),
        ("Paris has 2,100,000 people", "Paris has 2.1 million people"),
        ("Paris has 2.1 million people", "Paris has 2,100,000 people"),
    ],
)
def test_an_answer_that_a_tool_gave_is_no_unsupported_claim(given: str, said: str) -> None:
    trajectory = run(tool("reader", given), step("reader", said), task="How many people live in Paris?")
    assert not [f for f in findings(read(trajectory)) if f.signal == "unsupported_figure"]
    if folded(given) == folded(said):
        assert not [f for f in findings(read(trajectory)) if f.signal == "answer_origin"]
