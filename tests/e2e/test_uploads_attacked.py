"""Uploads that become gigabytes, or endless, are refused by a process of their own; the service serves on."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final
from urllib.request import ProxyHandler, build_opener

import pytest

from benchmarks.hostile.attack_requests import invalid
from collector_processor.rebuild.encode import encode
from tests.backends.supervise import wait_until
from tests.big_traces import SHAPES
from tests.e2e.line import Line, starting
from tests.e2e.traffic import play_demo
from tests.factories import agent, chat, said, span, workflow

_MIB: Final = 1 << 20
MOST_GROWTH: Final = 300 * _MIB
"""Growth of the serving process; one such upload took 1.3 to 2.5 GiB of it."""
LONGEST_S: Final = 3.0
"""Longest answer of ``/healthz`` on a busy machine."""


def lists(size: int) -> bytes:
    return b"[" + b"[]," * (size // 3) + b"[]]"


def named(name: str, steps: int) -> bytes:
    """Return a run in which one agent takes all steps: each has the agent's name, which is sent once."""
    calls = (chat(number, parent=2, heard=[said("user", "q")], answer="ok") for number in range(3, 3 + steps))
    return encode([workflow(1, task="t", answer="a"), agent(2, name, parent=1), *calls])


HOSTILE: Final[Mapping[str, Callable[[], bytes]]] = {
    "16 million lists": lambda: lists(47 * _MIB),
    "16 million lines": lambda: b"{}" + b"\n1" * (16 * _MIB),
    "lines of lists": lambda: b"[]" + b"\n[]" * 1_200_000,
    "empty resources": lambda: b'{"resourceSpans":[' + b"{}," * 2_000_000 + b"{}]}",
    "empty spans": lambda: b'{"resourceSpans":[{"scopeSpans":[{"spans":[' + b"{}," * 1_000_000 + b"{}]}]}]}",
    "spans of two bytes": lambda: invalid(16),
    "nesting": lambda: b"[" * 200_000 + b"]" * 200_000,
    "messages": lambda: b'{"history":[' + b'{"role":"a","content":""},' * 1_000_000 + b"{}]}",
    "one name for 2,000 steps": lambda: named("n" * 150_000, 2_000),
    "YAML": lambda: b"a: 1\n" + b"- []\n" * 3_000_000,
}


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    with starting(tmp_path_factory.mktemp("uploads")) as start:
        yield start(method="signals")


def analysed(line: Line, body: bytes) -> tuple[int, str]:
    """Upload a trace; return the status of the answer, and its text."""
    return line.ask("/api/analyse?wait_s=20", "POST", {"Content-Type": "application/octet-stream"}, body)


@pytest.mark.parametrize("name", HOSTILE)
def test_an_upload_of_too_many_values_is_refused_and_delays_no_other(line: Line, name: str) -> None:
    body = gzip.compress(HOSTILE[name](), 6)
    pages = line.pages_pid()
    before = line.peak() + line.peak(pages)
    with line.probed() as waits:
        status, said = analysed(line, body)
    grown = line.peak() + line.peak(pages) - before
    print(f"{name}: {len(body)} bytes, {grown >> 20} MiB, {max(waits):.2f} s, {status} {said[:90]!r}")
    assert status == 422 or json.loads(said)["state"] == "reading", said[:300]
    assert "log says why" not in said
    assert grown < MOST_GROWTH
    assert max(waits) < LONGEST_S


def test_usual_uploads_of_any_size_are_analysed(line: Line) -> None:
    """Also behind a hostile one, which is read for half a minute at most."""
    small = play_demo().body
    large = encode(SHAPES["flat_history"](60))
    for body in (small, large, gzip.compress(large), encode([span(1)]) + small):
        status, said = analysed(line, body)
        assert status in {200, 202}, said[:300]
        job = json.loads(said)["id"]
        found = wait_until(partial(ended, line, job), what="the end of an analysis")
        assert (found["state"], found["runs"]) == ("done", 1), found["error"]


def ended(line: Line, job: str) -> dict[str, Any] | None:
    with build_opener(ProxyHandler({})).open(f"{line.web}/api/analyse/{job}", timeout=300) as answer:
        found: dict[str, Any] = json.loads(answer.read())
        return found if found["over"] else None
