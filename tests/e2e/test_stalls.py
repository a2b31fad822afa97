"""No request, run or reply blocks the event loop, measured with the worst inputs and a probe on the loop.

``pytest -s`` prints the longest stalls. A stall counts with the CPU time that the process used during it, at
most its length: on a busy machine a loop is late without doing anything. While our own threads work, the CPU
time of the loop's thread counts.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.request import HTTPCookieProcessor, Request, build_opener, urlopen

import pytest

from analyzer.executor.codec import PATH, write_run
from benchmarks.hostile.attack_requests import agents, star
from benchmarks.hostile.big_trace import SHAPES
from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.repair import repair
from collector_processor.trajectory import order
from semconv.model import Span, SpanStatus, Trace
from tests.backends.supervise import running, wait_until
from tests.e2e.line import Line, _json_lines, environment
from tests.e2e.model_server import Scripted, serve
from tests.e2e.test_line_model import in_background, settings_for
from tests.e2e.traffic import Way, send
from tests.factories import agent, chat, said

pytestmark = pytest.mark.timeout(2_700)
LONGEST_S: Final = 0.05
ATTEMPTS: Final = 3
BESIDE_THREADS_S: Final = 0.3
"""The same limit with threads of ours, which compete with the loop for cores on a busy machine."""
WAYS: Final[tuple[Way, ...]] = ("grpc", "http", "json")
SPANS: Final = {"history": 100, "flat_history": 100}
READS: Final = (
    *("/runs", "/runs?part=rows", "/api/runs?limit=500", "/api/runs?agent=solo", "/api/issues", "/issues"),
    *("/health", "/metrics", "/api/openapi.json", "/try"),
)
READS_OF_A_RUN: Final = (
    *("/api/runs/{:032x}", "/runs/{:032x}", "/runs/{:032x}/report.html", "/runs/{:032x}/run.json"),
)
LONG_S: Final = 240.0
LEAST_S: Final = 0.02
REPLY: Final = json.dumps({"reason": "so", "step": 0, "evidence": [{"step": 0, "quote": "#00000"}]})


@dataclass(frozen=True, slots=True)
class Stall:
    """The longest stalls of the loop by each measure, in seconds."""

    process_s: float = 0.0
    """CPU time used by the process meanwhile."""
    loop_s: float = 0.0
    """CPU time used by the loop's own thread meanwhile."""
    late_s: float = 0.0
    """Wall-clock time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A service with a probe."""

    line: Line
    noted: Path

    def longest_s(self, since: float) -> Stall:
        """Return the longest stalls since a time."""
        rows = [tuple(map(float, row.split())) for row in self.noted.read_text().split("\n")[:-1]]
        found = [(min(late, used), min(late, own), late) for at, late, used, own in rows if at >= since]
        return Stall(*(max(column, default=0.0) for column in zip(*found, strict=True))) if found else Stall()

    def is_quiet(self) -> bool:
        """Return whether the loop was on time for two seconds."""
        since = time.monotonic()
        time.sleep(2)
        return self.longest_s(since).process_s < LEAST_S

    def verdict(self, trace: int) -> dict[str, Any]:
        """Wait for the verdict on a trace."""
        return wait_until(lambda: self.line.run(f"{trace:032x}"), what="a verdict", timeout_s=LONG_S)


