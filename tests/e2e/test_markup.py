"""Commands print names that look like markup as they are, and none of them ends every later command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from analyzer.cli.main import run
from collector_processor.rebuild.encode import encode
from semconv.record import replace
from tests.e2e.line import StartLine
from tests.e2e.traffic import send
from tests.factories import TRACE, agent, chat, tool, workflow

AGENT: Final = "calc[/oops]"
SERVICE: Final = "[link=http://evil.example][red]shop"
TASK: Final = "add [/] up"
TOOL: Final = "sum[/x]"
Call = Callable[..., str]


def failing(words: str = "[bold]I try") -> bytes:
    spans = [
        chat(3, parent=2, answer=words),
        tool(4, TOOL, parent=2, error="[/red] no"),
        agent(2, AGENT, end=60),
        workflow(1, task=TASK, error="[/] wrong sum"),
    ]
    resource = replace(spans[0].resource, attributes={"service.name": SERVICE})
    return encode([replace(span, resource=resource) for span in spans])


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    monkeypatch.setenv("BLAMESPAN_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "400")

    def called(*words: str) -> str:
        code = run(words)
        said = capsys.readouterr()
        assert (code, said.err) == (0, ""), words
        return said.out

    return called


def test_no_command_obeys_a_name(start_line: StartLine, call: Call, tmp_path: Path) -> None:
    line = start_line(method="signals")
    for _ in range(2):
        send(line, failing())
    line.verdict(TRACE)
    assert line.terminate() == 0
    folder, file, other = str(tmp_path / "history"), tmp_path / "run.pb", tmp_path / "other.pb"
    file.write_bytes(failing())
    other.write_bytes(failing("[/bold]I wait"))
    shown = {
        "workflows": (call("workflows"), SERVICE),
        "label": (call("label", "--queue"), TASK),
        "issues": (call("issues"), AGENT),
        "steps": (call("steps", str(file)), AGENT),
        "attribute": (call("attribute", str(file)), AGENT),
        "diff": (call("diff", str(file), str(other)), AGENT),
        "lint": (call("lint", str(file)), ""),
        "export": (call("runs", "export", "--parquet", folder), ""),
    }
    for command, (said, name) in shown.items():
        assert name in said, (command, said)
        assert "\x1b" not in said
