from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import suppress

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from collector_processor.otlp import MalformedRequestError
from collector_processor.receivers.admission import TurnedAwayError
from collector_processor.receivers.decompression import decompress

Compress = Callable[[bytes], bytes]


def _bare_snappy(body: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(body))


def _framed_snappy(body: bytes) -> bytes:
    """As Go's snappy writes it, with a header even on an empty stream."""
    return bytes(cramjam.snappy.compress(body)) or b"\xff\x06\x00\x00sNaPpY"


PACKED = ("gzip", "deflate", "zstd", "zlib", "lz4", "snappy", "x-snappy-framed")

ENCODERS: dict[str, Compress] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstandard.compress,
    "zlib": zlib.compress,
    "lz4": lz4.frame.compress,
    "snappy": _bare_snappy,
    "x-snappy-framed": _framed_snappy,
    "identity": bytes,
    "": bytes,
}


@pytest.mark.parametrize("encoding", ENCODERS)
@given(body=st.binary(max_size=2000))
def test_what_was_compressed_comes_back(encoding: str, body: bytes) -> None:
    assert decompress(ENCODERS[encoding](body), encoding, limit=2000) == body


@pytest.mark.parametrize("encoding", ENCODERS)
@given(size=st.integers(0, 3000), limit=st.integers(1, 3000))
def test_nothing_above_the_limit_comes_out(encoding: str, size: int, limit: int) -> None:
    packed = ENCODERS[encoding](bytes(size))
    if size <= limit:
        assert decompress(packed, encoding, limit) == bytes(size)
    else:
        with pytest.raises(TurnedAwayError, match=f"at most {limit} bytes") as raised:
            decompress(packed, encoding, limit)
        assert raised.value.refusal.http_status == 413


@pytest.mark.parametrize("encoding", PACKED)
@given(noise=st.binary(min_size=1, max_size=200))
def test_noise_ends_in_words_and_never_in_another_error(encoding: str, noise: bytes) -> None:
    with suppress(MalformedRequestError, TurnedAwayError):
        assert len(decompress(noise, encoding, limit=10_000)) <= 10_000


@pytest.mark.parametrize("encoding", [one for one in PACKED if one != "x-snappy-framed"])
@given(data=st.data())
def test_a_body_cut_short_is_never_taken_for_whole(encoding: str, data: st.DataObject) -> None:
    packed = ENCODERS[encoding](b"one span and another span " * 20)
    kept = data.draw(st.integers(1, len(packed) - 1))
    with pytest.raises(MalformedRequestError):
        decompress(packed[:kept], encoding, limit=1 << 20)


def _streamed_lz4(body: bytes) -> bytes:
    return bytes(lz4.frame.compress(body, store_size=False))


def _streamed_zstd(body: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_content_size=False).compress(body)


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [
        pytest.param("gzip", gzip.compress, id="gzip"),
        pytest.param("deflate", zlib.compress, id="deflate"),
        pytest.param("zstd", zstandard.compress, id="zstd that says its size"),
        pytest.param("zstd", _streamed_zstd, id="zstd that does not"),
        pytest.param("zlib", zlib.compress, id="zlib"),
        pytest.param("lz4", lz4.frame.compress, id="lz4"),
        pytest.param("lz4", _streamed_lz4, id="lz4 that does not say its size"),
        pytest.param("snappy", _bare_snappy, id="bare snappy"),
        pytest.param("snappy", _framed_snappy, id="framed snappy by the name of the bare"),
        pytest.param("x-snappy-framed", _framed_snappy, id="framed snappy"),
    ],
)
def test_a_bomb_costs_no_more_memory_than_the_limit(encoding: str, compress: Compress) -> None:
    bomb = compress(bytes(64 << 20))
    limit = 1 << 20
    tracemalloc.start()
    with pytest.raises(TurnedAwayError):
        decompress(bomb, encoding, limit)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * limit


def test_a_zstd_frame_may_not_ask_for_a_window_beyond_the_limit() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27, write_content_size=False)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    packed = packer.compress(b"small") + packer.flush()
    assert decompress(packed, "zstd", limit=128 << 20) == b"small"
    with pytest.raises(MalformedRequestError):
        decompress(packed, "zstd", limit=1 << 20)


def test_thousands_of_empty_gzip_members_are_not_unpacked() -> None:
    with pytest.raises(MalformedRequestError, match="members"):
        decompress(gzip.compress(b"") * 5000, "gzip", limit=1 << 20)


def test_what_follows_an_empty_zstd_frame_is_refused_and_not_lost() -> None:
    packed = zstandard.compress(b"")
    assert decompress(packed, "zstd", limit=1000) == b""
    with pytest.raises(MalformedRequestError, match="nothing after"):
        decompress(packed + zstandard.compress(b"spans"), "zstd", limit=1000)


@pytest.mark.parametrize("encoding", ["br", "compress", "gzip, gzip", "gzip;q=1"])
def test_other_encodings_are_named_and_refused(encoding: str) -> None:
    with pytest.raises(
        TurnedAwayError,
        match="expected one of deflate, gzip, identity, lz4, snappy, x-gzip, x-snappy-framed, zlib, zstd",
    ) as raised:
        decompress(b"body", encoding, limit=1000)
    assert raised.value.refusal.http_status == 415


def _chunk(kind: int, data: bytes) -> bytes:
    return bytes([kind]) + len(data).to_bytes(3, "little") + data


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param(b"\x00\x10", id="a chunk's head cut short"),
        pytest.param(_chunk(0, b"\0\0\0\0\x05abcde")[:-2], id="a chunk cut short"),
        pytest.param(_chunk(0, b""), id="a chunk with no checksum"),
        pytest.param(_chunk(0, b"\0\0\0\0\xff\xff\xff\xff\xff\xff"), id="a length without end"),
        pytest.param(_chunk(1, b"\0\0\0\0plain"), id="a wrong checksum"),
        pytest.param(_chunk(2, b"reserved"), id="a chunk of a reserved kind"),
    ],
)
def test_a_framed_snappy_stream_that_is_none_ends_in_words(chunks: bytes) -> None:
    body = b"\xff\x06\x00\x00sNaPpY" + chunks
    with pytest.raises(MalformedRequestError):
        decompress(body, "snappy", limit=1 << 20)


def test_a_snappy_chunk_that_promises_little_gives_no_more() -> None:
    """The promised size is a number in the body: a false one must not exceed the limit."""
    honest = bytes(cramjam.snappy.compress_raw(bytes(60_000)))
    lying = b"\x0a" + honest[3:]  # "ten bytes", and the sixty thousand all the same
    with pytest.raises(MalformedRequestError):
        decompress(lying, "snappy", limit=1_000)
    with pytest.raises(MalformedRequestError):
        decompress(b"\xff\x06\x00\x00sNaPpY" + _chunk(0, bytes(4) + lying), "snappy", limit=1_000)


def test_a_snappy_stream_of_a_million_chunks_is_not_walked_through() -> None:
    body = b"\xff\x06\x00\x00sNaPpY" + _chunk(0xFE, b"") * 1_000_000
    with pytest.raises(MalformedRequestError, match="chunks"):
        decompress(body, "snappy", limit=1 << 20)


def test_thousands_of_empty_lz4_frames_are_not_unpacked() -> None:
    with pytest.raises(MalformedRequestError, match="frames"):
        decompress(lz4.frame.compress(b"") * 5000, "lz4", limit=1 << 20)


def test_an_empty_body_is_empty_in_every_encoding_we_take() -> None:
    assert decompress(b"", "gzip", limit=10) == b""
    with pytest.raises(TurnedAwayError):
        decompress(b"", "br", limit=10)
