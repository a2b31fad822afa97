"""The cookbook's patterns remove the vendors' keys that no rule set knows."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from string import ascii_letters, ascii_lowercase, digits, hexdigits

import pytest

from collector_processor.rebuild.redaction import ALL_KINDS, make_redactor

COOKBOOK = Path(__file__).parents[2] / "docs" / "cookbook.md"
HEX = hexdigits[:16]
CHANCE = Random(4)


def some(letters: str, length: int) -> str:
    return "".join(CHANCE.choices(letters, k=length))


@pytest.mark.parametrize(
    "key",
    [
        "e2b_" + some(HEX, 40),
        "fc-" + some(HEX, 32),
        f"lsv2_pt_{some(HEX, 32)}_{some(HEX, 10)}",
        "csk-" + some(ascii_lowercase + digits, 48),
        "pa-" + some(ascii_letters + digits + "_-", 43),
    ],
    ids=["E2B", "Firecrawl", "LangSmith", "Cerebras", "Voyage"],
)
def test_a_key_alone_is_removed(key: str) -> None:
    found = re.search(r"(?ms)^export BLAMESPAN_REDACT_PATTERNS='(.+?)'$", COOKBOOK.read_text())
    assert found is not None
    redactor = make_redactor(ALL_KINDS, found[1].split("\n"))
    assert key[8:] not in redactor.redact(f"I use {key} for it")
    assert redactor.redact("fc-1 of pa-2 and csk-3") == "fc-1 of pa-2 and csk-3"
