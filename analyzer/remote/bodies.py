"""Bodies read up to a limit, from either end of a connection."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import StreamReader


class TooLargeError(Exception):
    """A body is larger than is taken."""


async def read_bounded(
    content: StreamReader, limit: int, hold: Callable[[int], None] = lambda _size: None
) -> bytes:
    """Return a whole body.

    Args:
        content: where it comes from.
        limit: bytes.
        hold: told how many bytes there are by now; may refuse by raising.

    Raises:
        TooLargeError: there are more bytes than ``limit``.
    """
    pieces: list[bytes] = []
    size = 0
    while piece := await content.readany():
        size += len(piece)
        if size > limit:
            raise TooLargeError
        hold(size)
        pieces.append(piece)
    return b"".join(pieces)
