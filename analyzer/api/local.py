"""Recorded runs in this process: read them, attribute their failures, compare them.

Only the arguments matter: no environment variable and no ``blamespan.toml`` is read, and nothing is stored.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from analyzer.analyses.composition import open_analyst, open_cleaner
from analyzer.history.run_diff import RunDiff, compare_runs
from analyzer.inquiry.errors import UnreadableInput
from analyzer.inquiry.verdict import to_json
from analyzer.inquiry.whole_run import WholeRun, whole_run, whole_steps
from analyzer.recordings.read_files import read_recording
from analyzer.recordings.recording import Recording
from analyzer.records.json_records import RunVerdict, read_answer
from collector_processor.otlp import MalformedRequestError, Signal
from collector_processor.rebuild.stages import rebuild
from collector_processor.settings import load_settings
from semconv.record import replace as with_changes

T = TypeVar("T")

Source: TypeAlias = str | PathLike[str] | bytes | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A recorded run: the path of a file, its bytes, or the parsed JSON (OTLP, or a conversation's messages)."""


def read_runs(source: Source, *, logs: Source | None = None) -> tuple[WholeRun, ...]:
    """Return the runs of a recording, without secrets.

    Args:
        source: a file in any format that ``blamespan attribute`` reads, its bytes, or its parsed JSON.
        logs: OTLP logs of the same runs: some frameworks put the content there.

    Raises:
        UnreadableInput: it has none of the formats, or holds no run.
        OSError: the file cannot be read.
    """
    recording = _recording(source)
    beside = () if logs is None else _recording(logs).bodies(Signal.LOGS)
    clean = open_cleaner(load_settings({}))
    try:
        runs = rebuild(recording.traces, (*recording.bodies(Signal.LOGS), *beside))
    except MalformedRequestError as error:
        raise UnreadableInput(str(error)) from error
    found = [whole_run(run, clean) for run in runs]
    found += [whole_steps(conversation.trajectory, clean) for conversation in recording.conversations]
    if not found:
        raise UnreadableInput("holds no run: no spans of agents and no conversation in it")
    return tuple(found)


def read_run(source: Source, *, logs: Source | None = None) -> WholeRun:
    """Return the only run of a recording.

    Raises:
        UnreadableInput: as ``read_runs``, or it holds several runs.
        OSError: the file cannot be read.
    """
    runs = read_runs(source, logs=logs)
    if len(runs) > 1:
        raise UnreadableInput(f"holds {len(runs)} runs, expected one: use read_runs")
    return runs[0]


async def attribute_async(
    run: WholeRun | Source,
    *,
    method: str = "auto",
    model: str | None = None,
    reference: str | None = None,
    with_reference: bool = True,
    failed: bool = False,
    budget_usd: float | None = 0.50,
    floor: float = 0.0,
) -> RunVerdict:
    """Say which agent broke a run, at which step and why.

    A conversation log is assumed to have failed; a trace is first checked for failure. A failing model leads
    to a verdict that says so, not to an exception.

    Args:
        run: from ``read_run``, or what ``read_run`` takes.
        method: as for ``blamespan attribute --method``; ``auto`` needs no model.
        model: any litellm model; its key comes from the environment, as litellm defines it.
        reference: the right answer; the check for a failure sees it.
        with_reference: whether the method sees it too.
        failed: treat the run as failed, without checking whether it did.
        budget_usd: most dollars for the run.
        floor: abstain below this confidence.

    Raises:
        UnreadableInput: as ``read_run``.
        UnknownMethod: no method has that name.
        ModelNeeded: the method asks a model, and there is none.
    """
    whole = run if isinstance(run, WholeRun) else await asyncio.to_thread(read_run, run)
    settings = load_settings({}, method=method, model=model, budget_usd_per_run=budget_usd, precision=floor)
    analyst = open_analyst(settings, with_reference=with_reference and reference is not None)
    trajectory = whole.trajectory
    if reference is not None:
        trajectory = with_changes(trajectory, reference=reference)
    if failed:
        attribution = analyst.signed(await analyst.attributor(trajectory), trajectory)
    else:
        attribution = (await analyst.analyse(trajectory)).attribution
    return read_answer(RunVerdict, to_json(attribution, trajectory))


def attribute(
    run: WholeRun | Source,
    *,
    method: str = "auto",
    model: str | None = None,
    reference: str | None = None,
    with_reference: bool = True,
    failed: bool = False,
    budget_usd: float | None = 0.50,
    floor: float = 0.0,
) -> RunVerdict:
    """Say which agent broke a run, at which step and why; blocks, and works in notebooks too."""
    return _finished(
        attribute_async(
            run,
            method=method,
            model=model,
            reference=reference,
            with_reference=with_reference,
            failed=failed,
            budget_usd=budget_usd,
            floor=floor,
        )
    )


def diff(left: WholeRun | Source, right: WholeRun | Source) -> RunDiff:
    """Return two runs side by side: aligned steps, and where they first differ."""
    first, second = (one if isinstance(one, WholeRun) else read_run(one) for one in (left, right))
    return compare_runs(first, second)


def _finished(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end; in a thread of its own if this one has an event loop, as notebooks do."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(asyncio.run, work).result()


def _recording(source: Source) -> Recording:
    if isinstance(source, bytes):
        return read_recording(source)
    if isinstance(source, str | PathLike):
        return read_recording(Path(source).read_bytes())
    return read_recording(json.dumps(source).encode())
