"""The page of a program's runs (``blamespan run --open``): a service until Ctrl-C. Not pure."""

from __future__ import annotations

import asyncio
import logging
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote
from urllib.request import ProxyHandler, Request, build_opener

from analyzer.analyses.analyst import RunAnalyst
from analyzer.cli.output import CommandFailed, complain
from analyzer.cli.run_report import Shown, joined_logs
from analyzer.service.all_in_one import Running, running_service
from collector_processor.core.analysis import NOTHING_EARNED, Analysis, Earned
from collector_processor.otlp import Signal, http_path
from collector_processor.rebuild.encode import encode
from collector_processor.settings import load_settings
from semconv.model import TraceId, Trajectory

_FREE_PORT: Final = "127.0.0.1:0"
_GRACE_MS: Final = 300
_SHUTDOWN_S: Final = 1.0
_PATIENCE_S: Final = 30.0
_PAUSE_S: Final = 0.05
_MOST_SPANS: Final = 2_000
"""Spans of one request; a service takes 20 MiB."""


class _KnownAnalyses:
    """An analyst that repeats the analyses of known runs: no model is asked twice, and no claim is lost."""

    def __init__(self, analyst: RunAnalyst, shown: Sequence[Shown]) -> None:
        self._analyst: Final = analyst
        self._known: Final[Mapping[TraceId | None, Analysis]] = {
            one.trajectory.root_trace_id: one.analysis for one in shown
        }

    async def analyse(self, trajectory: Trajectory, earned: Earned = NOTHING_EARNED) -> Analysis:
        """Return the known analysis, or make one."""
        return self._known.get(trajectory.root_trace_id) or await self._analyst.analyse(trajectory, earned)

    def glance(self, trajectory: Trajectory) -> Analysis:
        """Analyse a run that is still in progress."""
        return self._analyst.glance(trajectory)


async def show_page(shown: Sequence[Shown], analyst: RunAnalyst) -> None:
    """Serve the pages of runs, print their address, and return at Ctrl-C or SIGTERM. Nothing is kept.

    Args:
        shown: the runs; the address is that of the last one.
        analyst: for what is sent to the service besides.

    Raises:
        CommandFailed: the service does not show them.
    """
    logging.getLogger().addHandler(logging.NullHandler())
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stopped.set)
    with tempfile.TemporaryDirectory(prefix="blamespan-run-") as folder:
        settings = load_settings(
            {},
            data_dir=Path(folder),
            otlp_grpc_listen=_FREE_PORT,
            otlp_http_listen=_FREE_PORT,
            web_listen=_FREE_PORT,
            root_grace=_GRACE_MS,
            shutdown_s=_SHUTDOWN_S,
        )
        async with running_service(settings, _KnownAnalyses(analyst, shown)) as running:
            await asyncio.to_thread(_send, f"http://{running.http}", shown)
            run_id = shown[-1].trajectory.run_id
            await _shown(running, run_id, stopped)
            complain(f"page: http://{running.web}/runs/{quote(run_id, safe='')} (Ctrl-C ends)")
            await stopped.wait()


def _send(url: str, shown: Sequence[Shown]) -> None:
    opener = build_opener(ProxyHandler({}))
    for signal_, body in _bodies(shown):
        request = Request(  # noqa: S310 - our own receiver
            url + http_path(signal_), data=body, headers={"Content-Type": "application/x-protobuf"}
        )
        with opener.open(request, timeout=_PATIENCE_S):
            pass


def _bodies(shown: Sequence[Shown]) -> Iterator[tuple[Signal, bytes]]:
    for body in joined_logs([span for one in shown for span in one.spans]):
        yield Signal.LOGS, body
    for one in shown:
        for start in range(0, len(one.spans), _MOST_SPANS):
            yield Signal.TRACES, encode(one.spans[start : start + _MOST_SPANS])


async def _shown(running: Running, run_id: str, stopped: asyncio.Event) -> None:
    """Wait until the service has a run's verdict."""
    for _ in range(round(_PATIENCE_S / _PAUSE_S)):
        if stopped.is_set() or await running.find(run_id):
            return
        await asyncio.sleep(_PAUSE_S)
    raise CommandFailed(f"--open: the page does not show the run within {_PATIENCE_S:.0f} s")
