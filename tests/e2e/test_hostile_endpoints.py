"""``blamespan doctor`` beside neighbours that answer without end, with a bomb, slowly or with nonsense."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import repeat
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.line import environment

_MIB: Final = 1 << 20
_OK: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
LEAST_MEMORY: Final = 4 << 30
MOST_TOLD: Final = 20_000


def bomb() -> Iterator[bytes]:
    """Yield gzip that unpacks to 10 GiB."""
    yield _OK + b"Content-Encoding: gzip\r\nConnection: close\r\n\r\n"
    packer = zlib.compressobj(9, wbits=31)
    for _ in range(10_240):
        yield packer.compress(bytes(_MIB))


def endless_body() -> Iterator[bytes]:
    yield _OK + b"Connection: close\r\n\r\n"
    yield from repeat(bytes(1 << 16))


def endless_headers() -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\n"
    yield from repeat(b"X-More: " + b"x" * 4_000 + b"\r\n")


def slowly() -> Iterator[bytes | None]:
    """Yield a byte at a time; ``None`` is a pause."""
    for byte in _OK + b"Content-Length: 1000000\r\n\r\n" + b" " * 1_000_000:
        yield bytes((byte,))
        yield None


ANSWERS: Final[Mapping[str, Callable[[], Iterator[bytes | None]]]] = {
    "an endless body": endless_body,
    "endless headers": endless_headers,
    "a bomb": bomb,
    "slowly": slowly,
    "silence": lambda: repeat(None),
    "no HTTP": lambda: iter((b"\x00\xff\x1b[2J" * 10_000,)),
    "a reason that erases the screen": lambda: iter(
        (b"HTTP/1.1 500 \x1b[2J\x07\r\nContent-Length: 0\r\n\r\n",)
    ),
    "a redirect to another host": lambda: iter(
        (b"HTTP/1.1 307 Go\r\nLocation: http://192.0.2.1/\r\nContent-Length: 0\r\n\r\n",)
    ),
    "nested JSON": lambda: iter((_OK + b"Content-Length: 100000\r\n\r\n" + b"[" * 100_000,)),
    "wrong JSON": lambda: iter((_OK + b"Date: never\r\nContent-Length: 10\r\n\r\n" + b'{"ok":[{}}',)),
}

READY: Final = {"an endless body", "a bomb", "nested JSON", "wrong JSON"}
"""Answers with status 200: ``doctor`` asks for no more from a backend over HTTP."""


@contextmanager
def answering(answer: Callable[[], Iterator[bytes | None]]) -> Iterator[str]:
    """Answer every connection so, whatever it asks; yields the URL."""
    over = threading.Event()

    def one(client: socket.socket) -> None:
        with client, suppress(OSError):
            client.recv(1 << 16)
            for part in answer():
                if over.is_set():
                    return
                if part is None:
                    over.wait(0.2)
                else:
                    client.sendall(part)

    def serve() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=one, args=(server.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            over.set()
            server.shutdown(socket.SHUT_RDWR)


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (LEAST_MEMORY, LEAST_MEMORY))


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
@pytest.mark.parametrize("name", ANSWERS)
def test_doctor_ends_and_says_what_is_wrong(name: str, protocol: str, tmp_path: Path) -> None:
    with answering(ANSWERS[name]) as url:
        settings = {
            "forward_endpoint": url,
            "forward_protocol": protocol,
            "notify_url": url,
            "data_dir": str(tmp_path / "data"),
            "web_listen": url.removeprefix("http://"),
        }
        done = subprocess.run(
            [sys.executable, "-m", "analyzer", "doctor", "--format", "json"],
            env=environment(**settings),
            cwd=tmp_path,
            capture_output=True,
            check=False,
            preexec_fn=limited,
        )
    said = (done.stdout + done.stderr).decode()
    assert "Traceback" not in said, said[-3_000:]
    assert len(said) < MOST_TOLD
    assert not {"\x1b", "\x07", "\0"} & set(said)
    found = {one["check"]: one["status"] for one in map(json.loads, done.stdout.decode().splitlines())}
    assert done.returncode in {0, 1}
    assert {"notifier webhook", "backend traces"} <= found.keys()
    assert found["backend traces"] != "ok" or (name in READY and protocol != "grpc")
