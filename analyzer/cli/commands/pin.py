"""``blamespan pin``: a recorded run as a pytest file and a tape."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from analyzer.cli.experiment_options import AllowToolOption, words_of
from analyzer.cli.experiment_runs import open_run
from analyzer.cli.judged_runs import known_or_judged, settings_here
from analyzer.cli.kept_runs import TenantOption
from analyzer.cli.output import WrongUsage, complain, optional
from analyzer.cli.pinned import read_pinned
from analyzer.cli.recorded_runs import LogsOption, RecordedRun
from analyzer.cli.run_report import save_runs
from analyzer.experiment.open_experiment import tape_of
from analyzer.experiment.pinned_text import Wanted, short_name, test_of
from analyzer.experiment.replay.gateway_options import GatewayOptions
from analyzer.experiment.replay.tape import Tape


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
    allow_tool: AllowToolOption = None,
    tenant: TenantOption = None,
    logs: LogsOption = None,
) -> None:
    """Turn recorded runs into pytest files, each with a tape of its run's answers.

    The test answers all model calls before the decisive one from the tape. Without a key it checks that the
    program still asks what it asked then; with a key it asks the decisive call anew, and expects a right
    answer. Of a run that did not fail, the whole tape is played. Without COMMAND, name it in the test.

    Example: [bold]blamespan pin trace.json --expect 480 --out tests/pinned -- python my_agents.py[/bold]
    """
    runs, command = _parts(arguments)
    checking = words_of(check or "")
    if check is not None and not checking:
        raise WrongUsage(f"--check {check}: expected a command whose quotation marks are closed")
    wanted = Wanted(
        command=tuple(command), expect=expect, check=checking, allow_tools=tuple(allow_tool or ())
    )
    for each in runs:
        test_file = _pin(each, tenant, logs or [], out, wanted)
        complain(f"wrote {test_file}, without secrets: `pytest {test_file}` runs it")


def _parts(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    at = arguments.index("--") if "--" in arguments else len(arguments)
    runs, command = [*arguments[:at]], [*arguments[at + 1 :]]
    if not runs or (at < len(arguments) and not command):
        raise WrongUsage("pin: expected RUN… [-- COMMAND…]")
    return runs, command


def _pin(source: str, tenant: str | None, logs: Sequence[Path], out: Path, wanted: Wanted) -> Path:
    run, kept = open_run(source, tenant, logs)
    whole = tape_of(run, GatewayOptions(allow_tools=frozenset(wanted.allow_tools)))
    settings = settings_here(None, "", None, None)
    recorded = RecordedRun(trajectory=run.trajectory, trace=run.trace)
    document, _ = known_or_judged(recorded, kept, settings)
    name = short_name(run.trajectory.run_id)
    folder = out / "tapes"
    folder.mkdir(parents=True, exist_ok=True)
    tape_file, test_file = folder / f"{name}.json", out / f"test_pinned_{name}.py"
    save_runs(tape_file, [run], (), settings, mode="wb")
    tape = read_pinned(tape_file, wanted.allow_tools)
    _say_what_is_lost(whole, tape)
    test_file.write_text(test_of(name, tape, document, wanted), encoding="utf-8")
    return test_file


def _say_what_is_lost(whole: Tape, tape: Tape) -> None:
    """Say which calls hold secrets: without them, the program's own requests differ from the tape's."""
    changed = [
        one.index
        for one, other in zip(whole.calls, tape.calls, strict=False)
        if one.messages != other.messages
    ]
    if changed:
        shown = ", ".join(map(str, changed[:10]))
        complain(
            f"calls {shown} hold secrets, which were removed: there the program will differ from the tape"
        )
