"""Images in the texts of a run: their base64 is named, and what stands beside it is kept."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.stages import rebuild
from collector_processor.trajectory.acts import PLACEHOLDER, without_base64
from semconv.model import Step
from tests.factories import agent, chat, tool, workflow

BYTES: Final = random.Random(7).randbytes(6_000)
IMAGE: Final = base64.b64encode(BYTES).decode()
LARGE: Final = base64.b64encode(random.Random(8).randbytes(3_600_000)).decode()
"""With its envelope larger than the longest JSON that is parsed."""
SAID: Final = "The chart shows 480 t."


def step_with(**attributes: str) -> Step:
    """Return the last step of a run whose last span has these attributes."""
    last = (
        chat(3, parent=2, answer="ok") if "gen_ai.input.messages" in attributes else tool(3, "draw", parent=2)
    )
    last = replace(last, attributes={**last.attributes, **attributes})
    (run,) = rebuild([encode([workflow(1, task="Draw it."), agent(2, "painter"), last])])
    return run.trajectory.steps[-1]


def mcp(data: str) -> Mapping[str, Any]:
    image = {"type": "image", "data": data, "mimeType": "image/png"}
    return {"content": [image, {"type": "text", "text": SAID}]}


RESULTS: Final[Mapping[str, Callable[[], str]]] = {
    "mcp": lambda: json.dumps(mcp(IMAGE)),
    "mcp, above the limit of JSON": lambda: json.dumps(mcp(LARGE)),
    "mcp, a resource": lambda: json.dumps(
        {"content": [{"type": "resource", "resource": {"uri": "f:///a", "blob": IMAGE}}, {"text": SAID}]}
    ),
    "own key": lambda: json.dumps({"png": IMAGE, "text": SAID}),
    "python": lambda: str({"png": IMAGE, "text": SAID}),
    "data URL": lambda: f"![chart](data:image/png;base64,{IMAGE}) {SAID}",
    "MIME": lambda: f"{base64.encodebytes(BYTES).decode()}\n{SAID}",
    "MIME in JSON": lambda: json.dumps({"png": base64.encodebytes(BYTES).decode(), "text": SAID}),
    "URL-safe": lambda: f"{base64.urlsafe_b64encode(BYTES).decode()} {SAID}",
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_tools_image_is_named_and_its_text_kept(name: str) -> None:
    step = step_with(**{"gen_ai.tool.call.result": RESULTS[name]()})
    assert SAID in step.output
    assert len(step.output) < 300
    assert PLACEHOLDER in step.output


@pytest.mark.parametrize("data", [IMAGE, LARGE], ids=["small", "above the limit of JSON"])
def test_an_image_that_a_model_gets_is_named_and_the_text_after_it_kept(data: str) -> None:
    parts = [{"type": "blob", "modality": "image", "content": data}, {"type": "text", "content": SAID}]
    answer = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "response": mcp(data)}]}
    messages = json.dumps([{"role": "user", "parts": parts}, answer])
    step = step_with(**{"gen_ai.input.messages": messages})
    assert step.input.count(SAID) == 2
    assert len(step.input) < 800


SENTENCE: Final = "The quick brown fox jumps over 12 lazy dogs near St-Malo_2/3, "
UNTOUCHED: Final[Mapping[str, str]] = {
    "prose": SENTENCE * 200,
    "Chinese": "第三季度销售额为一千二百万元" * 200,
    "a gene": "ACGTTGCA" * 500,
    "a hex dump": "3fa9c1" * 500,
    "hashes": "\n".join(f"{number:064x}" for number in range(2**200, 2**200 + 60)),
    "a row of signs": "=" * 3_000 + "-" * 3_000,
    "paths": "\n".join(f"/srv/Data_2026/very-long-folder-name-{'x' * n}/Report{n}" for n in range(30, 90)),
    "a token": f"eyJhbGciOiJIUzI1NiJ9.{IMAGE[:800].replace('+', '-')}.c2ln",
    "a short key": IMAGE[:400],
}


@pytest.mark.parametrize("name", UNTOUCHED)
def test_text_that_is_not_base64_stays(name: str) -> None:
    assert without_base64(UNTOUCHED[name]) == UNTOUCHED[name]


def test_several_are_named_each() -> None:
    assert without_base64(f'["{IMAGE}", "{IMAGE}"]') == f'["{PLACEHOLDER}", "{PLACEHOLDER}"]'
