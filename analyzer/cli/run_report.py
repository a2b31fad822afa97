"""What ``blamespan run`` says of a program's run: its steps, the verdict, or why there is none."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from analyzer.cli.experiment_options import words_of
from analyzer.cli.output import CommandFailed, complain, print_json
from analyzer.cli.recorded_runs import reader_here
from analyzer.executor.analyst import RunAnalyst
from analyzer.executor.composition import open_analyst, open_cleaner, open_span_keeper
from analyzer.experiment.running.checks import Check, CommandCheck, Contains, every
from analyzer.experiment.running.workflow import Ended as Output
from analyzer.inquiry.present import counted, error_console, run_heading, steps_table, verdict_panel
from analyzer.inquiry.verdict import to_json
from analyzer.programs.call_spans import joined_with, owners_of, spans_of_calls
from analyzer.programs.child import Ended, Seen, Wishes
from collector_processor.otlp import MalformedRequestError
from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.stages import Run, rebuild
from collector_processor.settings import Settings
from collector_processor.trajectory import order
from semconv.model import Attribution, Outcome, OutcomeSource, Status, Trace, Trajectory
from semconv.record import record, replace

_ENDED_BY_USER: Final = (0, 130, 143)
"""Exit codes of success, and of programs ended by Ctrl-C and SIGTERM, which are no failure of an agent."""
_ACCUSED: Final = frozenset({Status.ATTRIBUTED, Status.SUSPECTED})


async def report(seen: Seen, wishes: Wishes, settings: Settings) -> bool:
    """Print the verdict on each run of a program, and return whether an agent is accused.

    Raises:
        CommandFailed: the run cannot be saved, or its telemetry cannot be read.
        CheckFailed: the user's check cannot be run.
    """
    if seen.left_out:
        complain(
            f"{counted(seen.left_out, 'model call')} passed and could not be kept: the others are too large"
        )
    if seen.undelivered:
        what = counted(seen.undelivered, "request")
        complain(
            f"{what} of telemetry could not be passed on to the program's own backend: {seen.why_undelivered}"
        )
    try:
        runs = _runs(seen)
    except MalformedRequestError as error:
        raise CommandFailed(f"the program's telemetry cannot be read: {error}") from error
    said = await _said(seen.ended, wishes)
    # Of several runs only the last can have ended the program.
    of_runs = [*[_Said() for _ in runs[1:]], said] if runs else []
    analyst, clean = open_analyst(settings), open_cleaner(settings)
    statuses = [
        await _judged(analyst, clean(each.trajectory), its, as_json=wishes.as_json)
        for each, its in zip(runs, of_runs, strict=True)
    ]
    if not runs:
        _say_why_nothing(seen)
    if wishes.save is not None and runs:
        _save(wishes.save, runs, seen.logs, settings)
    return not _ACCUSED.isdisjoint(statuses)


def _runs(seen: Seen) -> tuple[Run, ...]:
    """Return the runs that the program's spans and calls show, in order."""
    reader = reader_here()
    # A trace without a step of an agent, such as one of an HTTP client alone, owns no call.
    own = [one for one in rebuild(seen.traces, seen.logs, reader=reader) if one.trajectory.steps]
    found: list[Run] = []
    shares, left = owners_of(seen.calls, [one.trace.spans for one in own])
    for one, calls in zip(own, shares, strict=True):
        spans, others = joined_with(one.trace.spans, calls, reader, secrets.token_hex)
        left += others
        trace = replace(one.trace, spans=spans)
        found.append(replace(one, trace=trace, trajectory=order(trace, reader)))
    if spans := spans_of_calls(left, seen.program, secrets.token_hex):
        trace = Trace(spans=spans)
        found.append(Run(trace=trace, trajectory=order(trace, reader), reader=reader))
    return tuple(found)


@record
class _Said:
    """Whether the run failed, as the user or the program's end say; nothing if neither does."""

    outcome: Outcome | None = None
    source: OutcomeSource | None = None


async def _said(ended: Ended, wishes: Wishes) -> _Said:
    if wishes.failed:
        return _Said(outcome=Outcome.FAILURE, source=OutcomeSource.USER)
    if checks := _checks(wishes):
        has_passed = await every(checks)(Output(output=ended.output, code=ended.code))
        outcome = Outcome.SUCCESS if has_passed and ended.code == 0 else Outcome.FAILURE
        return _Said(outcome=outcome, source=OutcomeSource.EVALUATOR)
    if ended.code not in _ENDED_BY_USER:
        return _Said(outcome=Outcome.FAILURE, source=OutcomeSource.ERROR)
    return _Said()


def _checks(wishes: Wishes) -> list[Check]:
    found: list[Check] = []
    if wishes.expect is not None:
        found.append(Contains(text=wishes.expect))
    if wishes.check is not None:
        found.append(CommandCheck(arguments=words_of(wishes.check)))
    return found


async def _judged(analyst: RunAnalyst, trajectory: Trajectory, said: _Said, *, as_json: bool) -> Status:
    if said.outcome is not None:
        trajectory = replace(trajectory, outcome=said.outcome, outcome_source=said.source)
    attribution = (await analyst.analyse(trajectory)).attribution
    if as_json:
        print_json(to_json(attribution, trajectory))
    else:
        _show(trajectory, attribution)
    return attribution.status


def _show(trajectory: Trajectory, attribution: Attribution) -> None:
    screen = error_console()
    screen.print("", run_heading(trajectory), "", sep="\n")
    screen.print(steps_table(trajectory, attribution, width=screen.width), "")
    screen.print(verdict_panel(attribution, trajectory))


def _say_why_nothing(seen: Seen) -> None:
    """Say what to do about a program that showed neither spans of agents nor model calls."""
    sent = "its spans show no step of an agent" if seen.traces else "it sent no spans"
    passed = "and no model call passed" if seen.has_gateway else "and --no-gateway was given"
    complain(f"nothing to judge in {seen.program} (exit code {seen.ended.code}): {sent}, {passed}.")
    if seen.has_gateway and not seen.traces:
        complain(
            "clients that take their address in code are not seen: leave base_url out there, or take it from"
            " OPENAI_BASE_URL or ANTHROPIC_BASE_URL. Or instrument the program: docs/instrument.md has the"
            " three lines"
        )


def _save(path: Path, runs: Sequence[Run], logs: Sequence[bytes], settings: Settings) -> None:
    """Write the runs as OTLP/JSON, without their secrets.

    Raises:
        CommandFailed: the file cannot be written, or the settings allow no text.
    """
    from analyzer.issues.labels.kept_trace import otlp_json  # noqa: PLC0415 - imports the store
    from collector_processor.rebuild.kept_spans import unpack_spans  # noqa: PLC0415 - as above

    keeper = open_span_keeper(settings)
    if keeper.redactor is None:
        raise CommandFailed(f"--save {path}: BLAMESPAN_EXPORT_TEXT=none allows no text to be written")
    spans = [span for one in runs for span in one.trace.spans]
    (packed,) = keeper.pack([encode(spans)], logs, [(spans, keeper.redactor.for_run())], [True])
    if packed is None:
        raise CommandFailed(f"--save {path}: the run is too large")
    try:
        path.write_bytes(otlp_json(unpack_spans(packed)))
    except OSError as error:
        raise CommandFailed(f"--save {path}: {error.strerror or error}") from error
    complain(f"saved in {path}, without secrets: `blamespan attribute {path}` reads it")
