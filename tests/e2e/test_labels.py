"""From verdicts to a ranker: runs arrive, people label them, a model is trained, and it answers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.request import ProxyHandler, Request, build_opener

import pytest

from analyzer.cli.main import run
from analyzer.issues.labels.label_store import LabelStore
from collector_processor.otlp import NO_TENANT
from collector_processor.rebuild.encode import encode
from semconv.model import Span, TraceId
from tests.backends.forked import ran
from tests.e2e.line import Line, StartLine, environment, starting
from tests.e2e.traffic import send
from tests.factories import agent, chat, tool, workflow
from tests.unit.test_label_store import LABEL

TOPICS: Final = (
    "tides",
    "bees",
    "rails",
    "wool",
    "tea",
    "kites",
    "ferns",
    "clay",
    "salt",
    "owls",
    "ink",
    "oats",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        (line,) = self.out.splitlines()
        found: dict[str, Any] = json.loads(line)
        return found


def cli(data: Path, *arguments: object) -> Statement:
    command = [sys.executable, "-m", "analyzer", *map(str, arguments)]
    ended = ran(command, environ=environment(data_dir=str(data)))
    return Statement(code=ended.returncode, out=ended.stdout, err=ended.stderr)


def trace_id(number: int) -> TraceId:
    return TraceId(f"{number + 0xA0:02x}" * 16)


def failing(topic: str, id_: TraceId) -> list[Span]:
    """Return the spans of a run whose researcher's tool fails, while its writer writes regardless."""
    spans = [
        chat(3, parent=2, answer=f"First look up {topic}, then write it down."),
        agent(2, "planner", end=40),
        chat(5, parent=4, answer=f"I will look up {topic}."),
        tool(6, "lookup", parent=4, arguments=f'{{"topic": "{topic}"}}', error=f"no page about {topic}"),
        agent(4, "researcher", start=45, end=70),
        chat(8, parent=7, answer=f"All about {topic}: they are probably blue."),
        agent(7, "writer", start=75, end=90),
        workflow(1, task=f"Write about {topic}", error="the reader was not content"),
    ]
    return [replace(span, trace_id=id_) for span in spans]


def label_over_http(line: Line, run_id: str, verb: str, said: object) -> dict[str, Any]:
    url = f"{line.web}/api/runs/{run_id}/{verb}"
    request = Request(url, data=json.dumps(said).encode(), headers={"Content-Type": "application/json"})
    with build_opener(ProxyHandler({})).open(request, timeout=300) as answer:
        given: dict[str, Any] = json.load(answer)
        return given


