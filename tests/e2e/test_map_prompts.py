"""``blamespan map`` on a terminal: each line is asked about, and what was answered is written."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
from pathlib import Path

from collector_processor.mapping_files import read_file
from collector_processor.rebuild.encode import encode
from semconv.dialects.mapped import SpanMapping
from tests.unit.dialects.test_generic import stated

PATIENCE_S = 120.0
"""For one question, on a loaded machine."""
QUESTION = re.compile(r"\(([a-z_, ]+); - drops it\) \[(\w+)\]: ?$")


class Terminal:
    """A terminal on which a command runs and asks."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        environ = {**os.environ, "PYTHONPATH": str(Path.cwd()), "TERM": "dumb", "COLUMNS": "400"}
        command = [sys.executable, "-m", "analyzer", "map", *arguments]
        with (folder / "out").open("wb") as out:
            self.process = subprocess.Popen(
                command, stdin=theirs, stdout=out, stderr=theirs, cwd=folder, env=environ
            )
        os.close(theirs)
        self._shown = ""

    def question(self) -> str | None:
        """Return the line that waits for an answer, ``None`` if the command ended."""
        while not QUESTION.search(self._shown):
            if not select.select([self._ours], [], [], PATIENCE_S)[0]:
                raise TimeoutError(self._shown)
            try:
                told = os.read(self._ours, 4096)
            except OSError:  # the other end is closed
                told = b""
            if not told:
                return None
            self._shown = (self._shown + told.decode()).replace("\r", "")
        return self._shown.rpartition("\n")[2]

    def answer(self, text: str) -> None:
        """Type an answer and Enter."""
        self._shown = ""
        os.write(self._ours, f"{text}\n".encode())

    def close(self) -> None:
        """Hang up."""
        os.close(self._ours)


def told(folder: Path, answers: dict[str, list[str]]) -> tuple[SpanMapping, list[str]]:
    """Play ``map``; to a question with one of the words, type its answers in turn, else Enter alone."""
    (folder / "trace.pb").write_bytes(encode(stated()))
    terminal, asked = Terminal(folder, "trace.pb"), []
    try:
        while (question := terminal.question()) is not None:
            asked.append(question)
            waiting = next((given for word, given in answers.items() if word in question and given), [""])
            terminal.answer(waiting.pop(0))
        assert terminal.process.wait(PATIENCE_S) == 0
    finally:
        terminal.process.kill()
        terminal.process.wait()
        terminal.close()
    return read_file(folder / "blamespan.mapping.yaml"), asked


def test_enter_keeps_every_line(tmp_path: Path) -> None:
    mapping, asked = told(tmp_path, {})
    assert mapping.fields["acme.agentName"] == "agent"
    assert mapping.kinds["llm_request"] == "llm"
    assert len(asked) == len(mapping.fields) + len(mapping.kinds) + len(mapping.names)


def test_a_line_is_corrected_dropped_or_asked_about_again(tmp_path: Path) -> None:
    answers = {
        "acme.agentName": ["nonsense", "target"],
        "acme.functionResult": ["-"],
        "llm_request": ["human"],
    }
    mapping, asked = told(tmp_path, answers)
    assert mapping.fields["acme.agentName"] == "target"
    assert "acme.functionResult" not in mapping.fields
    assert mapping.kinds["llm_request"] == "human"
    assert sum("acme.agentName" in question for question in asked) == 2
