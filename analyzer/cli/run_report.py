"""What ``blamespan run`` says of a program: its runs' steps and verdicts, or why there is none."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

from analyzer.analyses.composition import open_analyst, open_cleaner, open_span_keeper
from analyzer.cli.experiment_options import words_of
from analyzer.cli.judged_runs import as_labels_say
from analyzer.cli.output import CommandFailed, complain, print_json
from analyzer.cli.recorded_runs import reader_here
from analyzer.cli.repeated_runs import (
    ENDED_BY_USER,
    Judged,
    Repetition,
    final_document,
    final_table,
    in_full,
    lines_of,
    progress_line,
)
from analyzer.experiment.workflow import Check, CommandCheck, Contains, every
from analyzer.experiment.workflow import Ended as Output
from analyzer.inquiry.present import counted, is_unsaid, plain
from analyzer.inquiry.terminal import error_console, run_heading, steps_table, verdict_panel
from analyzer.inquiry.verdict import to_json
from analyzer.programs.child import Ended, Seen, Wishes
from analyzer.programs.model_call import PassedCall
from analyzer.programs.program_runs import runs_of_program
from collector_processor.core.analysis import Analysis
from collector_processor.core.runs import Run
from collector_processor.otlp import MalformedRequestError
from collector_processor.rebuild.encode import encode, encode_logs
from collector_processor.rebuild.stages import rebuild
from collector_processor.settings import Settings
from semconv.attributes import TASK_OUTCOME, TASK_OUTCOME_SOURCE
from semconv.model import (
    LogRecord,
    Outcome,
    OutcomeSource,
    Span,
    Status,
    StepKind,
    Trajectory,
    agent_in_prose,
)
from semconv.record import record, replace

_MOST_INSTRUCTIONS: Final = 90
"""Characters of an agent's instructions that tell it from others."""
_ACCUSED: Final = frozenset({Status.ATTRIBUTED, Status.SUSPECTED})


@record
class Shown:
    """A run to show, with the analysis that the terminal has shown."""

    spans: tuple[Span, ...]
    trajectory: Trajectory
    analysis: Analysis


class Reporter:
    """Judges the runs of a program with one analyst, so that repetitions share its budget."""

    def __init__(self, wishes: Wishes, settings: Settings) -> None:
        """Open the analyst that the settings describe.

        Raises:
            SettingsError: a setting is wrong.
        """
        self._wishes: Final = wishes
        self._settings: Final = settings
        self.analyst: Final = as_labels_say(open_analyst(settings), settings)
        self._clean: Final = open_cleaner(settings)
        self.runs: tuple[Run, ...] = ()
        """Those of the last execution."""
        self._has_saved = False
        self.shown: Final[list[Shown]] = []
        """All runs judged, if the user wants their page."""

    async def judge(self, seen: Seen) -> tuple[Judged, ...]:
        """Return the verdict on each run of one execution of the program.

        Raises:
            CommandFailed: its telemetry cannot be read.
            CheckFailed: the user's check cannot be run.
        """
        _say_what_is_missing(seen)
        try:
            self.runs = runs = runs_of(seen.traces, seen.logs, seen.calls, seen.program)
        except MalformedRequestError as error:
            raise CommandFailed(f"the program's telemetry cannot be read: {error}") from error
        said = await _said(seen.ended, self._wishes)
        # Of several runs only the last can have ended the program.
        of_runs = [*[_Said() for _ in runs[1:]], said] if runs else []
        self.runs = tuple(_as_told(run, its) for run, its in zip(runs, of_runs, strict=True))
        return tuple([await self._judged(each, its) for each, its in zip(runs, of_runs, strict=True)])

    def save(self) -> None:
        """Write the runs judged last to the user's file, if one is named: a line for each execution.

        Raises:
            CommandFailed: they cannot be saved.
        """
        path = self._wishes.save
        if path is None or not self.runs:
            return
        save_runs(path, self.runs, self._settings, mode="ab" if self._has_saved else "wb")
        if not self._has_saved:
            complain(f"saved in {path}, without secrets: `blamespan attribute {path}` reads it")
        self._has_saved = True

    async def _judged(self, run: Run, said: _Said) -> Judged:
        trajectory = self._clean(run.trajectory)
        if said.outcome is not None:
            trajectory = replace(trajectory, outcome=said.outcome, outcome_source=said.source)
        analysis = await self.analyst.analyse(trajectory)
        if self._wishes.opens:
            filed = analysis.with_file(str(self._wishes.save or ""))
            self.shown.append(Shown(spans=run.trace.spans, trajectory=trajectory, analysis=filed))
        return Judged(trajectory=trajectory, attribution=analysis.attribution)


