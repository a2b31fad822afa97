"""A service with a probe on its event loop, and the longest stalls of that loop during named activities.

A single callback may use 50 ms of CPU time in the loop's thread, however busy the machine is. A delay of the
loop counts with the CPU time that the process used during it, at most its length: a busy machine delays a
loop that does nothing. This bound is looser, because our own threads compete with the loop for the
interpreter and the cores.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.request import HTTPCookieProcessor, Request, build_opener, urlopen

from semconv.model import Span, SpanStatus
from tests.backends.supervise import running, wait_until
from tests.big_traces import SHAPES
from tests.e2e.line import Line, _json_lines, environment
from tests.factories import agent, chat, said

LONGEST_S: Final = 0.05
"""CPU seconds of a single callback."""
ATTEMPTS: Final = 3
LATEST_S: Final = 0.25
"""Seconds by which the loop may be late while this process computes, on a busy machine."""
LONG_S: Final = 240.0
LEAST_S: Final = 0.02
SPANS: Final = {"history": 100, "flat_history": 100}
MANY: Final = 2_000
"""Spans of a run, but for the shapes above."""
PROBE: Final = Path(__file__).with_name("stall_probe.py")


@dataclass(frozen=True, slots=True)
class Stall:
    """The longest stalls of the loop by each measure, in seconds."""

    process_s: float = 0.0
    """CPU time used by the process meanwhile."""
    loop_s: float = 0.0
    """CPU time used by the loop's own thread meanwhile."""
    late_s: float = 0.0
    """Wall-clock time."""
    callback_s: float = 0.0
    """CPU time of a single callback in the loop's thread."""
    callback: str = "-"
    """The callback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A service with a probe."""

    line: Line
    noted: Path

    def longest_s(self, since: float) -> Stall:
        """Return the longest stalls since a time."""
        rows = [row.split() for row in self.noted.read_text().split("\n")[:-1]]
        found = [(tuple(map(float, row[1:5])), row[5]) for row in rows if float(row[0]) >= since]
        callback_s, callback = max(((row[3], name) for row, name in found), default=(0.0, "-"))
        return Stall(
            process_s=max((min(late, used) for (late, used, _, _), _ in found), default=0.0),
            loop_s=max((min(late, own) for (late, _, own, _), _ in found), default=0.0),
            late_s=max((late for (late, _, _, _), _ in found), default=0.0),
            callback_s=callback_s,
            callback=callback,
        )

    def is_quiet(self) -> bool:
        """Return whether the loop was on time for two seconds."""
        since = time.monotonic()
        time.sleep(2)
        return self.longest_s(since).process_s < LEAST_S

    def verdict(self, trace: int) -> dict[str, Any]:
        """Wait for the verdict on a trace."""
        return wait_until(lambda: self.line.run(f"{trace:032x}"), what="a verdict", timeout_s=LONG_S)


@contextmanager
def watched(folder: Path, part: str = "all", **settings: str | float) -> Iterator[Watched]:
    """Start a service, or a part of one."""
    words = ["serve", part, "--format", "json"]
    words += ["--data-dir", str(folder / "data")] if part == "all" else []
    log = folder / f"log-{part}"
    with probed(log, words, lambda: announced_in(log, "web"), **settings) as one:
        yield one


@contextmanager
def probed(
    log: Path, words: Sequence[str], announced: Callable[[], dict[str, Any] | None], **settings: str | float
) -> Iterator[Watched]:
    """Start a command of ``blamespan`` with a probe; ``announced`` returns its addresses once it serves."""
    noted = log.with_name(f"{log.name}-stalls")
    noted.touch()
    command = [sys.executable, str(PROBE), str(noted), *words]

    def is_ready() -> bool:
        return announced() is not None

    with running("blamespan", command, log=log, is_ready=is_ready, environ=environment(**settings)) as server:
        one = Watched(line=Line(server=server, announced=announced() or {}), noted=noted)
        wait_until(one.is_quiet, what="the end of all imports", timeout_s=LONG_S)
        yield one


