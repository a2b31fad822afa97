"""``blamespan pin``: a recorded run as a pytest file and a tape."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from analyzer.api.pinning import LEFT_OUT, Pin, refuse_luck, rules_asserted
from analyzer.cli.experiment_options import AllowToolOption, split_command, words_of
from analyzer.cli.experiment_runs import open_run, tenant_of_kept
from analyzer.cli.judged_runs import known_or_judged, settings_here
from analyzer.cli.kept_runs import TenantOption, opened_store
from analyzer.cli.output import CommandFailed, WrongUsage, complain, optional
from analyzer.cli.pinned import read_pinned
from analyzer.cli.recorded_runs import LogsOption, RecordedRun
from analyzer.cli.run_report import save_runs
from analyzer.experiment.open_experiment import tape_of
from analyzer.experiment.pinned_text import (
    Beside,
    Wanted,
    beside,
    decisive_call,
    is_as_written,
    short_name,
    test_of,
)
from analyzer.experiment.replay.gateway_options import GatewayOptions
from analyzer.experiment.replay.tape import Tape
from analyzer.history.facts import Facts
from analyzer.inquiry.present import plain
from analyzer.issues.labels.kept_trace import KeptTrace
from analyzer.issues.workflow_reports import passing_facts
from collector_processor.core.runs import Run, workflow_of
from collector_processor.otlp import CollectorError
from collector_processor.writeback.outgoing import service_of
from semconv.record import record

_MOST_SHOWN: Final = 300


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
        typer.Option(
            "--blameless",
            help="In a right run, signals and lineage blame no agent, and what the workflow's passing runs in"
            " the store always did holds.",
        ),
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

    A test that was edited since is not overwritten.

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
    name = short_name(run.trajectory.run_id)
    test_file = out / f"test_pinned_{name}.py"
    _refuse_edited(test_file, name)
    options = GatewayOptions(allow_tools=frozenset(wanted.allow_tools))
    whole = tape_of(run, options)
    recorded = RecordedRun(trajectory=run.trajectory, trace=run.trace)
    document, _ = known_or_judged(recorded, kept, settings_here(None, "", None, None))
    rest = None if source.rest is None else open_run(source.rest, None, source.logs)[0]
    pinned = Pin(run=run, tape=whole, decisive=decisive_call(whole, document["step"]), rest=rest)
    rules = _rules(pinned, kept, wanted) if wanted.is_blameless else ""
    if rest is not None:
        refuse_luck(pinned, tape_of(rest, options))
    own, second, path = (out / place for place in beside(name))
    tape = _saved(run, own, options)
    if rest is not None:
        _saved(rest, second, options)
    path.write_text(rules, encoding="utf-8")
    answers = b"" if rest is None else second.read_bytes()
    files = Beside(tape=own.read_bytes(), rest=answers, rules=rules.encode())
    for place, content in files.files(name).items():
        if not content:
            (out / place).unlink(missing_ok=True)
    test_file.write_text(test_of(name, tape, document, wanted, files), encoding="utf-8")
    return test_file


def _refuse_edited(test_file: Path, name: str) -> None:
    """Refuse to overwrite a test, or a file beside it, that is not as ``pin`` wrote it.

    Raises:
        CommandFailed: somebody has edited one.
    """
    if not test_file.exists():
        return
    places = [test_file.parent / place for place in beside(name)]
    others = [place.read_bytes() if place.exists() else b"" for place in places]
    if not is_as_written(test_file.read_text(encoding="utf-8", errors="surrogateescape"), others):
        raise CommandFailed(
            f"{test_file}: it, or a file of it in {places[0].parent}, was edited since `blamespan pin` wrote"
            " it, and is not overwritten: move or delete the test first, or write to another --out"
        )


def _rules(pinned: Pin, kept: KeptTrace | None, wanted: Wanted) -> str:
    """Return the text of the rules that a blameless test asserts; say which of the workflow's it cannot."""
    has_answer = bool(wanted.expect or wanted.check)
    text, left_out = rules_asserted(pinned, _passing_facts(pinned.run, kept), has_answer=has_answer)
    for one in left_out:
        complain(f"{LEFT_OUT}{plain(one, _MOST_SHOWN)}")
    return text


def _passing_facts(run: Run, kept: KeptTrace | None) -> Sequence[Facts]:
    """Return what is known of the passing runs of a run's workflow; nothing without a store."""
    settings = settings_here(None, "", None, None)
    place = settings.store_place
    if isinstance(place, Path) and not place.is_file():
        return ()
    try:
        with opened_store(settings, "runs") as db:
            return passing_facts(db, tenant_of_kept(kept), service_of(run), workflow_of(run.trace.spans))
    except (CollectorError, sqlite3.Error) as error:
        complain(f"what the workflow's passing runs always did is left out: {error}")
        return ()


def _saved(run: Run, file: Path, options: GatewayOptions) -> Tape:
    """Write a run as a tape and return it as it will be read, without secrets; say where it had some."""
    file.parent.mkdir(parents=True, exist_ok=True)
    save_runs(file, [run], settings_here(None, "", None, None), mode="wb")
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
