"""The pytest file of a pinned run: the replay of its tape, and what a right answer is. Pure but for ``sys``.

All texts of the run are Python literals in it, so that none of them is code.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any, Final

from analyzer.experiment.open_experiment import CannotReplay
from analyzer.experiment.replay.tape import Tape
from analyzer.inquiry.visible import visible
from semconv.record import record

_SHORT_ID: Final = 12
_MOST_WORDS: Final = 300


@record
class Wanted:
    """What the user says of the program, and of a right answer."""

    command: tuple[str, ...]
    expect: str | None
    check: tuple[str, ...]
    allow_tools: tuple[str, ...]


def short_name(run_id: str) -> str:
    """Return the name of a run's test and tape: the beginning of its id, as a Python name."""
    return re.sub(r"\W", "_", run_id, flags=re.ASCII)[:_SHORT_ID] or "run"


def test_of(name: str, tape: Tape, document: Mapping[str, Any], wanted: Wanted) -> str:
    """Return the text of ``test_pinned_NAME.py``, which plays ``tapes/NAME.json``.

    Args:
        name: from ``short_name``.
        tape: the run's tape, as it is read from that file.
        document: the verdict as JSON.
        wanted: the program, and what a right answer is.

    Raises:
        CannotReplay: the tape has no model call up to the decisive step.
    """
    return _rendered(name, _decisive(tape, document["step"]), _words(document), wanted)


def _words(document: Mapping[str, Any]) -> str:
    who = f"{document['agent']}, step {document['step']}: " if document["step"] is not None else ""
    words = visible(f"{document['status']}: {who}{document['reason']}")
    return " ".join(words.split())[:_MOST_WORDS]


def _decisive(tape: Tape, decisive: int | None) -> int | None:
    """Return the model call to ask anew: that of the decisive step, or the last one before it."""
    if decisive is None:
        return None
    call = tape.call_up_to(decisive)
    if call is None:
        raise CannotReplay("no model call was recorded up to the decisive step")
    return call.index


def _rendered(name: str, decisive: int | None, verdict: str, wanted: Wanted) -> str:
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
