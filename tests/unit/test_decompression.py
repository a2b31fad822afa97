from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Callable
from contextlib import suppress

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from collector_processor.otlp import MalformedRequestError
from collector_processor.receivers.admission import TurnedAwayError
from collector_processor.receivers.decompression import decompress

Compress = Callable[[bytes], bytes]


PACKED = ("gzip", "zstd")

ENCODERS: dict[str, Compress] = {
    "gzip": gzip.compress,
    "zstd": zstandard.compress,
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


@pytest.mark.parametrize("encoding", PACKED)
@given(data=st.data())
def test_a_body_cut_short_is_never_taken_for_whole(encoding: str, data: st.DataObject) -> None:
    packed = ENCODERS[encoding](b"one span and another span " * 20)
    kept = data.draw(st.integers(1, len(packed) - 1))
    with pytest.raises(MalformedRequestError):
        decompress(packed[:kept], encoding, limit=1 << 20)


def _streamed_zstd(body: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_content_size=False).compress(body)


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [
        pytest.param("gzip", gzip.compress, id="gzip"),
        pytest.param("zstd", zstandard.compress, id="zstd that says its size"),
        pytest.param("zstd", _streamed_zstd, id="zstd that does not"),
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


@pytest.mark.parametrize("encoding", ["br", "deflate", "zlib", "snappy", "lz4", "gzip, gzip", "gzip;q=1"])
def test_other_encodings_are_named_and_refused(encoding: str) -> None:
    with pytest.raises(TurnedAwayError, match=r"expected one of gzip, identity, x-gzip, zstd$") as raised:
        decompress(b"body", encoding, limit=1000)
    assert raised.value.refusal.http_status == 415


def test_an_empty_body_is_empty_in_every_encoding_we_take() -> None:
    assert decompress(b"", "gzip", limit=10) == b""
    with pytest.raises(TurnedAwayError):
        decompress(b"", "br", limit=10)