def _as_told(run: Run, said: _Said) -> Run:
    """Return a run whose root span says how it ended, so that a saved run is judged as it was here."""
    if said.outcome is None or said.source is None:
        return run
    told = {TASK_OUTCOME: said.outcome.value, TASK_OUTCOME_SOURCE: said.source.value}
    spans = tuple(
        span if span.parent_id else replace(span, attributes={**span.attributes, **told})
        for span in run.trace.spans
    )
    return replace(run, trace=replace(run.trace, spans=spans))


class Once:
    """Says all about a single execution."""

    def __init__(self, wishes: Wishes) -> None:
        """Say it as the user wishes."""
        self._wishes: Final = wishes
        self.has_accused = False
        """Whether a verdict accuses an agent."""

    def say(self, seen: Seen, judged: Sequence[Judged]) -> None:
        """Print the steps of each run, and its verdict."""
        self.has_accused = _accuses(judged)
        shown = in_full(judged)
        is_list = len(shown) < len(judged) and not self._wishes.as_json
        for one in judged if self._wishes.as_json else ():
            print_json(to_json(one.attribution, one.trajectory))
        for line in lines_of(judged) if is_list else ():
            complain(line)
        for number, one in () if self._wishes.as_json else shown:
            _show(one, f"run {number} of {len(judged)}" if len(judged) > 1 else "")
        if is_list:
            error_console().print(final_table("", [Repetition(code=0, judged=(one,)) for one in judged]))
            complain("the steps of each run: --save FILE, then `blamespan attribute --all FILE`")
        if judged:
            _say_where_it_ended(seen.ended, judged[-1].trajectory)
        else:
            _say_why_nothing(seen)
        _advise(seen)

    def miss(self, seen: Seen) -> None:
        """Add nothing about an execution that cannot be judged."""

    def conclude(self) -> None:
        """Add nothing."""


class Repeated:
    """Says one line on each of many executions, all about the first failed one, and ranks what broke them."""

    def __init__(self, wishes: Wishes, program: str, planned: int) -> None:
        """Begin with none of the planned executions."""
        self._wishes: Final = wishes
        self._program: Final = program
        self._planned: Final = planned
        self._repetitions: Final[list[Repetition]] = []
        self.has_accused = False
        """Whether a verdict accuses an agent."""

    def say(self, seen: Seen, judged: Sequence[Judged]) -> None:
        """Print a line on one execution, and its verdicts as JSON."""
        if not self._repetitions:
            if not judged:
                _say_why_nothing(seen)
            _advise(seen)
        self.has_accused = self.has_accused or _accuses(judged)
        number = self._count(Repetition(code=seen.ended.code, judged=tuple(judged)))
        for one in judged if self._wishes.as_json else ():
            verdict = to_json(one.attribution, one.trajectory)
            print_json({"repetition": number, "exit_code": seen.ended.code, **verdict})

    def miss(self, seen: Seen) -> None:
        """Count an execution that cannot be judged."""
        self._count(Repetition(code=seen.ended.code, judged=()))

    def _count(self, one: Repetition) -> int:
        before = any(repetition.to_show for repetition in self._repetitions)
        self._repetitions.append(one)
        number = len(self._repetitions)
        complain(progress_line(number, self._planned, one))
        for run in () if before or self._wishes.as_json else one.to_show[:1]:
            _show(run, f"run {number} of {self._planned}")
        return number

    def conclude(self) -> None:
        """Print the ranking."""
        if self._wishes.as_json:
            print_json(final_document(self._program, self._repetitions, self._planned))
        else:
            error_console().print(final_table(self._program, self._repetitions))


def _accuses(judged: Sequence[Judged]) -> bool:
    return any(one.attribution.status in _ACCUSED for one in judged)


def _say_what_is_missing(seen: Seen) -> None:
    if seen.left_out:
        complain(
            f"{counted(seen.left_out, 'model call')} passed and could not be kept: the others are too large"
        )
    if seen.undelivered:
        what = counted(seen.undelivered, "request")
        complain(
            f"{what} of telemetry could not be passed on to the program's own backend: {seen.why_undelivered}"
        )


def runs_of(
    traces: Sequence[bytes], logs: Sequence[bytes], calls: Sequence[PassedCall], program: str
) -> tuple[Run, ...]:
    """Return the runs that a program's OTLP requests and model calls show, in order.

    Raises:
        MalformedRequestError: a request is not OTLP.
    """
    reader = reader_here()
    seen = rebuild(traces, logs, reader=reader)
    return runs_of_program(seen, calls, program, reader, secrets.token_hex)


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
    if ended.code not in ENDED_BY_USER:
        return _Said(outcome=Outcome.FAILURE, source=OutcomeSource.ERROR)
    return _Said()


