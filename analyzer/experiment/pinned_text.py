"""The pytest file of a pinned run: the replay of its tape, and what a right answer is. Pure but for ``sys``.

All texts of the run are Python literals in it, so that none of them is code. Its last line is a checksum of
it and of the files beside it, so that ``pin`` never overwrites what a person has edited.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from analyzer.experiment.open_experiment import CannotReplay
from analyzer.experiment.replay.tape import Tape
from analyzer.inquiry.visible import visible
from semconv.record import record

_SHORT_ID: Final = 12
_SHORT_DIGEST: Final = 6
_TRACE_ID: Final = re.compile("[0-9a-f]{32}")
_SEAL: Final = "# `blamespan pin` overwrites this file and its tapes only if nobody has edited them: sha256 "
_MOST_WORDS: Final = 300


@record
class Wanted:
    """What the user says of the program, and of a right answer."""

    command: tuple[str, ...]
    expect: str | None
    check: tuple[str, ...]
    allow_tools: tuple[str, ...]
    is_blameless: bool = False
    """Whether a right run is also one in which signals, lineage and the workflow's rules blame no agent."""


def short_name(run_id: str) -> str:
    """Return the name of a run's test and tape, as a part of a Python name.

    It is the beginning of a trace's id, which is random. Many other ids may begin alike: a digest follows.
    """
    if _TRACE_ID.fullmatch(run_id):
        return run_id[:_SHORT_ID]
    word = re.sub(r"\W", "_", run_id, flags=re.ASCII)[:_SHORT_ID]
    return f"{word or 'run'}_{_digest(run_id.encode(errors='surrogatepass'))[:_SHORT_DIGEST]}"


@record
class Beside:
    """The files beside a test, as they are written."""

    tape: bytes
    rest: bytes = b""
    """The tape that answers the decisive call and all later ones; empty without one."""
    rules: bytes = b""
    """What the workflow's passing runs always did; empty if nothing is known."""

    def files(self, name: str) -> Mapping[str, bytes]:
        """Return the files by their paths beside the test; the empty ones are not to exist."""
        return dict(zip(beside(name), (self.tape, self.rest, self.rules), strict=True))


def beside(name: str) -> Sequence[str]:
    """Return the paths of a test's tape, second tape and rules."""
    return [f"tapes/{name}{ending}" for ending in (".json", ".rest.json", ".rules.jsonl")]


def sealed(test: str, others: Sequence[bytes]) -> str:
    """Return a test with the checksum of itself and of the files beside it."""
    return f"{test}\n{_SEAL}{_checksum(test, others)}\n"


def is_as_written(test: str, others: Sequence[bytes]) -> bool:
    """Tell whether a sealed test and the files beside it are still as ``pin`` wrote them."""
    text, _, seal = test.rpartition(f"\n{_SEAL}")
    return seal == f"{_checksum(text, others)}\n"


def _checksum(test: str, others: Sequence[bytes]) -> str:
    parts = (test.encode(errors="surrogateescape"), *others)
    return _digest(b"".join(bytes.fromhex(_digest(part.replace(b"\r\n", b"\n"))) for part in parts))


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def test_of(name: str, tape: Tape, document: Mapping[str, Any], wanted: Wanted, files: Beside) -> str:
    """Return the text of ``test_pinned_NAME.py``, which plays ``tapes/NAME.json``, with its checksum.

    Args:
        name: from ``short_name``.
        tape: the run's tape, as it is read from that file.
        document: the verdict as JSON.
        wanted: the program, and what a right answer is.
        files: the files beside the test.

    Raises:
        CannotReplay: the tape has no model call up to the decisive step.
    """
    decisive = decisive_call(tape, document["step"])
    return sealed(
        _rendered(name, decisive, verdict_line(document), wanted, files), [*files.files(name).values()]
    )


