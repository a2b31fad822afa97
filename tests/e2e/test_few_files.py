"""For a while no file can be opened, because connections have used up the descriptors."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from collector_processor.otlp import Signal, http_path
from collector_processor.rebuild.encode import encode
from tests.backends.supervise import wait_until
from tests.e2e.line import Line, StartLine
from tests.e2e.traffic import play_demo
from tests.factories import span

LONG_S: Final = 240.0
OK: Final = 200
SPARE: Final = 8
"""Descriptors that the service may still open."""


def descriptors(line: Line) -> set[int]:
    """Return the service's open descriptors."""
    return {int(one.name) for one in Path(f"/proc/{line.server.process.pid}/fd").iterdir()}


@contextmanager
def used_up(line: Line) -> Iterator[None]:
    """Let connections use up the service's descriptors.

    The service's loop closes the connections it has no descriptors for (libuv's ``uv__emfile_trick``), so a
    descriptor that a thread gives back afterwards needs a new connection: one is made at each look.
    """
    pid, most = line.server.process.pid, max(descriptors(line)) + 1 + SPARE
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, hard))
    where = urlsplit(line.http)
    with ExitStack() as stack:

        def is_full() -> bool:
            stack.enter_context(socket.create_connection((where.hostname, where.port), timeout=LONG_S))
            return len(descriptors(line)) >= most

        wait_until(is_full, what="a service out of descriptors", timeout_s=LONG_S)
        yield


def post(door: HTTPConnection, body: bytes) -> int:
    door.request("POST", http_path(Signal.TRACES), body, {"Content-Type": "application/x-protobuf"})
    answer = door.getresponse()
    answer.read()
    return answer.status


def test_verdicts_wait_for_descriptors_and_are_written_when_there_are_some(start_line: StartLine) -> None:
    line = start_line(method="signals")
    first, second = play_demo(), play_demo()
    with closing(HTTPConnection(urlsplit(line.http).netloc, timeout=LONG_S)) as door:
        assert post(door, encode([span(1)])) == OK  # the segment is there from now on, and nobody has read it
        with used_up(line):
            assert post(door, first.body) == OK
            wait_until(
                lambda: bool(line.said("waiting for the disk")), what="a verdict that waits", timeout_s=LONG_S
            )
        assert post(door, second.body) == OK
    for played in (first, second):
        assert line.verdict(played.trace_id)["status"] == "attributed"
    assert line.balance() == {"received": 35, "acknowledged": 35, "kept": 35}
    assert not line.said("slow lane cannot record a verdict")
