"""``train --promote``: when a new ranker takes over, and ``label --queue``, as a person sees them."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analyzer.cli.commands.train import read_store
from analyzer.cli.main import run
from analyzer.issues.labels.kept_run import pack
from analyzer.issues.labels.label_store import LabelStore, PackedRun
from analyzer.issues.labels.labelling import accept_label
from analyzer.issues.labels.queue import is_blind, is_random
from analyzer.issues.labels.run_label import LabelKind, Statement
from analyzer.lab.evaluation.training import ALPHA, Contest, Ruling, contest, log_evidence
from analyzer.methods.ranker import Panel, Ranker, Record, read_model, write_model
from analyzer.methods.ranker_features import FEATURES, VERSION
from collector_processor.core.disk import RUNS
from collector_processor.core.records import Commit
from collector_processor.core.runs import Run
from collector_processor.otlp import NO_TENANT
from collector_processor.rebuild.redaction import keep
from collector_processor.rebuild.runs import total_up
from collector_processor.store.verdicts import RunStore
from semconv.model import Trace
from tests.runs import run as a_run
from tests.runs import step
from tests.verdicts import stored

RUN = a_run(step("planner", "plan"), step("clerk", "1,450"), step("analyst", "14,500"))
RANDOM = [f"run-{n}" for n in range(9000) if is_random(("", f"run-{n}")) and not is_blind(("", f"run-{n}"))]
CHOSEN = [f"run-{n}" for n in range(9000) if not is_random(("", f"run-{n}"))]
BLIND = [each for each in CHOSEN if is_blind(("", each))]


class Store:
    """A data directory with runs and labels."""

    def __init__(self, folder: Path) -> None:
        self.verdicts = RunStore(folder / RUNS)
        self.labels = LabelStore(folder / RUNS)

    def add(self, run_id: str, confidence: float = 0.5) -> None:
        document = json.dumps({"ranking": [{"step": 1, "agent": "clerk", "probability": confidence}]})
        verdict = replace(stored(), tenant=NO_TENANT, run_id=run_id, agent="clerk", step=1, document=document)
        self.verdicts.commit(Commit(analysed=(), verdicts=(verdict,)))
        trajectory = replace(RUN, run_id=run_id)
        totals = total_up(Run(trace=Trace(spans=()), trajectory=trajectory))
        self.verdicts.totals.total([(NO_TENANT, run_id, totals)])
        packed = pack(trajectory, keep) or b""
        self.labels.keep([PackedRun(tenant=NO_TENANT, run_id=run_id, is_failure=True, packed=packed)], 1)

    def label(self, run_id: str, at_ns: int = 10, at_step: int = 2) -> None:
        self.add(run_id)
        (verdict,) = self.verdicts.find(run_id)
        accept_label(self.labels, verdict, Statement(kind=LabelKind.CORRECTED, step=at_step), at_ns)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BLAMESPAN_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("BLAMESPAN_RANKER", str(tmp_path / "ranker.json"))
    opened = Store(tmp_path)
    yield opened
    opened.verdicts.close()
    opened.labels.close()


def ranker(agent: str, **source: Any) -> str:
    """Return the file of a ranker that always blames this agent."""
    agents = ("planner", "clerk", "analyst")
    records = {name: Record(runs=50, blamed=50 if name == agent else 0) for name in agents}
    weights = (*[0.0] * len(FEATURES), 9.0, 0.0)
    card = {"source": {"kind": "store", "last_label_ns": 5, **source}}
    return write_model(
        Ranker(features_version=VERSION, steps=Panel(weights=weights), records=records, card=card)
    )


def promoted(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    code = run(["train", *arguments, "--format", "json"])
    said = capsys.readouterr()
    return code, json.loads(said.out) if said.out else said.err


def blamed_by(path: Path) -> str:
    records = read_model(path.read_text()).records
    return max(records, key=lambda name: records[name].blamed)


def rankers(tmp_path: Path, **source: Any) -> tuple[Path, Path]:
    champion, challenger = tmp_path / "ranker.json", tmp_path / "new.json"
    champion.write_text(ranker("clerk"))
    challenger.write_text(ranker("analyst", **source))
    return champion, challenger


def test_a_better_ranker_takes_over_and_can_be_taken_back(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    champion, _ = rankers(tmp_path)
    for run_id in RANDOM[:12]:
        store.label(run_id)
    code, found = promoted(capsys, "--promote", "new.json")
    assert (code, found["ruling"], found["promoted"], found["wins"], found["n"]) == (0, "promote", True, 7, 7)
    assert blamed_by(champion) == "analyst"
    assert promoted(capsys, "--rollback")[1]["rolled_back"]
    assert blamed_by(champion) == "clerk"
    assert promoted(capsys, "--rollback")[0] == 0  # taken back again
    assert blamed_by(champion) == "analyst"


def test_chosen_runs_do_not_count(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    champion, _ = rankers(tmp_path)
    for run_id in [*CHOSEN[:30], *RANDOM[:3]]:
        store.label(run_id)
    code, found = promoted(capsys, "--promote", "new.json")
    assert (code, found["ruling"], found["n"]) == (0, "undecided", 3)
    assert blamed_by(champion) == "clerk"
    assert not (tmp_path / "ranker.json.previous").exists()


def test_labels_that_a_ranker_was_trained_on_do_not_count(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rankers(tmp_path, last_label_ns=20)
    for run_id in RANDOM[:12]:
        store.label(run_id, at_ns=20)
    for run_id in RANDOM[12:15]:
        store.label(run_id, at_ns=21)
    assert promoted(capsys, "--promote", "new.json")[1]["n"] == 3
    champion, challenger = rankers(tmp_path, last_label_ns=20, without_random=True)
    champion.write_text(ranker("clerk", without_random=True))
    assert promoted(capsys, "--promote", str(challenger))[1]["promoted"]


def test_a_worse_ranker_is_refused(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    champion, challenger = rankers(tmp_path)
    challenger.write_text(ranker("planner"))
    for run_id in RANDOM[:12]:
        store.label(run_id, at_step=1)
    assert promoted(capsys, "--promote", "new.json")[1]["ruling"] == "reject"
    assert blamed_by(champion) == "clerk"


def test_a_ranker_that_does_not_say_what_it_saw_is_refused(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rankers(tmp_path, last_label_ns=None)
    store.label(RANDOM[0])
    code, said = promoted(capsys, "--promote", "new.json")
    assert code == 1
    assert "does not say which labels" in said


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], (2, "expected one of --out FILE, --promote FILE, --rollback")),
        (["--promote", "new.json", "--rollback"], (2, "expected one of --out FILE")),
        (["new.json", "--rollback"], (2, "train nothing")),
        (["--rollback"], (1, "no ranker was promoted")),
        (["--promote", "none.json"], (1, "No such file")),
    ],
)
def test_wrong_usage_is_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    expected: tuple[int, str],
) -> None:
    rankers(tmp_path)
    found, said = promoted(capsys, *arguments)
    assert (found, expected[1] in said) == (expected[0], True), said


@pytest.mark.usefixtures("store")
def test_without_a_ranker_in_use_nothing_is_replaced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("BLAMESPAN_RANKER")
    code, said = promoted(capsys, "--promote", "new.json")
    assert (code, "BLAMESPAN_RANKER is not set" in said) == (2, True)


def test_training_may_leave_out_the_random_runs(store: Store) -> None:
    for run_id in [*CHOSEN[:4], *RANDOM[:3]]:
        store.label(run_id, at_ns=77)
    every, others = read_store(None, None), read_store(None, None, lambda run: not is_random(run))
    assert (len(every.runs), len(others.runs)) == (7, 4)
    assert (every.source["last_label_ns"], every.source["without_random"]) == (77, False)
    assert others.source["without_random"] is True


def test_the_queue_is_listed_without_the_verdict_of_blind_questions(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = next(each for each in CHOSEN if each not in BLIND)
    store.add(shown, 0.1)
    store.add(BLIND[0], 0.9)
    store.label(CHOSEN[9])
    assert run(["label", "--queue", "--format", "json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["run_id"], each["blind"], each["agent"]) for each in found] == [
        (shown, False, "clerk"),
        (BLIND[0], True, None),
    ]
    assert run(["label", "--queue"]) == 0
    table = capsys.readouterr().out
    assert "clerk, step" in table
    assert "hidden until you answer" in table
    assert "1 newest failed run with an answer" in table


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("more", [[], ["--queue", "run-1"], ["--queue", "--step", "1"]])
def test_label_needs_a_run_or_the_queue(capsys: pytest.CaptureFixture[str], more: list[str]) -> None:
    assert run(["label", *more]) == 2
    assert "--queue" in capsys.readouterr().err


WIN, LOSS, BOTH, NEITHER = (False, True), (True, False), (True, True), (False, False)


def test_only_runs_on_which_exactly_one_ranker_is_right_count() -> None:
    found = contest([*[BOTH] * 50, *[NEITHER] * 50, WIN, LOSS])
    assert found == Contest(n=102, champion=51, challenger=51, wins=1, losses=1)
    assert found.ruling is Ruling.UNDECIDED


def test_a_better_ranker_is_promoted_and_a_worse_one_rejected() -> None:
    assert contest([WIN] * 8).ruling is Ruling.PROMOTE
    assert contest([LOSS] * 8).ruling is Ruling.REJECT
    assert contest([]).ruling is Ruling.UNDECIDED


def test_a_decision_is_final_whatever_follows() -> None:
    decided = contest([WIN] * 8)
    assert contest([*[WIN] * 8, *[LOSS] * 50]) == decided
    assert decided.n == 7


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (5, 0), (0, 5), (8, 1), (30, 12), (300, 280)])
def test_the_evidence_is_the_integral(wins: int, losses: int) -> None:
    steps = 20_000
    shares = [0.5 + (at + 0.5) / steps / 2 for at in range(steps)]
    mean = sum((2 * p) ** wins * (2 * (1 - p)) ** losses for p in shares) / steps
    assert math.exp(log_evidence(wins, losses)) == pytest.approx(mean, rel=1e-3)


def test_a_test_after_every_label_promotes_at_most_5_percent_of_equal_rankers() -> None:
    coin, wrong = random.Random(7), 0
    for _ in range(1000):
        results = ((coin.random() < 0.5, coin.random() < 0.5) for _ in range(200))
        wrong += contest(results).ruling is Ruling.PROMOTE
    assert wrong / 1000 <= ALPHA