@contextmanager
def watched(folder: Path, command: str = "serve", **settings: str | float) -> Iterator[Watched]:
    noted, log = folder / f"stalls-{command}", folder / f"log-{command}"
    noted.touch()
    probe = str(Path(__file__).with_name("stall_probe.py"))
    words = [sys.executable, probe, str(noted), command, "--format", "json"]
    words += ["--data-dir", str(folder / "data")] if command == "serve" else []

    def is_ready() -> bool:
        return any("web" in line for line in _json_lines(log))

    environ = environment(**settings)
    with running("blamespan", words, log=log, is_ready=is_ready, environ=environ) as server:
        announced = next(line for line in _json_lines(log) if "web" in line)
        one = Watched(line=Line(server=server, announced=announced), noted=noted)
        wait_until(one.is_quiet, what="the end of all imports", timeout_s=LONG_S)
        yield one


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
        """Return the stalls beyond a limit."""
        return {
            name: stall
            for name, stall in self.items()
            if stall.loop_s > LONGEST_S or stall.process_s > BESIDE_THREADS_S
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
    return [_in_trace(span, trace) for span in spans]


def _in_trace(span: Span, trace: int) -> Span:
    return replace(span, trace_id=f"{trace:032x}")  # type: ignore[arg-type]


def test_nothing_stalls_the_loop(tmp_path: Path) -> None:
    require(_with_a_model, tmp_path)


def _with_a_model(folder: Path) -> Found:
    found = Found()
    model = in_background(serve(Scripted(text=REPLY)))
    with model as server, watched(folder, **settings_for(server)) as one:
        with found.during(one, "control"):
            time.sleep(3)
        for number, (name, shape) in enumerate(SHAPES.items(), start=100):
            way = WAYS[number % len(WAYS)]
            spans = [_in_trace(span, number) for span in shape(SPANS.get(name, 2_000))]
            with found.during(one, f"{name}, {way}"):
                send(one.line, encode(spans), way=way)
                one.verdict(number)
        with found.during(one, "every short word, to the model"):
            send(one.line, encode(every_short_word(7)), way="http")
            verdict = one.verdict(7)
        with found.during(one, "its label"):
            _post(f"{one.line.web}/api/runs/{7:032x}/label", {"failed": False})
            time.sleep(1)
        with found.during(one, "its bytes, uploaded"):
            assert _upload(one.line.web, encode(every_short_word(8))) == "done"
        for path in (*READS, *(path.format(number) for number in (7, 100, 105) for path in READS_OF_A_RUN)):
            with found.during(one, path, rest_s=0.05):
                _get(one.line.web + path)
        assert len(server.received) >= 2
    assert (verdict["method"], verdict["fallback"]) == ("judge", None)
    return found


def test_traces_by_the_thousand_stall_no_loop(tmp_path: Path) -> None:
    require(_with_many_traces, tmp_path)


def _with_many_traces(folder: Path) -> Found:
    found = Found()
    with watched(folder, write_back="hold", forward_endpoint="http://127.0.0.1:9") as one:
        send(one.line, agents(1), way="http")
        one.verdict(1)
        for first, way in zip((10_000, 20_000, 30_000), WAYS, strict=True):
            with found.during(one, f"held, {way}"):
                send(one.line, agents(2_000, first), way=way)
                one.verdict(first)
        with found.during(one, "linked"):
            send(one.line, star(2_000), way="http")
    return found


def test_a_run_stalls_no_analyzer(tmp_path: Path) -> None:
    require(_of_an_analyzer, tmp_path)


def _of_an_analyzer(folder: Path) -> Found:
    found = Found()
    with watched(folder, "analyzer") as one:
        for name, shape in SHAPES.items():
            spans = tuple(shape(SPANS.get(name, 2_000)))
            failed = replace(order(repair(Trace(spans=spans))), root_status=SpanStatus.ERROR)
            with found.during(one, name):
                asked = Request(one.line.web + PATH, write_run(failed), {"Content-Type": "application/json"})
                with urlopen(asked, timeout=LONG_S) as answer:
                    assert b"method" in answer.read()
    return found


def _row(name: str, stall: Stall) -> str:
    used = f"{stall.process_s * 1000:7.1f} ms of ours, {stall.loop_s * 1000:7.1f} ms of the loop's thread"
    return f"{name:32} {used}, {stall.late_s * 1000:7.1f} ms by the clock"


def _get(url: str) -> None:
    with urlopen(url, timeout=300) as answer:
        answer.read()


def _post(url: str, document: object) -> None:
    body = json.dumps(document).encode()
    headers = {"Content-Type": "application/json", "Origin": url.split("/api", maxsplit=1)[0]}
    request = Request(url, data=body, headers=headers)
    with urlopen(request, timeout=300) as answer:
        answer.read()


def _upload(web: str, body: bytes) -> str:
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
