"""``blamespan pin``: a recorded run as a pytest file and a tape."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from analyzer.cli.experiment_options import AllowToolOption, words_of
from analyzer.cli.experiment_runs import open_run
from analyzer.cli.judged_runs import known_or_judged, settings_here
from analyzer.cli.kept_runs import TenantOption
from analyzer.cli.output import CommandFailed, WrongUsage, complain, optional
from analyzer.cli.pinned import read_pinned
from analyzer.cli.recorded_runs import LogsOption, RecordedRun
from analyzer.cli.run_report import save_runs
from analyzer.experiment.open_experiment import tape_of
from analyzer.experiment.replay.gateway_options import GatewayOptions
from analyzer.experiment.replay.tape import Tape
from analyzer.inquiry.visible import visible
from semconv.record import record

_SHORT_ID: Final = 12
_MOST_WORDS: Final = 300


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
    wanted = _Wanted(
        command=tuple(command), expect=expect, check=checking, allow_tools=tuple(allow_tool or ())
    )
    for each in runs:
        test_file = _pin(each, tenant, logs or [], out, wanted)
        complain(f"wrote {test_file}, without secrets: `pytest {test_file}` runs it")


@record
class _Wanted:
    """What the user says of the program, and of a right answer."""

    command: tuple[str, ...]
    expect: str | None
    check: tuple[str, ...]
    allow_tools: tuple[str, ...]


def _parts(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    at = arguments.index("--") if "--" in arguments else len(arguments)
    runs, command = [*arguments[:at]], [*arguments[at + 1 :]]
    if not runs or (at < len(arguments) and not command):
        raise WrongUsage("pin: expected RUN… [-- COMMAND…]")
    return runs, command


def _pin(source: str, tenant: str | None, logs: Sequence[Path], out: Path, wanted: _Wanted) -> Path:
    run, kept = open_run(source, tenant, logs)
    whole = tape_of(run, GatewayOptions(allow_tools=frozenset(wanted.allow_tools)))
    settings = settings_here(None, "", None, None)
    recorded = RecordedRun(trajectory=run.trajectory, trace=run.trace)
    document, _ = known_or_judged(recorded, kept, settings)
    name = re.sub(r"\W", "_", run.trajectory.run_id, flags=re.ASCII)[:_SHORT_ID] or "run"
    folder = out / "tapes"
    folder.mkdir(parents=True, exist_ok=True)
    tape_file, test_file = folder / f"{name}.json", out / f"test_pinned_{name}.py"
    save_runs(tape_file, [run], (), settings, mode="wb")
    tape = read_pinned(tape_file, wanted.allow_tools)
    _say_what_is_lost(whole, tape)
    decisive = _decisive(tape, document["step"])
    test_file.write_text(_test(name, decisive, _words(document), wanted), encoding="utf-8")
    return test_file


def _words(document: Mapping[str, Any]) -> str:
    who = f"{document['agent']}, step {document['step']}: " if document["step"] is not None else ""
    words = visible(f"{document['status']}: {who}{document['reason']}")
    return " ".join(words.split())[:_MOST_WORDS]


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


def _decisive(tape: Tape, decisive: int | None) -> int | None:
    """Return the model call to ask anew: that of the decisive step, or the last one before it."""
    if decisive is None:
        return None
    at = [call.index for call in tape.calls if call.step is not None and call.step <= decisive]
    if not at:
        raise CommandFailed("no model call was recorded up to the decisive step")
    return max(at, key=lambda index: (tape.calls[index].step or 0, index))


def _test(name: str, decisive: int | None, verdict: str, wanted: _Wanted) -> str:
    """Return the test. All texts of the run are Python literals, so that none of them is code."""
    words = [ascii(word) if word != sys.executable else "sys.executable" for word in wanted.command]
    allowed = f", allow_tools={[*wanted.allow_tools]!a}" if wanted.allow_tools else ""
    head = _HEAD.format(
        name=name,
        verdict=ascii(verdict),
        command=", ".join(words),
        decisive=decisive,
        expect=ascii(wanted.expect),
        check=ascii([*wanted.check]),
    )
    body = _WHOLE if decisive is None else _UP_TO
    return (head + body.format(name=name, allowed=allowed)).lstrip()


_HEAD: Final = '''
"""A recorded run, pinned by `blamespan pin`. Edit it freely; the tape holds the recorded answers."""

import os
import sys  # noqa: F401 - for COMMAND
from pathlib import Path

import pytest

from analyzer.cli.pinned import replay

VERDICT = {verdict}
TAPE = Path(__file__).parent / "tapes" / "{name}.json"
COMMAND = [{command}]  # runs the workflow once
DECISIVE = {decisive}  # number of the model call that is asked anew
EXPECTED = {expect}  # a right answer contains this
CHECK = {check}  # gets the answer on standard input; exit code 0 means that it is right
HAS_KEY = bool(os.environ.get("OPENAI_API_KEY") or os.environ.get("ANTHROPIC_API_KEY"))

pytestmark = pytest.mark.skipif(not COMMAND, reason="COMMAND says how to run the workflow once")
'''
_UP_TO: Final = """

def test_{name}_still_asks_the_same_up_to_the_decisive_call() -> None:
    replayed = replay(TAPE, COMMAND, decisive=DECISIVE{allowed})
    assert replayed.reached, replayed.difference


@pytest.mark.skipif(not (EXPECTED or CHECK), reason="EXPECTED or CHECK says what a right answer is")
@pytest.mark.skipif(not HAS_KEY, reason="a key of the provider asks the decisive call anew")
def test_{name}_is_right_now() -> None:
    replayed = replay(TAPE, COMMAND, decisive=DECISIVE, live_calls=20{allowed})
    assert replayed.reached, replayed.difference
    assert replayed.is_right(EXPECTED, CHECK), VERDICT
"""
_WHOLE: Final = """

def test_{name}_plays_to_its_end() -> None:
    replayed = replay(TAPE, COMMAND, decisive=DECISIVE{allowed})
    assert replayed.reached, replayed.difference
    assert replayed.is_right(EXPECTED, CHECK)
"""