def test_labels_make_a_ranker_that_answers_in_the_next_service(start_line: StartLine, tmp_path: Path) -> None:
    data, model = tmp_path / "data", tmp_path / "ranker.json"
    ids = [trace_id(number) for number in range(len(TOPICS))]
    line = start_line()
    for topic, id_ in zip(TOPICS, ids, strict=True):
        send(line, encode(failing(topic, id_)))
    told = [line.verdict(id_) for id_ in ids]
    assert {verdict["method"] for verdict in told} == {"signals"}

    # While the service runs: at the command line, and over its API.
    assert cli(data, "label", ids[0][:5], "right", "--format", "json").json["label"] == "confirmed"
    assert line.run(ids[0])["label"]["label"] == "confirmed"  # type: ignore[index]
    corrected = label_over_http(line, ids[1], "label", {"agent": "writer"})
    assert (corrected["agent"], corrected["can_be_learned"]) == ("writer", False)
    steps = {step for id_ in ids[1:3] for step in [label_over_http(line, id_, "label", {"step": 3})["step"]]}
    assert steps == {3}
    assert label_over_http(line, ids[10], "reject", None)["label"] == "rejected"
    early = cli(data, "train", "--out", model)
    assert (early.code, model.exists()) == (1, False)
    assert "has 3 different runs with a label to learn from, expected 10" in early.err
    assert line.terminate() == 0

    # And when it does not.
    for id_ in ids[3:10]:
        assert run(["label", id_, "--agent", "Writer", "--step", "3", "--data-dir", str(data)]) == 0
    assert cli(data, "label", ids[11], "--did-not-fail").code == 0

    trained = cli(data, "train", "--out", model, "--no-curve", "--folds", "2", "--format", "json")
    assert trained.code == 0, trained.err
    source = trained.json["source"]
    assert (source["kind"], source["n"], source["systems"]) == ("store", 10, {"test": 10})
    assert source["labels"] == {"confirmed": 1, "corrected": 9}
    assert source["left_out"] == {"rejected": 1, "not a failure": 1}
    assert len(source["labelled"]) == 2
    assert "1 of the labels are of no use for training: rejected" in trained.err

    line = start_line(ranker=str(model))
    fresh = trace_id(20)
    send(line, encode(failing("moss", fresh)))
    verdict = line.verdict(fresh)
    assert (verdict["method"], verdict["agent"]) == ("ranker", "writer")
    assert "trained on 10 labelled runs of test" in verdict["reason"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("label", "a0a0", "--agent", "clerk"), 1, "its agents are planner, researcher, writer"),
        (("label", "a0a0", "--step", "99"), 1, "its steps are 0 to 3"),
        (("label", "a0a0", "--step", "0", "--agent", "writer"), 1, "step 0 is planner's, not writer's"),
        (("label", "a0a0"), 2, "expected one of right, wrong, --agent"),
        (("label", "a0a0", "right", "--step", "1"), 2, "expected one of right, wrong, --agent"),
        (("label", "a0a0", "maybe"), 2, "maybe"),
        (("label", "a0a0", "--did-not-fail", "--step", "1"), 2, "expected one of right"),
        (("label", "a0a0", "--step", "x"), 2, "--step"),
        (("label",), 2, "RUN"),
        (("label", "nobody", "right"), 1, "no run 'nobody'"),
        (("label", "a", "wrong"), 1, "several runs begin with 'a'"),
        (("label", "a0a0", "right", "--tenant", "x=y"), 1, "no run 'a0a0'"),
        (("train", "--out", "m.json", "--tenant", "x=y"), 1, "has 0 different runs"),
        (("train", "runs.json", "--out", "m.json", "--tenant", "x=y"), 2, "exclude a DATASET"),
    ],
)
def test_an_invalid_label_is_refused_in_one_line(
    labelled_data: Path, arguments: Sequence[str], code: int, message: str
) -> None:
    said = cli(labelled_data, *arguments)
    assert (said.code, said.out) == (code, "")
    (line,) = said.err.splitlines()
    assert line.startswith("blamespan: ")
    assert message in line


def test_without_a_store_there_is_nothing_to_label(tmp_path: Path) -> None:
    said = cli(tmp_path / "none", "label", "a", "right")
    assert said.code == 1
    assert "holds no verdicts: expected the data directory" in said.err
    assert not (tmp_path / "none").exists(), "looking makes nothing"


@pytest.fixture(scope="module")
def labelled_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the data directory of a service that analysed two runs and ended."""
    folder = tmp_path_factory.mktemp("labelled")
    with starting(folder) as start:
        line = start()
        for number in range(2):
            send(line, encode(failing(TOPICS[number], trace_id(number))))
        for number in range(2):
            line.verdict(trace_id(number))
    return folder / "data"


def test_a_label_survives_a_kill(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path\n"
        "from analyzer.issues.labels.label_store import LabelStore\n"
        "from tests.unit.test_label_store import LABEL, packed\n"
        "store = LabelStore(Path(sys.argv[1]))\n"
        "store.keep([packed('run-1')], 1); store.add(LABEL)\n"
        "store._db.execute('BEGIN IMMEDIATE'); store._db.execute('DELETE FROM label')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = tmp_path / "killed.sqlite"
    died = subprocess.run([sys.executable, "-c", program, path], cwd=Path(__file__).parents[2], check=False)
    assert died.returncode == -signal.SIGKILL
    store = LabelStore(path)
    (found,) = store.labelled(NO_TENANT)
    assert (found.label, found.packed) == (LABEL, b"x" * 10)
    store.close()
