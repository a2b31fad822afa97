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
    is_blameless: bool = False
    """Whether a right run is also one in which signals and lineage blame no agent."""


def short_name(run_id: str) -> str:
    """Return the name of a run's test and tape: the beginning of its id, as a Python name."""
    return re.sub(r"\W", "_", run_id, flags=re.ASCII)[:_SHORT_ID] or "run"


def test_of(name: str, tape: Tape, document: Mapping[str, Any], wanted: Wanted, *, has_rest: bool) -> str:
    """Return the text of ``test_pinned_NAME.py``, which plays ``tapes/NAME.json``.

    Args:
        name: from ``short_name``.
        tape: the run's tape, as it is read from that file.
        document: the verdict as JSON.
        wanted: the program, and what a right answer is.
        has_rest: whether ``tapes/NAME.rest.json`` answers the decisive call and all later ones.

    Raises:
        CannotReplay: the tape has no model call up to the decisive step.
    """
    return _rendered(
        name, decisive_call(tape, document["step"]), verdict_line(document), wanted, has_rest=has_rest
    )


def verdict_line(document: Mapping[str, Any]) -> str:
    """Return a verdict's status, agent, step and reason on one line."""
    who = f"{document['agent']}, step {document['step']}: " if document["step"] is not None else ""
    words = visible(f"{document['status']}: {who}{document['reason']}")
    return " ".join(words.split())[:_MOST_WORDS]


def decisive_call(tape: Tape, decisive: int | None) -> int | None:
    """Return the model call to ask anew: that of the decisive step, or the last one before it.

    Raises:
        CannotReplay: the tape has no model call up to that step.
    """
    if decisive is None:
        return None
    call = tape.call_up_to(decisive)
    if call is None:
        raise CannotReplay("no model call was recorded up to the decisive step")
    return call.index


def _rendered(name: str, decisive: int | None, verdict: str, wanted: Wanted, *, has_rest: bool) -> str:
    """Return the test. All texts of the run are Python literals, so that none of them is code."""
    words = [ascii(word) if word != sys.executable else "sys.executable" for word in wanted.command]
    head = _HEAD.format(
        imports=_NO_KEY_IMPORTS if has_rest else _IMPORTS,
        name=name,
        verdict=ascii(verdict),
        command=", ".join(words),
        decisive=decisive,
        expect=ascii(wanted.expect),
        check=ascii([*wanted.check]),
        blameless=wanted.is_blameless,
        answers=_REST.format(name=name) if has_rest else _HAS_KEY,
    )
    allowed = f", allow_tools={[*wanted.allow_tools]!a}" if wanted.allow_tools else ""
    body = _WHOLE if decisive is None else _UP_TO
    return (
        head
        + body.format(
            name=name,
            allowed=allowed,
            needs="" if has_rest else _NEEDS_KEY,
            rest="rest=REST" if has_rest else "live_calls=20",
            judged=_JUDGED,
        )
    ).lstrip()


_IMPORTS: Final = "import os\nimport sys  # noqa: F401 - for COMMAND"
_NO_KEY_IMPORTS: Final = "import sys  # noqa: F401 - for COMMAND"
_HAS_KEY: Final = 'HAS_KEY = bool(os.environ.get("OPENAI_API_KEY") or os.environ.get("ANTHROPIC_API_KEY"))'
_REST: Final = 'REST = Path(__file__).parent / "tapes" / "{name}.rest.json"  # answers from DECISIVE on'
_HEAD: Final = '''
"""A recorded run, pinned by `blamespan pin`. Edit it freely; the tape holds the recorded answers."""

{imports}
from pathlib import Path

import pytest

from analyzer.cli.pinned import replay

VERDICT = {verdict}
TAPE = Path(__file__).parent / "tapes" / "{name}.json"
COMMAND = [{command}]  # runs the workflow once
DECISIVE = {decisive}  # number of the model call that is asked anew
EXPECTED = {expect}  # a right answer contains this
CHECK = {check}  # gets the answer on standard input; exit code 0 means that it is right
BLAMELESS = {blameless}  # whether the run's signals and lineage must blame no agent
{answers}

pytestmark = pytest.mark.skipif(not COMMAND, reason="COMMAND says how to run the workflow once")
'''
_NEEDS_KEY: Final = """
@pytest.mark.skipif(not HAS_KEY, reason="a key of the provider asks the decisive call anew")"""
_JUDGED: Final = """
    if BLAMELESS and replayed.blame is None:
        pytest.skip("no step of an agent was seen, so nothing can be judged")
    assert not replayed.blame, replayed.blame"""
_UP_TO: Final = """

def test_{name}_still_asks_the_same_up_to_the_decisive_call() -> None:
    replayed = replay(TAPE, COMMAND, decisive=DECISIVE{allowed})
    assert replayed.reached, replayed.difference


@pytest.mark.skipif(not (EXPECTED or CHECK or BLAMELESS), reason="EXPECTED or CHECK says it"){needs}
def test_{name}_is_right_now() -> None:
    replayed = replay(TAPE, COMMAND, decisive=DECISIVE, {rest}, judges=BLAMELESS{allowed})
    assert replayed.reached, f"{{replayed.difference}}; recorded: {{VERDICT}}"
    assert replayed.is_right(EXPECTED, CHECK), VERDICT{judged}
"""
_WHOLE: Final = """

def test_{name}_plays_to_its_end() -> None:
    replayed = replay(TAPE, COMMAND, decisive=DECISIVE, judges=BLAMELESS{allowed})
    assert replayed.reached, replayed.difference
    assert replayed.is_right(EXPECTED, CHECK){judged}
"""
