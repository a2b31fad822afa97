"""A worker process of the service: prepares traces and runs the steps of analyses. Not pure.

Imports no pages, servers or HTTP client.

A message to the process holds several traces; each is answered when it is done, so that the service knows
which trace ended this process. The process ends when its input ends, no matter how the service ended. It
ignores the signals that a terminal or an orchestrator sends to all processes: the service decides, and may
still have runs to analyse.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import IO, Final

from analyzer.analyses.codec import (
    LENGTH_BYTES,
    STEP,
    length_of,
    read_step,
    read_traces,
    with_length,
    write_prepared,
    write_result,
)
from analyzer.analyses.composition import (
    open_analyst,
    open_cleaner,
)
from analyzer.analyses.consulting import Stepper
from analyzer.analyses.prepare import Preparer, preparer_of
from analyzer.analyses.prepared import TraceBytes, passed_by, prepare_each
from analyzer.analyses.worker_process import TRACE_CPU_S
from analyzer.methods.ranker import read_model
from analyzer.telemetry.json_lines import configure_logging
from collector_processor.settings import Settings

logger = logging.getLogger(__name__)

READY: Final = b"ready"
_YOUNG: Final = 10_000
"""New objects before the garbage collector looks at them. A run makes many, most of which stay until it is
answered: at Python's 700, looking takes 3 % of the CPU time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work of a worker process."""

    prepare: Preparer
    step: Callable[[bytes], bytes]
    """Answers a message that asks for the step of an analysis."""


def answer_step(stepper: Stepper, message: bytes) -> bytes:
    """Answer a message of ``Pool.step``; a message without an order continues an analysis that is kept.

    Raises:
        ValueError: it is not such a message.
    """
    step = read_step(message)
    order = step.order or stepper.order_of(step.id)
    return write_result(None if order is None else stepper.step(order, step.answers()))


def work_from_settings(document: bytes) -> Work:
    """Build a worker process's work from ``worker_settings``."""
    fields, ranker = json.loads(document)
    settings = Settings.model_validate(fields)
    analyst = open_analyst(settings)
    if ranker is not None:
        analyst = replace(analyst, attributor=replace(analyst.attributor, ranker=read_model(ranker)))
    look = passed_by(analyst.unasked) if settings.asks_analyzers else analyst.unasked
    prepare = preparer_of(settings, analyst, look, open_cleaner(settings))
    return Work(prepare=prepare, step=partial(answer_step, Stepper(analyst.steps)))


ROLE: Final = "analyses"
"""Identifies a worker process's log lines, which go to the service's standard error."""


def run(open_work: Callable[[bytes], Work] = work_from_settings) -> None:
    """Prepare traces until the service ends."""
    configure_logging(about={"role": ROLE, "pid": os.getpid()})
    main(open_work)


def main(open_work: Callable[[bytes], Work]) -> None:
    """Prepare traces until the input ends. Logging must be configured."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with (
        suppress(BrokenPipeError),  # the service is gone; closing would write once more
        os.fdopen(os.dup(0), "rb") as inward,
        os.fdopen(os.dup(1), "wb") as outward,
    ):
        os.dup2(_logs(), 1)  # anything printed goes to the log
        try:
            _serve(inward, outward, open_work)
        except BrokenPipeError:
            raise
        except Exception:  # the process's outermost error handler
            logger.critical("worker process failed", exc_info=True)
            raise SystemExit(1) from None


def _logs() -> int:
    """Return the standard error's descriptor, or the null device's if it is closed."""
    return os.open(os.devnull, os.O_WRONLY) if sys.stderr is None else sys.stderr.fileno()


def _serve(inward: IO[bytes], outward: IO[bytes], open_work: Callable[[bytes], Work]) -> None:
    settings = _read(inward)
    if settings is None:
        return
    work = open_work(settings)
    gc.collect()
    gc.freeze()  # existing objects stay: exclude them from garbage collection
    gc.set_threshold(_YOUNG)
    gc.enable()  # ``worker_start`` has disabled it
    _write(outward, READY)
    while (message := _read(inward)) is not None:
        if message.startswith(STEP):
            _write(outward, _within(_cpu_s(len(message)), partial(work.step, message)))
            continue
        for trace in read_traces(message):
            _write(outward, _within(_cpu_s(trace.byte_count), partial(_prepared, work.prepare, trace)))


def _cpu_s(byte_count: int) -> float:
    """Return the CPU time limit for a message: ``TRACE_CPU_S`` for each MiB or part of one."""
    return TRACE_CPU_S * (1 + (byte_count >> 20))


def _prepared(prepare: Preparer, trace: TraceBytes) -> bytes:
    (prepared,) = prepare_each(prepare, [trace])
    return write_prepared(prepared)


def _within(limit_s: float, answer: Callable[[], bytes]) -> bytes:
    """Compute an answer; the kernel kills this process if it takes more CPU time than allowed."""
    signal.setitimer(signal.ITIMER_PROF, limit_s)
    found = answer()
    signal.setitimer(signal.ITIMER_PROF, 0)  # reading the next message is not charged to a trace
    return found


def _read(inward: IO[bytes]) -> bytes | None:
    """Return the next message; ``None`` at the end of the input."""
    head = inward.read(LENGTH_BYTES)
    if len(head) < LENGTH_BYTES:
        return None
    length = length_of(head)
    message = inward.read(length)
    return message if len(message) == length else None


def _write(outward: IO[bytes], message: bytes) -> None:
    outward.write(with_length(message))
    outward.flush()
