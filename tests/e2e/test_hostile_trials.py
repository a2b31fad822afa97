"""A hostile recorded run as input of trials: its names run nothing, write nowhere, and direct no call.

The run can be replayed, so that trials really start. Names of agents, models, spans and services are shell
commands, paths and terminal escapes, and its attributes name addresses and programs. ``experiment``,
``experiment --retry`` and ``inject`` then do what they do with any run.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.backends.forked import ran
from tests.backends.supervise import HOST, free_ports
from tests.e2e.test_experiment import KEPT, WORKFLOW, attribute, model, span, variables
from tests.e2e.test_experiment_retry import CHECK

PWNED: Final = "pwned"
NAME: Final = f"../../{PWNED}/$(touch {PWNED})`touch {PWNED}`;touch {PWNED}\x1b[2J\x1b]0;x\x07\u202e\n#x"
TASK: Final = "12 tickets at 35 and 30 at 14"
KEPT_FILE: Final = re.compile(r"(?:replay|step-\d+-[a-z]+)-\d+-(?:passed|failed)\.json")
ESCAPES: Final = {"\x1b", "\x07", "\u202e"}


def hostile(number: int, role: str, asked: str, answered: str, elsewhere: str) -> dict[str, Any]:
    """Return a model call with hostile names: what was asked and answered can be replayed."""
    made = span(number, role, asked, answered)
    changed = {"gen_ai.agent.name": f"{role}{NAME}", "gen_ai.request.model": f"m;touch {PWNED}"}
    more = {
        "server.address": elsewhere,
        "url.full": f"http://{elsewhere}/v1",
        "OPENAI_BASE_URL": elsewhere,
        "gen_ai.conversation.id": NAME,
        "gen_ai.agent.id": NAME,
        "mcp.server.command": f"touch {PWNED}",
        "code.file.path": f"/{PWNED}",
        "blamespan.trial": NAME,
        "process.command_line": f"touch {PWNED}",
    }
    kept = [each for each in made["attributes"] if each["key"] not in changed]
    made["attributes"] = [*(attribute(*pair) for pair in (changed | more).items()), *kept]
    return made | {"name": NAME}


def recorded(place: Path, total: int, elsewhere: str) -> Path:
    said = f"It is {total}."
    spans = [
        hostile(1, "clerk", TASK, said, elsewhere),
        hostile(2, "writer", f"{TASK} {said}", f"Pay {total}.", elsewhere),
    ]
    resource = {"attributes": [attribute("service.name", NAME), attribute("service.version", NAME)]}
    document = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]}
    place.write_text(json.dumps(document))
    return place


async def printed(folder: Path, *arguments: str, **more: str) -> tuple[int, str]:
    """Run a command of blamespan in the folder; return its exit code and all that it printed."""
    words = (sys.executable, "-m", "analyzer", *arguments)
    own = variables(folder / "data", **more)
    done = await asyncio.to_thread(ran, words, environ=own, folder=folder)
    return done.returncode, done.stdout + done.stderr


def unharmed(folder: Path, said: str) -> None:
    """Assert that nothing of the names was run, written, or sent to the terminal."""
    assert "Traceback" not in said, said[-3_000:]
    assert not ESCAPES & set(said)
    made = [path for place in (folder, folder.parent) for path in place.rglob(f"*{PWNED}*")]
    assert made == []


@pytest.mark.parametrize("form", ["table", "json"])
async def test_an_experiment_on_a_hostile_run(tmp_path: Path, form: str) -> None:
    folder, trials = tmp_path / "here", tmp_path / "here" / "trials"
    folder.mkdir()
    nobody = f"{HOST}:{free_ports(1)[0]}"
    place = recorded(folder / "trace.json", 820, nobody)
    (folder / "workflow.py").write_text(WORKFLOW + KEPT)
    async with model() as url:
        options = [
            "--expect",
            "840",
            "--upstream",
            url,
            "--max-calls",
            "100",
            "--step",
            "0",
            "--format",
            form,
        ]
        code, said = await printed(
            folder,
            *("experiment", str(place), *options, "--keep", str(trials)),
            *("--", sys.executable, "workflow.py"),
            RECORDED=str(place),
        )
    assert code in {0, 3}, said
    unharmed(folder, said)
    names = [path.name for path in trials.iterdir()]
    assert len(names) > 2
    assert all(map(KEPT_FILE.fullmatch, names)), names


async def test_a_retry_of_hostile_runs(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    (folder / "runs").mkdir(parents=True)
    nobody = f"{HOST}:{free_ports(1)[0]}"
    for number, total in enumerate((820, 840)):
        recorded(folder / "runs" / f"{number}.json", total, nobody)
    (folder / "check.py").write_text(CHECK)
    async with model() as url:
        options = ["--check", f"{sys.executable} check.py", "--upstream", url, "--max-calls", "60"]
        code, said = await printed(
            folder, "experiment", "runs", "--retry", *options, "--", sys.executable, "-c", WORKFLOW
        )
    assert code in {0, 1, 3}, said
    unharmed(folder, said)


async def test_faults_injected_into_a_hostile_run(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    nobody = f"{HOST}:{free_ports(1)[0]}"
    place = recorded(folder / "pass.json", 840, nobody)
    (folder / "workflow.py").write_text(WORKFLOW + KEPT)
    async with model() as url:
        options = ["--out", "faults.jsonl", "--expect", "840", "--upstream", url, "--max-calls", "100"]
        code, said = await printed(
            folder,
            *("inject", str(place), *options, "--kind", "wrong_value"),
            *("--", sys.executable, "workflow.py"),
            RECORDED=str(place),
        )
    assert code in {0, 1, 3}, said
    unharmed(folder, said)
    assert {path.name for path in folder.iterdir()} <= {"pass.json", "workflow.py", "faults.jsonl", "data"}
