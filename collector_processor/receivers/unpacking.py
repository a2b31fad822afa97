"""Unpacking of HTTP request bodies: decompression and conversion from JSON, without delaying other requests.

Small bodies are unpacked on the event loop, because a thread switch would take longer. Larger ones are
unpacked in a thread, and JSON with very many values in a process of its own (see ``otlp.json_child``). A few
of these run at once, one for each client; threads do not wait for processes, which may take half a minute.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Final

from collector_processor.core.fair import Turns
from collector_processor.otlp import CollectorError, MalformedRequestError, Signal
from collector_processor.otlp.answers import RpcCode
from collector_processor.otlp.json_child import MALFORMED, MEMORY_BYTES, TOO_MUCH
from collector_processor.otlp.otlp_json import to_protobuf
from collector_processor.receivers.admission import Refusal, TurnedAwayError
from collector_processor.receivers.decompression import decompress

_INLINE_BYTES: Final = 64 << 10
"""Compressed bodies beyond this size are never unpacked on the event loop."""
_INLINE_OUTPUT_BYTES: Final = 256 << 10
"""The same bound for decompressed bodies: a few kilobytes may become 20 MiB."""
_INLINE_JSON_BYTES: Final = 4 << 10
"""The same bound for JSON, which takes up to 4 ms a kilobyte."""
_MOST_VALUES: Final = 100_000
"""JSON with more values would hold the interpreter's lock for more than 30 ms; it gets its own process."""
_MOST_BYTES: Final = 2 << 20
"""The same for JSON of more bytes: at that size, ordinary requests have as many values."""
_AT_ONCE: Final = 2
"""Concurrent conversions; each may take several times its size in memory."""
_CHILD_S: Final = 30.0
"""Time limit of a process that converts JSON, in seconds."""
_TOO_LARGE: Final = 413


class Unpacking:
    """Unpacks bodies; used on one event loop."""

    def __init__(self, max_bytes: int) -> None:
        """Create it; bodies may be unpacked to ``max_bytes`` at most."""
        self._max_bytes: Final = max_bytes
        self._turns: Final = Turns(_AT_ONCE)
        self._processes: Final = Turns(_AT_ONCE)

    async def decompress(self, body: bytes, encoding: str, client: str) -> bytes:
        """Return the decompressed body.

        Raises:
            CollectorError: as ``decompression.decompress``.
        """
        if len(body) <= _INLINE_BYTES:
            try:
                return decompress(body, encoding, min(self._max_bytes, _INLINE_OUTPUT_BYTES))
            except TurnedAwayError as error:
                if error.refusal.http_status != _TOO_LARGE:
                    raise
        return await self._on_thread(client, lambda: decompress(body, encoding, self._max_bytes))

    async def convert(self, signal: Signal, body: bytes, client: str) -> bytes:
        """Return a JSON body as protobuf.

        Raises:
            CollectorError: it is not such a request, or takes too long to read.
        """
        if len(body) <= _INLINE_JSON_BYTES:
            return to_protobuf(signal, body)
        if len(body) <= _MOST_BYTES and body.count(b",") + body.count(b"[") <= _MOST_VALUES:
            return await self._on_thread(client, lambda: to_protobuf(signal, body))
        async with self._processes.turn(client):
            return await _convert_in_process(signal, body)

    async def _on_thread(self, client: str, work: Callable[[], bytes]) -> bytes:
        async with self._turns.turn(client):
            return await asyncio.get_running_loop().run_in_executor(None, work)


async def _convert_in_process(signal: Signal, body: bytes) -> bytes:
    process = await asyncio.create_subprocess_exec(
        # Isolated, with an empty environment: the process needs no key and no setting.
        *(sys.executable, "-I", "-m", "collector_processor.otlp.json_child", signal.value),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={},
    )
    try:
        async with asyncio.timeout(_CHILD_S):
            converted, said = await process.communicate(body)
    except TimeoutError:
        raise _too_slow() from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode == MALFORMED:
        raise MalformedRequestError(said.decode("utf-8", "replace"))
    if process.returncode == TOO_MUCH:
        raise MalformedRequestError(f"the JSON takes more than {MEMORY_BYTES >> 20} MiB of memory to read")
    if process.returncode:
        raise CollectorError(f"the conversion of a JSON request ended with status {process.returncode}")
    return converted


def _too_slow() -> TurnedAwayError:
    reason = f"the JSON takes more than {_CHILD_S:g} s to read: send smaller requests, or protobuf"
    return TurnedAwayError(Refusal(code=RpcCode.DEADLINE_EXCEEDED, http_status=408, reason=reason))
