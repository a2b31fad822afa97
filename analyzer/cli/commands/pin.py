"""``blamespan pin``: a recorded run as a pytest file and a tape."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from analyzer.cli.experiment_options import AllowToolOption, split_command, words_of
from analyzer.cli.experiment_runs import open_run
from analyzer.cli.judged_runs import known_or_judged, settings_here
from analyzer.cli.kept_runs import TenantOption
from analyzer.cli.output import CommandFailed, WrongUsage, complain, optional
from analyzer.cli.pinned import answers_differ, blame_in, read_pinned
from analyzer.cli.recorded_runs import LogsOption, RecordedRun
from analyzer.cli.run_report import save_runs
from analyzer.experiment.open_experiment import tape_of
from analyzer.experiment.pinned_text import Wanted, decisive_call, short_name, test_of
from analyzer.experiment.replay.gateway_options import GatewayOptions
from analyzer.experiment.replay.tape import Tape
from collector_processor.core.runs import Run
from semconv.record import record


@record
class Source:
    """Where a run is, and the run that answers after its decisive call."""

    run: str
    rest: str | None
    tenant: str | None
    logs: Sequence[Path]


def pin(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN… [-- COMMAND…]",
            help="Trace files or ids of kept runs, and the command that runs the workflow once.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path, optional("DIR", "Where the tests and their tapes are written; made if it is not there.")
    ],
    check: Annotated[
        str | None,
        optional("COMMAND", "Gets the output on standard input; exit code 0 means a right answer."),
    ] = None,
    expect: Annotated[str | None, optional("TEXT", "A right answer contains this.")] = None,
    blameless: Annotated[
        bool,
        typer.Option("--blameless", help="In a right run, signals and lineage blame no agent."),
    ] = False,
    rest: Annotated[
        str | None,
        optional(
            "RUN",
            "A run of the fixed program, as a file or an id: it answers the decisive call and all later ones,"
            " so that the test needs no key and no network.",
        ),
    ] = None,
    allow_tool: AllowToolOption = None,
    tenant: TenantOption = None,
    logs: LogsOption = None,
) -> None:
    """Turn recorded runs into pytest files, each with a tape of its run's answers.

    The test answers all model calls before the decisive one from the tape. Without a key it checks that the
    program still asks what it asked then; with a key it asks the decisive call anew, and expects a right
    answer. Of a run that did not fail, the whole tape is played. Without COMMAND, name it in the test.

    With --rest, the test fails before the fix and passes after it, every time: a run of the fixed program is
    the second tape.

    Example: [bold]blamespan pin trace.json --expect 480 --out tests/pinned -- python my_agents.py[/bold]
    """
    runs, command = split_command(arguments)
    if not runs or (not command and "--" in arguments):
        raise WrongUsage("pin: expected RUN… [-- COMMAND…]")
    if rest is not None and len(runs) != 1:
        raise WrongUsage("--rest: expected one RUN, whose decisive call and all later ones it answers")
    checking = words_of(check or "")
    if check is not None and not checking:
        raise WrongUsage(f"--check {check}: expected a command whose quotation marks are closed")
    wanted = Wanted(
        command=tuple(command),
        expect=expect,
        check=checking,
        allow_tools=tuple(allow_tool or ()),
        is_blameless=blameless,
    )
    for each in runs:
        test_file = _pin(Source(run=each, rest=rest, tenant=tenant, logs=logs or []), out, wanted)
        complain(f"wrote {test_file}, without secrets: `pytest {test_file}` runs it")


def _pin(source: Source, out: Path, wanted: Wanted) -> Path:
    run, kept = open_run(source.run, source.tenant, source.logs)
    options = GatewayOptions(allow_tools=frozenset(wanted.allow_tools))
    whole = tape_of(run, options)
    recorded = RecordedRun(trajectory=run.trajectory, trace=run.trace)
    document, _ = known_or_judged(recorded, kept, settings_here(None, "", None, None))
    decisive = decisive_call(whole, document["step"])
    _refuse_what_would_pass_now(run, decisive, wanted)
    rest = None if source.rest is None else open_run(source.rest, None, source.logs)[0]
    if rest is not None:
        _refuse_luck(whole, decisive, tape_of(rest, options))
    name = short_name(run.trajectory.run_id)
    test_file = out / f"test_pinned_{name}.py"
    tape = _saved(run, out / "tapes" / f"{name}.json", options)
    if rest is not None:
        _saved(rest, out / "tapes" / f"{name}.rest.json", options)
    text = test_of(name, tape, document, wanted, has_rest=rest is not None)
    test_file.write_text(text, encoding="utf-8")
    return test_file


def _saved(run: Run, file: Path, options: GatewayOptions) -> Tape:
    """Write a run as a tape and return it as it will be read, without secrets; say where it had some."""
    file.parent.mkdir(parents=True, exist_ok=True)
    save_runs(file, [run], (), settings_here(None, "", None, None), mode="wb")
    whole, tape = tape_of(run, options), read_pinned(file, options.allow_tools)
    pairs = zip(whole.calls, tape.calls, strict=False)
    changed = [one.index for one, other in pairs if one.messages != other.messages]
    if changed:
        shown = ", ".join(map(str, changed[:10]))
        complain(
            f"{file.name}: calls {shown} hold secrets, which were removed: there the program will differ from"
            " the tape"
        )
    return tape


def _refuse_what_would_pass_now(run: Run, decisive: int | None, wanted: Wanted) -> None:
    """Refuse a test of a failed run that its own recording passes, or of a passing run that it fails.

    Raises:
        CommandFailed: ``--blameless`` says nothing about this run.
    """
    if not wanted.is_blameless:
        return
    blame = blame_in([run])
    if decisive is None and blame:
        raise CommandFailed(f"--blameless: the recorded run itself is not blameless: {blame}")
    if decisive is not None and not blame and not (wanted.expect or wanted.check):
        raise CommandFailed(
            "--blameless: without a model, the recorded run blames no agent either, so the test would pass"
            " without a fix: say what a right answer is with --expect or --check"
        )


def _refuse_luck(tape: Tape, decisive: int | None, rest: Tape) -> None:
    """Refuse a second tape that would let the program pass as it is.

    Raises:
        CommandFailed: it answers the decisive request as it was recorded, and answers it otherwise; or there
            is no decisive call.
    """
    if decisive is None:
        raise CommandFailed("--rest: the verdict names no step from which a second run could answer")
    if answers_differ(tape, decisive, rest):
        raise CommandFailed(
            "--rest: in this run the model was asked the decisive call as in the failed one, except for"
            " results of tools and times, and answered otherwise. So the program would pass without a fix."
            " Leave --rest out: the live model answers then"
        )