def verdict_line(document: Mapping[str, Any]) -> str:
    """Return a verdict's status, agent, step and reason on one line."""
    who = f"{document['agent']}, step {document['step']}: " if document["step"] is not None else ""
    return one_line(f"{document['status']}: {who}{document['reason']}")


def one_line(text: str) -> str:
    """Return the beginning of a text of a run, without line breaks and invisible characters."""
    return " ".join(visible(text).split())[:_MOST_WORDS]


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


def _rendered(name: str, decisive: int | None, verdict: str, wanted: Wanted, files: Beside) -> str:
    """Return the test. All texts of the run are Python literals, so that none of them is code."""
    words = [ascii(word) if word != sys.executable else "sys.executable" for word in wanted.command]
    head = _HEAD.format(
        imports=_NO_KEY_IMPORTS if files.rest else _IMPORTS,
        name=name,
        verdict=ascii(verdict),
        command=", ".join(words),
        decisive=decisive,
        expect=ascii(wanted.expect),
        check=ascii([*wanted.check]),
        blameless=wanted.is_blameless,
        answers=_REST.format(name=name) if files.rest else _HAS_KEY,
        rules=_RULES.format(name=name) if files.rules else "",
    )
    allowed = f", allow_tools={[*wanted.allow_tools]!a}" if wanted.allow_tools else ""
    body = _WHOLE if decisive is None else _UP_TO
    return (
        head
        + body.format(
            name=name,
            allowed=allowed,
            needs="" if files.rest else _NEEDS_KEY,
            rest="rest=REST" if files.rest else "live_calls=20",
            judges="judges=BLAMELESS, rules=RULES" if files.rules else "judges=BLAMELESS",
            judged=_JUDGED,
        )
    ).lstrip()


_IMPORTS: Final = "import os\nimport sys  # noqa: F401 - for COMMAND"
_NO_KEY_IMPORTS: Final = "import sys  # noqa: F401 - for COMMAND"
_HAS_KEY: Final = 'HAS_KEY = bool(os.environ.get("OPENAI_API_KEY") or os.environ.get("ANTHROPIC_API_KEY"))'
_REST: Final = 'REST = Path(__file__).parent / "tapes" / "{name}.rest.json"  # answers from DECISIVE on'
_RULES: Final = """\
RULES = Path(__file__).parent / "tapes" / "{name}.rules.jsonl"  # what passing runs always did, one a line
"""
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
BLAMELESS = {blameless}  # whether the run's signals, lineage and rules must blame no agent
{rules}{answers}

pytestmark = pytest.mark.skipif(not COMMAND, reason="COMMAND says how to run the workflow once")
'''
_NEEDS_KEY: Final = """
@pytest.mark.skipif(not HAS_KEY, reason="a key of the provider asks the decisive call anew")"""
_JUDGED: Final = """
    if BLAMELESS and replayed.blame is None:
        pytest.skip("no step of a known agent was seen, so nothing can be judged")
    assert not replayed.blame, replayed.blame"""
_UP_TO: Final = """

def test_{name}_still_asks_the_same_up_to_the_decisive_call() -> None:
    replayed = replay(TAPE, COMMAND, decisive=DECISIVE{allowed})
    assert replayed.reached, replayed.difference


@pytest.mark.skipif(not (EXPECTED or CHECK or BLAMELESS), reason="EXPECTED or CHECK says it"){needs}
def test_{name}_is_right_now() -> None:
    replayed = replay(TAPE, COMMAND, decisive=DECISIVE, {rest}, {judges}{allowed})
    assert replayed.reached, f"{{replayed.difference}}; recorded: {{VERDICT}}"
    assert replayed.is_right(EXPECTED, CHECK), VERDICT{judged}
"""
_WHOLE: Final = """

def test_{name}_plays_to_its_end() -> None:
    replayed = replay(TAPE, COMMAND, decisive=DECISIVE, {judges}{allowed})
    assert replayed.reached, replayed.difference
    assert replayed.is_right(EXPECTED, CHECK){judged}
"""
