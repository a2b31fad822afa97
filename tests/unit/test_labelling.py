"""From a run's id to a label, and from labels to a ranker's training data."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from analyzer.analyses.prepared import keeping
from analyzer.issues.beside_verdicts import keeper
from analyzer.issues.labels.kept_run import ends_of, pack, unpack
from analyzer.issues.labels.label_store import LabelStore, PackedRun
from analyzer.issues.labels.labelling import NoSuchRun, accept_label, find_run, training_runs
from analyzer.issues.labels.run_label import LabelKind, LabelRefused, Statement
from collector_processor.core.analysis import Analysis, KeptRun
from collector_processor.core.records import Commit, StoredVerdict
from collector_processor.otlp import NO_TENANT, Tenant
from collector_processor.rebuild.redaction import keep, omit
from collector_processor.settings import load_settings
from collector_processor.store.deletion import delete_run
from collector_processor.store.verdicts import RunStore
from semconv.model import Abstention, Attribution, Blame, Status, Trajectory
from tests.issues import Bench
from tests.runs import run, step, tool
from tests.verdicts import stored, stored_without_blame

RUN = run(
    step("planner", "plan\u200b for ann@example.org"), tool("clerk", "1,450"), step("analyst", "14,500")
)
VERDICT = stored()
OTHER = Tenant("x=b")
CORRECTED = Statement(kind=LabelKind.CORRECTED, step=2)
CONFIRMED = Statement(kind=LabelKind.CONFIRMED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    verdicts: RunStore
    labels: LabelStore

    def has(self, verdict: StoredVerdict = VERDICT, *, texts: bool = True) -> None:
        """Store the run as if the service had analysed it."""
        self.verdicts.commit(Commit(analysed=(), verdicts=(verdict,)))
        packed = pack(replace(RUN, run_id=verdict.run_id), keep if texts else omit) or b""
        kept = PackedRun(tenant=verdict.tenant, run_id=verdict.run_id, is_failure=True, packed=packed)
        self.labels.keep([kept], 1)


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    both = Stores(verdicts=RunStore(tmp_path / "runs.sqlite"), labels=LabelStore(tmp_path / "runs.sqlite"))
    yield both
    both.verdicts.close()
    both.labels.close()


def test_a_run_is_found_by_the_beginning_of_its_id(stores: Stores) -> None:
    stores.has()
    stores.has(replace(VERDICT, run_id="other"))
    assert find_run(stores.verdicts, "r", None).run_id == "run-1"
    assert find_run(stores.verdicts, "run-1", None).run_id == "run-1"


@pytest.mark.parametrize("id_", ["", "nobody", "run-1x", "%", "r%", "\udcff", "run\x00"])
def test_an_unknown_run_id_is_reported(stores: Stores, id_: str) -> None:
    stores.has()
    with pytest.raises(NoSuchRun, match="no run"):
        find_run(stores.verdicts, id_, None)


def test_an_ambiguous_beginning_lists_the_runs_unless_it_is_a_whole_id(stores: Stores) -> None:
    stores.has()
    stores.has(replace(VERDICT, run_id="run-12"))
    assert find_run(stores.verdicts, "run-1", None).run_id == "run-1"
    with pytest.raises(NoSuchRun, match="several runs begin with 'run': run-1, run-12"):
        find_run(stores.verdicts, "run", None)


def test_a_run_of_two_tenants_needs_the_tenant(stores: Stores) -> None:
    stores.has()
    stores.has(replace(VERDICT, tenant=OTHER))
    with pytest.raises(NoSuchRun, match="several tenants have a run run-1: name one of '', 'x=b'"):
        find_run(stores.verdicts, "run", None)
    assert find_run(stores.verdicts, "run", OTHER).tenant == OTHER
    with pytest.raises(NoSuchRun, match="no run"):
        find_run(stores.verdicts, "run", Tenant("x=c"))


def test_a_label_is_about_the_newest_verdict_only(stores: Stores) -> None:
    stores.has()
    stores.has(replace(VERDICT, version=2, agent="planner", step=0))
    assert find_run(stores.verdicts, "run", None).version == 2


def test_corrected_and_confirmed_runs_are_training_data(stores: Stores) -> None:
    stores.has()
    stores.has(replace(VERDICT, run_id="run-2"))
    assert accept_label(stores.labels, VERDICT, CORRECTED, 1).obstacle is None
    assert accept_label(stores.labels, replace(VERDICT, run_id="run-2"), CONFIRMED, 2).obstacle is None
    found = training_runs(stores.labels.labelled(NO_TENANT))
    assert [(one.label and (one.label.agent, one.label.step), one.source) for one in found.runs] == [
        (("analyst", 2), "shop"),
        (("clerk", 1), "shop"),
    ]
    assert found.left_out == {}


def test_a_persons_reason_is_stored_without_secrets(stores: Stores) -> None:
    stores.has()
    accept_label(stores.labels, VERDICT, replace(CORRECTED, why="see ann@example.org"), 1)
    assert [label.why for label in stores.labels.labels(NO_TENANT, VERDICT.run_id)] == ["see [e-mail]"]


def test_a_statement_is_checked_while_verdicts_can_be_written(stores: Stores, tmp_path: Path) -> None:
    def clean(text: str) -> str:
        with closing(sqlite3.connect(tmp_path / "runs.sqlite", timeout=0)) as other:
            other.execute("BEGIN IMMEDIATE")  # raises if the store is locked
        return text

    stores.has()
    accept_label(stores.labels, VERDICT, replace(CORRECTED, why="why"), 1, clean=clean)
    assert [label.why for label in stores.labels.labels(NO_TENANT, VERDICT.run_id)] == ["why"]


def test_a_statement_is_checked_again_if_the_run_changed_meanwhile(stores: Stores) -> None:
    stores.has()
    asked = list[str]()

    def clean(text: str) -> str:
        if not asked:
            stores.has(texts=False)
        asked.append(text)
        return text

    given = accept_label(stores.labels, VERDICT, replace(CORRECTED, why="why"), 1, clean=clean)
    assert (given.obstacle, len(asked)) == ("kept without its texts", 2)


def test_a_run_that_is_deleted_while_a_statement_is_checked_gets_no_label(stores: Stores) -> None:
    def clean(text: str) -> str:
        delete_run(stores.verdicts._db, NO_TENANT, VERDICT.run_id)
        return text

    stores.has()
    statement = Statement(kind=LabelKind.REJECTED, why="why")
    with pytest.raises(LabelRefused, match="run-1 has been deleted"):
        accept_label(stores.labels, VERDICT, statement, 1, verdicts=stores.verdicts, clean=clean)
    assert stores.labels.labels(NO_TENANT, VERDICT.run_id) == []


def test_labels_without_training_value_are_left_out_and_counted(stores: Stores) -> None:
    kinds = {
        "rejected": Statement(kind=LabelKind.REJECTED),
        "not a failure": Statement(kind=LabelKind.NOT_A_FAILURE),
        "corrected without a step": Statement(kind=LabelKind.CORRECTED, agent="analyst"),
    }
    for why, statement in kinds.items():
        verdict = replace(VERDICT, run_id=why)
        stores.has(verdict)
        assert accept_label(stores.labels, verdict, statement, 1).obstacle == why
    bare = replace(VERDICT, run_id="bare")
    stores.has(bare, texts=False)
    assert accept_label(stores.labels, bare, CORRECTED, 1).obstacle == "kept without its texts"
    assert accept_label(stores.labels, replace(VERDICT, run_id="gone"), CONFIRMED, 1).obstacle == "not kept"
    found = training_runs(stores.labels.labelled(NO_TENANT))
    assert found.runs == ()
    assert found.left_out == dict.fromkeys([*kinds, "kept without its texts", "not kept"], 1)


def test_a_rejection_replaces_a_confirmation(stores: Stores) -> None:
    stores.has()
    accept_label(stores.labels, VERDICT, CONFIRMED, 1)
    accept_label(stores.labels, VERDICT, Statement(kind=LabelKind.REJECTED), 2)
    assert training_runs(stores.labels.labelled(NO_TENANT)).runs == ()


def test_a_damaged_run_affects_no_other(stores: Stores) -> None:
    stores.has()
    accept_label(stores.labels, VERDICT, CONFIRMED, 1)
    stores.has(replace(VERDICT, run_id="run-2"))
    accept_label(stores.labels, replace(VERDICT, run_id="run-2"), CONFIRMED, 1)
    stores.labels.keep([PackedRun(tenant=NO_TENANT, run_id="run-1", is_failure=True, packed=b"rot")], 9)
    found = training_runs(stores.labels.labelled(NO_TENANT))
    assert ([one.trajectory.run_id for one in found.runs], found.left_out) == (["run-2"], {"not kept": 1})


async def in_db(call: object, *args: object) -> object:
    return call(*args)  # type: ignore[operator]


def analysis(status: Status) -> Analysis:
    verdict = (
        Blame(agent="clerk", step=1, reason="r", confidence=0.5)
        if status is Status.ATTRIBUTED
        else Abstention(status=status, reason="r")
    )
    return Analysis(attribution=Attribution(run_id="run-1", verdict=verdict, method="m"), document="{}")


def kept(run: Trajectory, status: Status) -> tuple[Tenant, KeptRun]:
    return NO_TENANT, keeping(load_settings({"BLAMESPAN_REDACT": "none"}))(run, analysis(status))


async def test_the_service_keeps_redacted_failed_runs_and_only_the_agents_of_others(tmp_path: Path) -> None:
    bench = Bench(folder=tmp_path)
    keep_runs = keeper(bench.beside)
    fine = stored_without_blame("no_failure", run_id="run-2")
    await keep_runs([kept(RUN, Status.ATTRIBUTED), kept(replace(RUN, run_id="run-2"), Status.NO_FAILURE)])
    assert bench.labels.kept(NO_TENANT, "run-1") is None, "it is kept with its verdict"
    bench.verdicts.commit(Commit(analysed=(), verdicts=(VERDICT, fine)))
    accept_label(bench.labels, VERDICT, CORRECTED, 8)
    assert accept_label(bench.labels, fine, CORRECTED, 8).obstacle
    (learned,) = training_runs(bench.labels.labelled(NO_TENANT)).runs
    assert learned.trajectory.steps[0].output == "plan for [e-mail]"
    bench.close()


ANN = "ann@example.org"


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({"export_text": "redacted"}, ("Write to [e-mail]", "Sent to [e-mail].")),
        ({"export_text": "full"}, (f"Write to {ANN}", f"Sent to {ANN}.")),
        ({"export_text": "none"}, ("", "")),
        ({"keep_passed_bytes": 0}, ("Write to [e-mail]", "")),
    ],
)
def test_a_run_that_passed_keeps_its_task_and_its_answer_as_the_settings_allow(
    settings: dict[str, Any], shown: tuple[str, str]
) -> None:
    asked = replace(RUN, task=f"Write to {ANN}", output=f"Sent to {ANN}.")
    told = load_settings({"BLAMESPAN_REDACT": "none"}).model_copy(update=settings)
    packed = keeping(told)(asked, analysis(Status.NO_FAILURE)).packed
    assert packed is not None
    assert ends_of(packed, 100) == shown
    assert [one.output for one in unpack(packed).trajectory.steps] == ["", "", ""]


def test_a_long_task_of_a_run_that_passed_is_shortened() -> None:
    long_task = replace(RUN, task="Sum up: " + 100_000 * "very long ")
    packed = pack(long_task, lambda _text: "", {"task": lambda text: text})
    assert packed is not None
    assert unpack(packed).trajectory.task.startswith("Sum up: very long ")
    assert len(unpack(packed).trajectory.task) < 1_100
