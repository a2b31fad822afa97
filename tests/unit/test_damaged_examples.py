"""Every example of a format, damaged at each of its values: it is read, or refused in one line."""

from __future__ import annotations

import copy
import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.file_text import split_text
from analyzer.recordings.formats import FORMATS
from analyzer.recordings.read_files import read_recording
from analyzer.recordings.recording import FileFormat
from benchmarks.hostile.files import grown, lengthened, mutations
from benchmarks.hostile.files import read as read_mutation
from collector_processor.otlp import Signal
from collector_processor.rebuild.stages import rebuild

EXAMPLES: Final = Path(__file__).parents[2] / "examples" / "files"
WRONG: Final[tuple[Any, ...]] = (None, -1, 1e300, "x", [[3]], {"x": {"y": None}})
"""Values of types and ranges that most fields do not allow."""
MOST_PLACES: Final = 30


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value, without those above it."""
    held = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in held:
        yield (*path, key)
        yield from places(inner, (*path, key))


def with_value(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(document)
    holder = changed
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return changed


def without(document: Any, path: tuple[Any, ...]) -> Any:
    changed = copy.deepcopy(document)
    holder = changed
    for key in path[:-1]:
        holder = holder[key]
    del holder[path[-1]]
    return changed


def read(data: bytes) -> None:
    refusal = ""
    try:
        found = read_recording(data)
        rebuild(found.traces, found.bodies(Signal.LOGS))
    except UnreadableInput as error:
        refusal = str(error)
    assert "\n" not in refusal


@pytest.mark.parametrize("one", FORMATS, ids=lambda one: one.example)
def test_a_damaged_example_is_read_or_refused_in_one_line(one: FileFormat) -> None:
    text = split_text((EXAMPLES / one.example).read_bytes())
    assert text is not None
    whole = list(text.records)
    every = list(places(whole))
    for path in every[:: len(every) // MOST_PLACES + 1]:
        read(json.dumps(without(whole, path)).encode())
        for value in WRONG:
            read(json.dumps(with_value(whole, path, value)).encode())


@pytest.mark.parametrize("one", FORMATS, ids=lambda one: one.example)
def test_an_example_cut_anywhere_is_read_or_refused_in_one_line(one: FileFormat) -> None:
    data = (EXAMPLES / one.example).read_bytes()
    for end in range(1, len(data), len(data) // MOST_PLACES + 1):
        read(data[:end])


@pytest.mark.parametrize("one", FORMATS, ids=lambda one: one.example)
def test_an_example_changed_at_random_is_read_or_refused_in_one_line(one: FileFormat) -> None:
    """As by hand, with far more inputs: ``python -m benchmarks.hostile.files mutate``."""
    found = [read_mutation(data) for data in mutations(one.example, 60, seed=7)]
    assert any(found), "no change leaves the example readable: the readers are not reached"
    assert not all(found)


@pytest.mark.parametrize("one", FORMATS, ids=lambda one: one.example)
def test_an_example_grows_to_a_file_of_the_same_format(one: FileFormat) -> None:
    data = (EXAMPLES / one.example).read_bytes()
    large = grown(data, 40_000)
    text = split_text(large)
    assert text is not None
    assert [other.name for other in FORMATS if other.recognizes(text.records)][:1] == [one.name]
    assert len(large) >= 40_000
    assert read_recording(large) != read_recording(data)


@pytest.mark.parametrize("one", FORMATS, ids=lambda one: one.example)
def test_an_example_with_longer_texts_is_of_the_same_format(one: FileFormat) -> None:
    data = (EXAMPLES / one.example).read_bytes()
    longer = lengthened(data, 400)
    text = split_text(longer)
    assert text is not None
    assert (len(longer) > len(data)) is (text.form != "a log")
    assert [other.name for other in FORMATS if other.recognizes(text.records)][:1] == [one.name]


def test_reading_leaves_the_garbage_collector_as_it_was() -> None:
    data = (EXAMPLES / "openai-chat.json").read_bytes()
    for was_on in (False, True):
        (gc.enable if was_on else gc.disable)()
        try:
            read_recording(data)
            with pytest.raises(UnreadableInput):
                read_recording(data[:-9])
            assert gc.isenabled() is was_on
        finally:
            gc.enable()
