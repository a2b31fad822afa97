"""``blamespan gateway`` as a user starts it: its address, its answers, and its final report."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from analyzer.cli.main import run
from analyzer.experiment.replay.read_tape import read_tape
from analyzer.experiment.replay.tape import Tape
from tests.frameworks.catalogue import catalogue
from tests.frameworks.changes import runs_of
from tests.tapes import chat_body

FERRY = catalogue()["own_instrument"].fixture("normal")


def recorded(path: Path) -> Tape:
    found = read_tape(max(runs_of(path.read_bytes()), key=lambda each: len(each.trajectory.steps)))
    assert isinstance(found, Tape)
    return found


def test_it_answers_a_rerun_and_says_at_the_end_what_was_asked() -> None:
    command = [sys.executable, "-m", "analyzer", "gateway", "--tape", str(FERRY), "--format", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        announced: dict[str, Any] = json.loads(process.stdout.readline())
        for each in recorded(FERRY).calls:
            body = json.dumps(chat_body(each.messages)).encode()
            asked = urllib.request.Request(f"{announced['base_url']}/chat/completions", data=body)
            with urllib.request.urlopen(asked, timeout=300) as answer:
                message = json.loads(answer.read())["choices"][0]["message"]
            assert (message["content"] or "") == each.answer.text
        process.send_signal(signal.SIGINT)
        ended = json.loads(process.stdout.readline())
    assert announced["base_url"] == announced["environment"]["OPENAI_BASE_URL"]
    assert (ended["calls"], ended["served"], ended["live"], ended["invalid"]) == (5, 5, 0, None)
    assert process.returncode == 0


def test_a_run_that_cannot_be_replayed_is_refused_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    undeclared = catalogue()["openai_agents_genai"].fixture("normal")
    assert run(["gateway", "--tape", str(undeclared)]) == 1
    told = capsys.readouterr().err
    assert "undeclared_tool" in told
    assert "--allow-tool look_up_vessel" in told
    silent = catalogue()["autogen_native"].fixture("normal")
    assert run(["gateway", "--tape", str(silent)]) == 1
    assert "no_model_calls" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--listen", "0.0.0.0:0"], "lets other machines in: set BLAMESPAN_TOKEN"),
        (["--listen", "nowhere"], "host:port"),
        (["--trial", "guess"], "16 to 64"),
        (["--upstream", "file:///etc/passwd"], "http or https"),
        (["--until", "99"], "index of a model call"),
    ],
)
def test_wrong_usage_is_refused(
    options: list[str], told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BLAMESPAN_TOKEN", raising=False)
    assert run(["gateway", "--tape", str(FERRY), *options]) == 2
    assert told in capsys.readouterr().err
