"""Files as crashes, shells and compressors leave them are read, or refused with what is wrong and where."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import pytest
import zstandard

from analyzer.cli.recorded_runs import load_runs
from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.file_bytes import unpack
from analyzer.recordings.read_files import read_recording
from collector_processor.otlp import Signal
from collector_processor.otlp.otlp_json import to_json
from collector_processor.rebuild.encode import encode
from tests.factories import TRACE, chat, workflow

BODY = encode([workflow(), chat(2)])
LINE = to_json(Signal.TRACES, BODY)
LINES = LINE + b"\n" + LINE + b"\n"
SIZELESS = zstandard.ZstdCompressor(write_content_size=False)
SKIPPED = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"\0\0\0\1"
"""A zstd frame without content, as pzstd writes first."""


@pytest.mark.parametrize("plain", [BODY, LINE, LINES], ids=["protobuf", "JSON", "JSON lines"])
@pytest.mark.parametrize(
    "pack",
    [
        pytest.param(zstandard.compress, id="zstd"),
        pytest.param(SIZELESS.compress, id="zstd of unknown size"),
        pytest.param(lambda data: SKIPPED + zstandard.compress(data) + SKIPPED, id="skippable frames"),
        pytest.param(
            lambda data: zstandard.compress(data[:99]) + zstandard.compress(data[99:]), id="two frames"
        ),
        pytest.param(lambda data: zstandard.compress(data) + bytes(512), id="zstd, padded"),
        pytest.param(lambda data: gzip.compress(data) + bytes(512), id="gzip, padded"),
        pytest.param(
            lambda data: gzip.compress(data[:99]) + bytes(512) + gzip.compress(data[99:]),
            id="gzip, padded within",
        ),
    ],
)
def test_a_packed_file_is_read_as_its_content(plain: bytes, pack: object) -> None:
    assert callable(pack)
    assert read_recording(pack(plain)) == read_recording(plain)


@pytest.mark.parametrize("cut", [1, 3, 20, 60])
@pytest.mark.parametrize("pack", [zstandard.compress, SIZELESS.compress, gzip.compress])
def test_a_packed_file_that_was_cut_is_refused(pack: object, cut: int) -> None:
    assert callable(pack)
    for whole in (pack(LINES), pack(LINES) + pack(LINES)):
        with pytest.raises(UnreadableInput, match=r"broken (gzip|zstd): the end is missing"):
            unpack(whole[:-cut])


@pytest.mark.parametrize("pack", [zstandard.compress, gzip.compress])
def test_a_damaged_packed_file_is_refused(pack: object) -> None:
    assert callable(pack)
    for broken in (pack(LINES)[:20] + b"\xff" * 40, pack(LINES) + b"something else entirely"):
        with pytest.raises(UnreadableInput, match=r"broken (gzip|zstd)"):
            unpack(broken)


def test_a_file_packed_twice_is_told_so() -> None:
    with pytest.raises(UnreadableInput, match="packed twice: unpack it once; there is gzip in the zstd"):
        unpack(zstandard.compress(gzip.compress(LINE)))


@pytest.mark.parametrize("pack", [zstandard.compress, SIZELESS.compress], ids=["sized", "of unknown size"])
def test_no_zstd_file_unpacks_without_bound(pack: object) -> None:
    assert callable(pack)
    most = 48 << 20
    with pytest.raises(UnreadableInput, match="unpacks to more than 48 MiB"):
        unpack(pack(b" " * (most + 1)), most)
    half = pack(b" " * (most // 2 + 1))
    with pytest.raises(UnreadableInput, match="unpacks to more than 48 MiB"):
        unpack(half + half, most)
    assert len(unpack(half, most)) == most // 2 + 1


def test_a_zstd_file_that_asks_for_much_memory_is_refused() -> None:
    rules = zstandard.ZstdCompressionParameters(window_log=27, write_content_size=False)
    packer = zstandard.ZstdCompressor(compression_params=rules).compressobj()
    asking = packer.compress(LINE) + packer.flush()
    with pytest.raises(UnreadableInput, match=r"broken zstd: .*memory"):
        unpack(asking, 48 << 20)
    assert unpack(asking) == LINE


def test_a_file_of_very_many_zstd_frames_is_unpacked_in_linear_time() -> None:
    frame, begun = zstandard.compress(b""), time.process_time()
    assert unpack(frame * 200_000 + zstandard.compress(b"[]")) == b"[]"
    assert time.process_time() - begun < 4


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(LINES + bytes(4096), id="after a power loss"),
        pytest.param(bytes(4096) + LINES, id="a log file emptied while it is written"),
        pytest.param(LINE + b"\n" + bytes(4096) + LINE + b"\n", id="between lines"),
        pytest.param(LINE + bytes(4096) + b"\r\n" + LINE + bytes(1), id="at the end of lines"),
        pytest.param(gzip.compress(LINES + bytes(4096)), id="packed"),
        pytest.param((LINES.decode() + "\0" * 99).encode("utf-16"), id="UTF-16"),
    ],
)
def test_nul_bytes_around_lines_are_passed_over(data: bytes) -> None:
    assert read_recording(data) == read_recording(LINES)


def test_nul_bytes_of_protobuf_stay() -> None:
    body = encode([workflow()]) + b"\x0a\x00"  # an empty resource
    assert unpack(body) == body


@pytest.mark.parametrize(
    "data",
    [b"\0", bytes(4096), gzip.compress(bytes(4096)), "\0".encode("utf-16")],
    ids=["one", "many", "packed", "UTF-16"],
)
def test_a_file_of_nul_bytes_is_refused(data: bytes) -> None:
    with pytest.raises(UnreadableInput, match="holds only NUL bytes"):
        read_recording(data)


def test_a_line_with_a_hole_is_refused_by_its_number() -> None:
    with pytest.raises(UnreadableInput, match="line 3: NUL bytes in it"):
        read_recording(bytes(99) + LINES + LINE[:40] + bytes(4096) + LINE)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_text_from_windows_powershell_is_read(encoding: str) -> None:
    text = LINES.decode().replace("\n", "\r\n").replace("workflow", "fluß 😀")
    expected = read_recording(text.encode())
    written = f"\ufeff{text}".encode(encoding)
    for data in (written, gzip.compress(written), written + "😀".encode(encoding)[:2]):
        assert read_recording(data) == expected


def test_broken_utf_16_is_refused_with_its_place() -> None:
    broken = '\ufeff{"a": "'.encode("utf-16-le") + b"\x00\xd8" + '"}'.encode("utf-16-le")
    with pytest.raises(UnreadableInput, match="broken UTF-16 at byte 16: illegal UTF-16 surrogate"):
        unpack(broken)


def test_utf_16_is_bounded_as_utf_8() -> None:
    with pytest.raises(UnreadableInput, match="unpacks to more than 1 MiB"):
        unpack(("\u4e00" * ((1 << 20) // 3 + 1)).encode("utf-16"), 1 << 20)


def test_spans_that_a_file_loses_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(LINE)
    spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    spans.append(spans[-1] | {"spanId": "one"})
    path = tmp_path / "run.json"
    path.write_text(json.dumps(document))
    assert load_runs(path, [])[0].trajectory.run_id == TRACE
    assert (
        "run.json: left out 1 of its spans, which have no valid id: expected hex" in capsys.readouterr().err
    )
