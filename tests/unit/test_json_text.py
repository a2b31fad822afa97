"""Untrusted JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semconv.json_text import read_json, written_in_turns

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(value=JSON, ascii_only=st.booleans())
def test_what_can_be_written_is_read_as_it_was(value: object, ascii_only: bool) -> None:
    assert read_json(json.dumps(value, ensure_ascii=ascii_only)) == value


@given(text=st.text(st.characters(categories=("Cs", "Lu"), include_characters="\\")))
def test_whatever_is_read_can_be_written_as_utf8(text: str) -> None:
    assert isinstance(read_json(json.dumps({text: [text]})), dict)
    json.dumps(read_json(json.dumps({text: [text]})), ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("written", "read"),
    [
        pytest.param(r'"\ud83d\ude00"', "😀", id="a pair"),
        pytest.param(r'"\ud83d"', "\ufffd", id="a first half"),
        pytest.param(r'"\uDE00"', "\ufffd", id="a second half"),
        pytest.param(r'"\ud83dx\ude00"', "\ufffdx\ufffd", id="halves apart"),
        pytest.param(r'"\ud83d\ud83d\ude00"', "\ufffd😀", id="a half before a pair"),
    ],
)
def test_half_a_pair_is_the_replacement_character(written: str, read: str) -> None:
    assert read_json(written) == read


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 200_000, '{"a":' * 200_000, "9" * 5000, '"\ud83d'], ids=lambda text: text[:8]
)
def test_what_cannot_be_read_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each kind says its own words
        read_json(text)


@given(value=JSON, levels=st.integers(0, 4))
def test_json_written_in_turns_is_the_json_written_at_once(value: object, levels: int) -> None:
    at_once = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert "".join(written_in_turns(value, levels)) == at_once


def test_each_value_at_the_given_level_is_a_piece_of_its_own() -> None:
    pieces = list(written_in_turns({"spans": [{"name": "a"}, {"name": "b"}]}, 2))
    assert [piece for piece in pieces if "name" in piece] == ['{"name":"a"}', '{"name":"b"}']
