"""Labelled runs from files: one document, an array, or one per line, gzipped or not; errors give places."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from analyzer.inquiry.errors import UnreadableInput
from analyzer.lab.evaluation.dataset import read_dataset


def log(name: str, said: str = "hello") -> dict[str, Any]:
    return {"id": name, "history": [{"role": "A", "content": said}]}


ONE, TWO = log("one"), log("two")


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize(
    ("text", "ids"),
    [
        pytest.param(json.dumps(ONE), ["one"], id="one document"),
        pytest.param(json.dumps(ONE) + "\n\n", ["one"], id="one line"),
        pytest.param(json.dumps(ONE, indent=2), ["one"], id="one document over many lines"),
        pytest.param(json.dumps([ONE, TWO]), ["one", "two"], id="an array"),
        pytest.param(json.dumps([ONE, TWO], indent=1), ["one", "two"], id="an array over many lines"),
        pytest.param(f"{json.dumps(ONE)}\n{json.dumps(TWO)}", ["one", "two"], id="lines"),
        pytest.param(f"\n{json.dumps(ONE)}\r\n\n{json.dumps(TWO)}\n", ["one", "two"], id="blank lines"),
        pytest.param(json.dumps(log("one", "a\u2028b"), ensure_ascii=False), ["one"], id="odd line ends"),
        pytest.param("\ufeff" + json.dumps(ONE), ["one"], id="byte order mark"),
        pytest.param("", [], id="nothing"),
    ],
)
def test_every_shape_is_read(
    tmp_path: Path, text: str, ids: list[str], pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "part.jsonl"
    path.write_bytes(pack(text.encode()))
    runs = read_dataset(path)
    assert [run.trajectory.run_id for run in runs] == ids
    assert {run.subset for run in runs} <= {"part"}


def test_a_folder_may_hold_packed_files(tmp_path: Path) -> None:
    line = json.dumps(ONE).encode()
    (tmp_path / "a.json").write_bytes(line)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(line))
    (tmp_path / "c.jsonl.zst").write_bytes(zstandard.compress(line))
    assert len(read_dataset(tmp_path)) == 3


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{", ":1: not JSON"),
        (json.dumps(ONE).encode() + b"\n{\n", ":2: not JSON"),
        (b"{\n" + json.dumps(ONE).encode(), ":1: not JSON"),
        (json.dumps(ONE).encode() + b"\n\xff\n", ":2: cannot be read"),
        (b"\xff", ":1: cannot be read"),
        (json.dumps([ONE, 7]).encode(), r"\[1\]: not a conversation"),
        (json.dumps(ONE).encode() + b"\n7\n", ":2: not a conversation"),
        (b"null", ": not a conversation"),
        (gzip.compress(b"{}", mtime=0)[:-3], "gzip or zstd"),
    ],
)
def test_an_unreadable_line_is_reported_with_its_place(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "runs"
    path.write_bytes(data)
    with pytest.raises(UnreadableInput, match=message):
        read_dataset(path)


def test_reading_takes_little_more_memory_than_the_runs(tmp_path: Path) -> None:
    """If decoded as one text, a single non-Latin character would make all others as wide as itself."""
    path = tmp_path / "many.jsonl"
    line = json.dumps(log("run", "x" * 20_000 + "\U0001f600"), ensure_ascii=False)
    path.write_text("\n".join([line] * 200), encoding="utf-8")
    tracemalloc.start()
    runs = read_dataset(path)
    kept, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(runs) == 200
    assert most < kept + 2 * path.stat().st_size
