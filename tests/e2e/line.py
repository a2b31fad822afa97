"""The service as users run it: ``blamespan serve`` in its own process, with access to its API and metrics."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, cast
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

from prometheus_client.parser import text_string_to_metric_families

from analyzer.service.pages_process import MODULE
from collector_processor.otlp import Signal
from collector_processor.settings import FILE_ONLY
from tests.backends.forked import fork
from tests.backends.supervise import BackendError, Server, running, spawn, wait_until

GRACE_MS: Final = 300
ANY_PORT: Final = "127.0.0.1:0"
_OURS: Final = ("OTEL_", "BLAMESPAN_", "OPENAI_", "OPENINFERENCE_")
FIXED: Final = FILE_ONLY | {"receiving_bytes", "score_read_s", "settle_s", "shutdown_s", "spill_s"}
"""Settings without a variable, and constants, that tests replace (``fixed_values``)."""
_AT_START: Final = ("LD_", "OTEL_", "PYTHON")
"""What the variables begin with that the loader, Python and OpenTelemetry read before the service does."""
_TIMEOUT_S: Final = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A running service; URLs without TLS."""

    server: Server
    announced: dict[str, Any]

    @property
    def grpc(self) -> str:
        return f"http://{self.announced['grpc']}"

    @property
    def http(self) -> str:
        return f"http://{self.announced['http']}"

    @property
    def web(self) -> str:
        return f"http://{self.announced['web']}"

    def items(self, what: str, signal: Signal = Signal.TRACES) -> int:
        """Return the number of items ``received``, ``forwarded``, ``held`` …, according to its metrics."""
        metrics = self._samples()
        return int(metrics[f"blamespan_items_{what}", signal] or 0)

    def balance(self, signal: Signal = Signal.TRACES) -> dict[str, int]:
        """Return all nonzero counts of a signal at one moment."""
        prefix = "blamespan_items_"
        return {
            name.removeprefix(prefix): int(value)
            for (name, of), value in self._samples().items()
            if name.startswith(prefix) and of == signal and value
        }

    def await_items(self, what: str, count: int, signal: Signal = Signal.TRACES) -> None:
        """Wait until this many items were ``received``, ``forwarded``, ``held`` …"""
        wait_until(lambda: self.items(what, signal) == count, what=f"{count} {signal} {what}")

    def await_balance(self, signal: Signal = Signal.TRACES, **counts: int) -> None:
        """Wait until these are all nonzero counts of a signal."""
        with suppress(BackendError):  # what it is instead, the assertion shows
            wait_until(lambda: self.balance(signal) == counts, what="the balance")
        assert self.balance(signal) == counts

    def sample(self, name: str) -> float:
        """Return a metric without labels."""
        return self._samples()[name, ""]

    def labelled(self, name: str, label: str, **others: str) -> dict[str, float]:
        """Return a metric's values by one label, for the series with these other labels."""
        return {
            sample.labels[label]: sample.value
            for family in text_string_to_metric_families(self._get("/metrics") or "")
            for sample in family.samples
            if sample.name.removesuffix("_total") == name and others.items() <= sample.labels.items()
        }

    def verdicts(self, what: str, signal: Signal = Signal.TRACES) -> int:
        """Return how many outbox entries of a signal were ``sent`` or ``refused``."""
        return int(self._samples()[f"blamespan_verdicts_{what}", signal])

    def spent_usd(self) -> float:
        """Return the cost of models within the last hour, according to the metrics."""
        return self._samples()["blamespan_budget_spent_usd", ""]

    def run(self, run_id: str) -> dict[str, Any] | None:
        """Return the current verdict on a run, if any."""
        found = self._get(f"/api/runs/{run_id}")
        return None if found is None else cast("dict[str, Any]", json.loads(found))

    def runs(self) -> list[dict[str, Any]]:
        """Return the current verdicts, newest first."""
        return cast("list[dict[str, Any]]", json.loads(self._get("/api/runs") or "")["runs"])

    def verdict(self, run_id: str, *, version: int = 1) -> dict[str, Any]:
        """Wait for a final verdict of at least this version."""

        def decided() -> dict[str, Any] | None:
            found = self.run(run_id)
            return found if found and not found["provisional"] and found["version"] >= version else None

        return wait_until(decided, what=f"verdict {version} on {run_id}; the log ends:\n{self.server.tail()}")

    def said(self, message: str) -> list[dict[str, Any]]:
        """Return the log lines with this message."""
        return [line for line in _json_lines(self.server.log) if line.get("message") == message]

    def health(self) -> list[str]:
        """Return the lines of ``/healthz``, of the port of OTLP/HTTP if there is one."""
        return (self._get("/healthz", self.announced.get("http")) or "").splitlines()

    @contextmanager
    def probed(self) -> Iterator[list[float]]:
        """Ask the service for its health until the block ends; yield the seconds that each answer took."""
        waits: list[float] = []
        ended = threading.Event()

        def ask() -> None:
            while not ended.wait(0.02):
                began = time.monotonic()
                try:
                    self.health()
                finally:  # an answer that never came counts too
                    waits.append(time.monotonic() - began)

        probing = threading.Thread(target=ask)
        probing.start()
        try:
            yield waits
        finally:
            ended.set()
            probing.join()

    def cpu_s(self) -> float:
        """Return the CPU time of the service so far, without that of its worker processes."""
        told = Path(f"/proc/{self.server.process.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, told[11:13])) / os.sysconf("SC_CLK_TCK")

    def pages_pid(self) -> int:
        """Wait for the process that serves the pages, and return its id."""

        return wait_until(lambda: pages_of(self.server.process.pid), what="a process of the pages")

    def peak(self, pid: int | None = None) -> int:
        """Return the peak of the memory of the service, or of another process, in bytes."""
        status = Path(f"/proc/{pid or self.server.process.pid}/status").read_text()
        return 1024 * next(int(row.split()[1]) for row in status.splitlines() if row.startswith("VmHWM"))

    def terminate(self) -> int:
        """Send SIGTERM, as an orchestrator does, and return the exit code."""
        self.server.process.terminate()
        return self.server.process.wait(timeout=300)

    def _samples(self) -> dict[tuple[str, str], float]:
        families = text_string_to_metric_families(self._get("/metrics") or "")
        return {
            (sample.name.removesuffix("_total"), sample.labels.get("signal", "")): sample.value
            for family in families
            for sample in family.samples
        }

    def ask(
        self,
        path: str,
        verb: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> tuple[int, str]:
        """Return the status and the text with which the pages answer a request, or refuse it."""
        request = Request(self.web + path, method=verb, headers=dict(headers or {}), data=body)
        try:
            with build_opener(ProxyHandler({})).open(request, timeout=_TIMEOUT_S) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as refusal:
            with refusal:
                return refusal.code, refusal.read().decode()

    def _get(self, path: str, address: str | None = None) -> str | None:
        direct = build_opener(ProxyHandler({}))
        try:
            with direct.open(
                (f"http://{address}" if address else self.web) + path, timeout=_TIMEOUT_S
            ) as answer:
                return cast("bytes", answer.read()).decode()
        except HTTPError as refusal:
            with refusal:
                if refusal.code == 404:
                    return None
            raise


def pages_of(service: int) -> int | None:
    """Return the id of the process that serves the pages of a service; ``None`` if there is none."""
    for thread in Path(f"/proc/{service}/task").iterdir():
        for child in map(int, (thread / "children").read_text().split()):
            forked, words = (Path(f"/proc/{child}/{file}").read_text() for file in ("comm", "cmdline"))
            if MODULE.endswith(f".{forked.rstrip()}") or MODULE in words.split("\0"):
                return child
    return None


StartLine: TypeAlias = Callable[..., Line]


@contextmanager
def starting(folder: Path) -> Iterator[StartLine]:
    """Yield a function that starts services on one data directory, one at a time; they end with the block.

    Its keywords are settings (``write_back="hold"``); those in capitals are environment variables.
    ``half="collector"`` starts that half.
    """
    with ExitStack() as stack:
        count = 0

        def start(half: str = "all", **settings: str | float) -> Line:
            nonlocal count
            count += 1
            log = folder / f"serve-{count}.log"
            return stack.enter_context(_serving(half, folder / "data", log, settings))

        yield start


@contextmanager
def _serving(half: str, data: Path, log: Path, settings: dict[str, str | float]) -> Iterator[Line]:
    fixed = {name: settings.pop(name) for name in FIXED & settings.keys()}
    command = [sys.executable, "-m", "analyzer"]
    if fixed:
        command = [sys.executable, str(Path(__file__).with_name("fixed_values.py")), json.dumps(fixed)]
    command += ["serve", half, "--data-dir", str(data), "--format", "json"]

    def is_ready() -> bool:
        return any("grpc" in line for line in _json_lines(log))

    environ = environment(**settings)
    start = spawn if any(name.startswith(_AT_START) for name in settings) else fork
    with running("blamespan", command, log=log, is_ready=is_ready, environ=environ, start=start) as server:
        announced = next(line for line in _json_lines(log) if "grpc" in line)
        yield Line(server=server, announced=announced)


def environment(**settings: str | float) -> dict[str, str]:
    """Return our environment without a developer's own settings, and with these settings."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    chosen: dict[str, str | float] = {
        "otlp_grpc_listen": ANY_PORT,
        "otlp_http_listen": ANY_PORT,
        "web_listen": ANY_PORT,
        "root_grace": GRACE_MS,
        **settings,
    }
    return own | {
        name if name.isupper() else f"BLAMESPAN_{name.upper()}": str(value) for name, value in chosen.items()
    }


def _json_lines(log: Path) -> list[dict[str, Any]]:
    """Return the lines that are complete JSON objects; the last one may still be being written."""
    lines = log.read_text(errors="replace").split("\n")[:-1] if log.exists() else []
    return [json.loads(line) for line in lines if line.startswith("{")]
