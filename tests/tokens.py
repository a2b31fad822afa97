"""Counts tokens with a real tokenizer, offline; lists the recorded runs that are counted."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path

import pytest

from analyzer.inquiry.conversation import Conversation
from analyzer.inquiry.method import Prompt
from analyzer.lab.evaluation.dataset import read_dataset

_SHARED = Path(__file__).resolve().parents[2] / "shared" / "datasets"


def count_tokens() -> Callable[[str], int]:
    """Return a counter for cl100k_base from litellm's copy; skip the test if there is none."""
    litellm = find_spec("litellm")  # not imported: it would ask the network for prices
    tiktoken = pytest.importorskip("tiktoken", reason="tokens are counted with tiktoken")
    if litellm is None or litellm.origin is None:
        pytest.skip("the tokenizer's file comes with litellm")
    folder = Path(litellm.origin).parent / "litellm_core_utils" / "tokenizers"
    if not any(folder.glob("9b5ad71b*")):
        pytest.skip("litellm no longer brings the tokenizer's file")
    before = os.environ.get("TIKTOKEN_CACHE_DIR")
    os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
    try:
        encoding = tiktoken.get_encoding("cl100k_base")
    finally:
        if before is None:
            del os.environ["TIKTOKEN_CACHE_DIR"]
        else:
            os.environ["TIKTOKEN_CACHE_DIR"] = before
    return lambda text: len(encoding.encode(text, disallowed_special=()))


def recorded_failures() -> tuple[Conversation, ...]:
    """Return the development half of Who&When; skip the test if it is missing."""
    path = _SHARED / "who_and_when.dev.jsonl.gz"
    if not path.exists():
        pytest.skip("the recorded runs are not beside the project: get them as the documentation says")
    return read_dataset(path)


def text_of(prompts: Iterable[Prompt]) -> str:
    """Return everything that prompts send, including the schema."""
    return "\n".join(
        [message.content for prompt in prompts for message in prompt.messages]
        + [str(dict(p.response_schema.schema)) for p in prompts if p.response_schema is not None]
    )
