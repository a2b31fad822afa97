"""The preparer of traces, built from settings; as a module, a worker process of the service. Not pure.

Imports no pages, servers or HTTP client: worker processes do without them.

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
from typing import IO, Final, TypeAlias

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
    kept_texts,
    notice_text,
    open_analyst,
    open_cleaner,
    open_span_keeper,
)
from analyzer.analyses.consulting import Stepper
from analyzer.analyses.executor import prepare_each
from analyzer.analyses.prepare import Look, Preparer, TraceBytes, no_comparison, nothing_so_far
from analyzer.analyses.worker_process import TRACE_CPU_S
from analyzer.history.early import elements_so_far
from analyzer.history.elements import elements_of
from analyzer.history.known_runs import FailedRun, facts_of, failed_run, release_of, to_text
from analyzer.inquiry.verdict import NOTHING_SAYS_SO
from analyzer.issues.counting import noted_run
from analyzer.issues.issue_store import noted_document
from analyzer.issues.labels.kept_run import pack, searched_text, task_alone
from analyzer.methods.history import COMPARED
from analyzer.methods.learned.model_file import read_model
from analyzer.methods.registry import AUTO
from analyzer.telemetry.json_lines import configure_logging
from collector_processor.core.analysis import Analysis, Analyst, KeepRun, KeptRun
from collector_processor.core.records import RunFacts
from collector_processor.core.runs import Run
from collector_processor.mapping_files import open_reader
from collector_processor.otlp import NO_TENANT
from collector_processor.rebuild.redaction import Cleaner, omit
from collector_processor.settings import Settings
from collector_processor.writeback.outgoing import service_of
from semconv.model import BLAMELESS, Abstention, Status, Trajectory


def answer_step(stepper: Stepper, message: bytes) -> bytes:
    """Answer a message of ``Pool.step``; a message without an order continues an analysis that is kept.

    Raises:
        ValueError: it is not such a message.
    """
    asked = read_step(message)
    order = asked.order or stepper.order_of(asked.id)
    return write_result(None if order is None else stepper.step(order, asked.answers()))


def work_from_settings(document: bytes) -> Work:
    """Build a worker process's work from what the service sends: see ``worker_settings``."""
    fields, ranker = json.loads(document)
    settings = Settings.model_validate(fields)
    analyst = open_analyst(settings)
    if ranker is not None:
        analyst = replace(analyst, attributor=replace(analyst.attributor, ranker=read_model(ranker)))
    look = passed_by(analyst.unasked) if settings.asks_analyzers else analyst.unasked
    prepare = preparer_of(settings, analyst, look, open_cleaner(settings))
    return Work(prepare=prepare, step=partial(answer_step, Stepper(analyst.steps)))


def keeping(settings: Settings) -> KeepRun:
    """Return a function that produces the stored form of an analysed run."""
    texts, noticed = kept_texts(settings), notice_text(settings)

    def kept(trajectory: Trajectory, analysis: Analysis) -> KeptRun:
        is_failure = analysis.attribution.status not in BLAMELESS
        # Successful runs keep only task, agents and order: most runs succeed, and cleaning text takes time.
        packed = pack(trajectory, texts) if is_failure else pack(trajectory, omit, clean_task=texts)
        noted = noted_document(noted_run(NO_TENANT, trajectory, analysis, noticed))
        has_steps = is_failure or settings.keep_passed_bytes > 0
        text = (searched_text if has_steps else task_alone)(trajectory, texts)
        return KeptRun(run_id=trajectory.run_id, is_failure=is_failure, packed=packed, noted=noted, text=text)

    return kept


def preparer_of(settings: Settings, analyst: Analyst, unasked: Look, cleaner: Cleaner) -> Preparer:
    """Return the preparer of traces; ``unasked`` analyses runs that need no model."""
    is_compared = settings.method == AUTO
    compared = _compared if settings.suspect_false_alarms else _compared_if_failed
    return Preparer(
        unasked=unasked,
        glance=analyst.glance,
        kept=keeping(settings),
        cleaner=cleaner,
        spans=open_span_keeper(settings),
        reader=open_reader(settings.mappings),
        facts=_facts,
        compared=compared if is_compared else no_comparison,
        so_far=_so_far if settings.early_false_alarms else nothing_so_far,
    )


def _facts(run: Run) -> RunFacts:
    return facts_of(run.trajectory, run.trace.spans)


def _compared(run: Run, analysis: Analysis) -> str:
    """Return the same also for a run that nothing says failed or passed: other runs may say so."""
    verdict = analysis.attribution.verdict
    is_silent = isinstance(verdict, Abstention) and verdict.reason == NOTHING_SAYS_SO
    if is_silent and verdict.status is Status.NO_FAILURE:
        return to_text(failed_run(run.trajectory, service_of(run)))
    return _compared_if_failed(run, analysis)


def _compared_if_failed(run: Run, analysis: Analysis) -> str:
    """Return the parts of a failed run that are compared with other runs; empty if it did not fail."""
    if analysis.attribution.status not in COMPARED:
        return ""
    return to_text(failed_run(run.trajectory, service_of(run)))


def _so_far(run: Run) -> str:
    """Return the parts of an unfinished run that are compared with other runs."""
    elements = elements_so_far(elements_of(run.trajectory))
    release = release_of(run.trace.spans)
    return to_text(FailedRun(service=service_of(run), elements=elements, release=release))


def passed_by(unasked: Look) -> Look:
    """Return a function that analyses successful runs; all others are left to the analyzers."""

    def look(trajectory: Trajectory) -> Analysis | None:
        analysis = unasked(trajectory)
        is_done = analysis and analysis.attribution.status in {*BLAMELESS, Status.UNREADABLE}
        return analysis if is_done else None

    return look


ROLE: Final = "analyses"
"""Identifies a worker process's log lines, which go to the service's standard error."""


def run(open_work: OpenWork = work_from_settings) -> None:
    """Prepare traces until the service ends."""
    configure_logging(about={"role": ROLE, "pid": os.getpid()})
    main(open_work)


logger = logging.getLogger(__name__)

READY: Final = b"ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work of a worker process."""

    prepare: Preparer
    step: Callable[[bytes], bytes]
    """Answers a message that asks for the step of an analysis."""


OpenWork: TypeAlias = Callable[[bytes], Work]
"""Builds the work from the settings that the service sends."""


def main(open_work: OpenWork) -> None:
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


def _serve(inward: IO[bytes], outward: IO[bytes], open_work: OpenWork) -> None:
    settings = _read(inward)
    if settings is None:
        return
    work = open_work(settings)
    gc.collect()
    gc.freeze()  # existing objects stay: exclude them from garbage collection
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


if __name__ == "__main__":
    run()