def announced_in(log: Path, name: str) -> dict[str, Any] | None:
    return next((line for line in _json_lines(log) if name in line), None)


class Found(dict[str, Stall]):
    """The longest stalls by activity."""

    @contextmanager
    def during(self, one: Watched, name: str, rest_s: float = 0.5) -> Iterator[None]:
        """Record the longest stall of a block and of the time after it."""
        since = time.monotonic()
        yield
        time.sleep(rest_s)
        self[name] = one.longest_s(since)
        print(_row(name, self[name]))

    def too_long(self) -> dict[str, Stall]:
        """Return the activities with a callback beyond its limit, or during which the loop was too late."""
        return {
            name: stall
            for name, stall in self.items()
            if stall.callback_s > LONGEST_S or stall.process_s > LATEST_S
        }


def require(measure: Callable[[Path], Found], folder: Path) -> None:
    """Assert that nothing stalls the loop for too long in each of three measurements.

    A stall of ours comes back each time; CPU time that other work on the machine stretches does not.
    """
    late: dict[str, Stall] = {}
    for attempt in range(ATTEMPTS):
        own = folder / str(attempt)
        own.mkdir()
        again = measure(own).too_long()
        late = {name: stall for name, stall in again.items() if not attempt or name in late}
        if not late:
            return
    raise AssertionError(late)


def _row(name: str, stall: Stall) -> str:
    used = f"{stall.process_s * 1000:7.1f} ms of ours, {stall.loop_s * 1000:7.1f} ms of the loop's thread"
    longest = f"{stall.callback_s * 1000:7.1f} ms in one callback"
    return f"{name:32} {longest}, {used}, {stall.late_s * 1000:7.1f} ms by the clock"


def get(url: str) -> None:
    with urlopen(url, timeout=300) as answer:
        answer.read()


def post(url: str, document: object) -> None:
    body = json.dumps(document).encode()
    headers = {"Content-Type": "application/json", "Origin": url.split("/api", maxsplit=1)[0]}
    request = Request(url, data=body, headers=headers)
    with urlopen(request, timeout=300) as answer:
        answer.read()


def upload(web: str, body: bytes) -> str:
    """Have a file analysed on the page; return the final state."""
    fields = ((b"method", b"", b"auto"), (b"failed", b"", b"yes"), (b"file", b'; filename="f"', body))
    form = b"".join(
        b'--x\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n' % field for field in fields
    )
    headers = {"Content-Type": "multipart/form-data; boundary=x", "Origin": web}
    opener = build_opener(HTTPCookieProcessor())
    with opener.open(Request(f"{web}/try", data=form + b"--x--\r\n", headers=headers), timeout=300) as page:
        job = page.geturl()

    def ended() -> str | None:
        with opener.open(f"{job}/state", timeout=300) as answer:
            told = json.load(answer)
        return str(told["state"]) if told["over"] else None

    return wait_until(ended, what="the upload's analysis", timeout_s=LONG_S)


def every_short_word(trace: int) -> list[Span]:
    """Make a failed run of 25 steps and 6 MiB that contains every marker of five hexadecimal digits."""
    words = "".join(f"#{number:05x}" for number in range(1 << 20))
    share = -(-len(words) // 25)
    parts = [words[at : at + share] for at in range(0, len(words), share)]
    spans = [replace(agent(1, "solo", parent=None, end=1_000), status=SpanStatus.ERROR)]
    spans += [
        chat(2 + n, parent=1, start=10 * n + 1, end=10 * n + 5, heard=[said("user", "go on")], answer=part)
        for n, part in enumerate(parts)
    ]
    return [in_trace(span, trace) for span in spans]


def in_trace(span: Span, trace: int) -> Span:
    return replace(span, trace_id=f"{trace:032x}")  # type: ignore[arg-type]


def failed(shape: str, trace: int) -> list[Span]:
    """Return the spans of a failed run."""
    first, *others = SHAPES[shape](SPANS.get(shape, MANY))
    return [in_trace(span, trace) for span in (replace(first, status=SpanStatus.ERROR), *others)]