def _checks(wishes: Wishes) -> list[Check]:
    found: list[Check] = []
    if wishes.expect is not None:
        found.append(Contains(text=wishes.expect))
    if wishes.check is not None:
        found.append(CommandCheck(arguments=words_of(wishes.check)))
    return found


def _show(judged: Judged, heading: str) -> None:
    screen, trajectory, attribution = error_console(), judged.trajectory, judged.attribution
    screen.print("", *([heading] if heading else []), run_heading(trajectory), "", sep="\n")
    screen.print(steps_table(trajectory, attribution, width=screen.width), "")
    if numbered := _numbered(trajectory):
        told = (f"{agent}: “{plain(text, _MOST_INSTRUCTIONS)}”" for agent, text in numbered.items())
        screen.print("\n".join(told), "", style="dim", sep="\n", markup=False)
    screen.print(verdict_panel(attribution, trajectory))
    if is_unsaid(attribution.verdict.reason):
        complain("wrong all the same? Add --failed, or --expect TEXT with what a right answer contains")


def _numbered(trajectory: Trajectory) -> dict[str, str]:
    """Return the instructions, or the first prompt, of the agents that only a number names."""
    told: dict[str, str] = {}
    for step in trajectory.steps:
        if step.kind is StepKind.LLM:
            told.setdefault(step.agent, step.instructions or step.input.removeprefix("user: "))
    return {agent: text for agent, text in told.items() if re.fullmatch(r"agent \d+", agent)}


def _advise(seen: Seen) -> None:
    """Say what to install, if nothing but model calls was seen."""
    if seen.advice and not seen.traces:
        complain(seen.advice)


def _say_where_it_ended(ended: Ended, trajectory: Trajectory) -> None:
    """Say after which step a program failed: what its own error message is about did not become a step."""
    if ended.code in ENDED_BY_USER or not trajectory.steps:
        return
    last = trajectory.steps[-1]
    tools = ", ".join(dict.fromkeys(call.name for call in last.calls))
    asked = f", in which {agent_in_prose(last.agent)} asked for {tools}; no result was seen" if tools else ""
    complain(f"the program ended with exit code {ended.code} after step {last.index}{asked}")


_BY_SIGNAL: Final = 128
"""The least exit code of a program that a signal ended, which wrote no error."""


def _say_why_nothing(seen: Seen) -> None:
    """Say what to do about a program that showed neither spans of agents nor model calls."""
    sent = "its spans show no step of an agent" if seen.traces else "it sent no spans"
    passed = "and no model call passed" if seen.has_gateway else "and --no-gateway was given"
    told = f"nothing to judge in {seen.program} (exit code {seen.ended.code}): {sent}, {passed}."
    complain(f"{told} Its own error stands above." if 0 < seen.ended.code < _BY_SIGNAL else told)
    if seen.has_gateway and not seen.traces and seen.ended.code == 0:
        complain(
            "clients that take their address in code are not seen: leave base_url out there, or take it from"
            " OPENAI_BASE_URL or ANTHROPIC_BASE_URL. Or instrument the program: docs/instrument.md has the"
            " three lines"
        )


def save_runs(path: Path, runs: Sequence[Run], settings: Settings, *, mode: Literal["wb", "ab"]) -> None:
    """Write the runs as one line of OTLP/JSON, without their secrets; ``ab`` keeps the lines before.

    Args:
        path: the file.
        runs: the runs.
        settings: say which texts are secrets.
        mode: how the file is opened.

    Raises:
        CommandFailed: the file cannot be written, or the settings allow no text.
    """
    from analyzer.issues.labels.kept_trace import otlp_json  # noqa: PLC0415 - imports the store
    from collector_processor.rebuild.kept_spans import unpack_spans  # noqa: PLC0415 - as above

    keeper = open_span_keeper(settings)
    if keeper.redactor is None:
        raise CommandFailed(f"--save {path}: BLAMESPAN_EXPORT_TEXT=none allows no text to be written")
    spans = [span for one in runs for span in one.trace.spans]
    (packed,) = keeper.pack([encode(spans)], joined_logs(spans), [(spans, keeper.redactor.for_run())], [True])
    if packed is None:
        raise CommandFailed(f"--save {path}: the run is too large")
    try:
        with path.open(mode) as file:
            file.write(otlp_json(unpack_spans(packed)))
    except OSError as error:
        raise CommandFailed(f"--save {path}: {error.strerror or error}") from error


def joined_logs(spans: Sequence[Span]) -> list[bytes]:
    """Return the log records of spans as a request: some frameworks have all their texts there."""
    records = [
        LogRecord(event=event, trace_id=span.trace_id, span_id=span.span_id, resource=span.resource)
        for span in spans
        for event in span.logs
    ]
    return [encode_logs(records)] if records else []
