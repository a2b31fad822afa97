"""Texts made to be slow to read take time in proportion to their length."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from analyzer.lineage.figures import figures
from semconv.dialects.generic.speakers import bare_name
from semconv.dialects.reading.messages import message_of
from semconv.dialects.reading.python_repr import message_fields

_LENGTH = 20_000
_MOST_S = 1.0
"""Seconds of CPU, far above what linear time takes and far below what quadratic time took (3 to 14)."""


def _results(number: int) -> object:
    parts = [{"type": "tool_call", "name": "x", "arguments": "{}", "id": "1"}]
    parts += [{"type": "tool_call_response", "id": "1", "response": "r"} for _ in range(number)]
    return message_of({"role": "assistant", "parts": parts})


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda: figures("page" + "\n" * _LENGTH + "1000 EUR"), id="lines"),
        pytest.param(lambda: figures("a." * (_LENGTH // 2) + " 7000"), id="mail"),
        pytest.param(lambda: figures("a" * _LENGTH + " 7000"), id="path"),
        pytest.param(lambda: bare_name("agent x" + " step" * (_LENGTH // 5) + "!"), id="affixes"),
        pytest.param(lambda: message_fields("content='x' name='a' " + "tool_calls=[" * 5_000), id="calls"),
        pytest.param(lambda: _results(_LENGTH), id="results"),
    ],
)
def test_a_text_made_to_be_slow_is_read_in_time(read: Callable[[], object]) -> None:
    begun = time.process_time()
    read()
    assert time.process_time() - begun < _MOST_S
