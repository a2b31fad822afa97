"""From a run's id to a label, and from labels to what a ranker learns from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from analyzer.labels import LabelKind, Said
from analyzer.labels.kept_run import pack
from analyzer.labels.labelling import NoSuchRun, find_run, give, keeper, lessons
from analyzer.labels.store import LabelStore, PackedRun
from collector_processor.analyst import Analysis
from collector_processor.otlp import NO_TENANT, Tenant
from collector_processor.redaction import keep, omit, redact
from collector_processor.runstore import RunStore
from collector_processor.stored import Commit, StoredVerdict
from collector_processor.stores import StoreError
from semconv.model import Abstention, Attribution, Blame, Status
from tests.runs import run, step, tool
from tests.verdicts import stored

RUN = run(
    step("planner", "plan\u200b for ann@example.org"), tool("clerk", "1,450"), step("analyst", "14,500")
)
VERDICT = stored()
OTHER = Tenant("x=b")
CORRECTED = Said(kind=LabelKind.CORRECTED, step=2)
CONFIRMED = Said(kind=LabelKind.CONFIRMED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    verdicts: RunStore
    labels: LabelStore

    def has(self, verdict: StoredVerdict = VERDICT, *, texts: bool = True) -> None:
        """Make as if the service had analysed the run."""
        self.verdicts.commit(Commit(analysed=(), verdicts=(verdict,)))
        packed = pack(replace(RUN, run_id=verdict.run_id), keep if texts else omit) or b""
        kept = PackedRun(tenant=verdict.tenant, run_id=verdict.run_id, is_failure=True, packed=packed)
        self.labels.keep(kept, 1)


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    both = Stores(verdicts=RunStore(tmp_path / "runs.sqlite"), labels=LabelStore(tmp_path / "labels.sqlite"))
    yield both
    both.verdicts.close()
    both.labels.close()


def test_a_run_is_found_by_the_beginning_of_its_id(stores: Stores) -> None:
    stores.has()
    stores.has(replace(VERDICT, run_id="other"))
    assert find_run(stores.verdicts, "r", None).run_id == "run-1"
    assert find_run(stores.verdicts, "run-1", None).run_id == "run-1"


@pytest.mark.parametrize("id_", ["", "nobody", "run-1x", "%", "r%", "\udcff", "run\x00"])
def test_an_id_of_no_run_is_said(stores: Stores, id_: str) -> None:
    stores.has()
    with pytest.raises(NoSuchRun, match="no run"):
        find_run(stores.verdicts, id_, None)


def test_a_beginning_of_several_is_told_with_them_unless_it_is_one_of_them(stores: Stores) -> None:
    stores.has()
    stores.has(replace(VERDICT, run_id="run-12"))
    assert find_run(stores.verdicts, "run-1", None).run_id == "run-1"
    with pytest.raises(NoSuchRun, match="several runs begin with 'run': run-1, run-12"):
        find_run(stores.verdicts, "run", None)


def test_a_run_of_two_tenants_needs_the_tenant(stores: Stores) -> None:
    stores.has()
    stores.has(replace(VERDICT, tenant=OTHER))
    with pytest.raises(NoSuchRun, match="several tenants have a run run-1: say which, of '', 'x=b'"):
        find_run(stores.verdicts, "run", None)
    assert find_run(stores.verdicts, "run", OTHER).tenant == OTHER
    with pytest.raises(NoSuchRun, match="no run"):
        find_run(stores.verdicts, "run", Tenant("x=c"))


def test_only_the_newest_verdict_is_meant(stores: Stores) -> None:
    stores.has()
    stores.has(replace(VERDICT, version=2, agent="planner", step=0))
    assert find_run(stores.verdicts, "run", None).version == 2


def test_what_is_corrected_or_confirmed_can_be_learned(stores: Stores) -> None:
    stores.has()
    stores.has(replace(VERDICT, run_id="run-2"))
    assert give(stores.labels, VERDICT, CORRECTED, 1).obstacle is None
    assert give(stores.labels, replace(VERDICT, run_id="run-2"), CONFIRMED, 2).obstacle is None
    found = lessons(stores.labels.labelled(NO_TENANT))
    assert [(one.label and (one.label.agent, one.label.step), one.source) for one in found.runs] == [
        (("analyst", 2), "shop"),
        (("clerk", 1), "shop"),
    ]
    assert found.left_out == {}


def test_what_teaches_nothing_is_left_out_and_counted(stores: Stores) -> None:
    kinds = {
        "rejected": Said(kind=LabelKind.REJECTED),
        "not a failure": Said(kind=LabelKind.NOT_A_FAILURE),
        "corrected without a step": Said(kind=LabelKind.CORRECTED, agent="analyst"),
    }
    for why, said in kinds.items():
        verdict = replace(VERDICT, run_id=why)
        stores.has(verdict)
        assert give(stores.labels, verdict, said, 1).obstacle == why
    bare = replace(VERDICT, run_id="bare")
    stores.has(bare, texts=False)
    assert give(stores.labels, bare, CORRECTED, 1).obstacle == "kept without its texts"
    assert give(stores.labels, replace(VERDICT, run_id="gone"), CONFIRMED, 1).obstacle == "not kept"
    found = lessons(stores.labels.labelled(NO_TENANT))
    assert found.runs == ()
    assert found.left_out == dict.fromkeys([*kinds, "kept without its texts", "not kept"], 1)


def test_a_rejection_takes_a_confirmation_back(stores: Stores) -> None:
    stores.has()
    give(stores.labels, VERDICT, CONFIRMED, 1)
    give(stores.labels, VERDICT, Said(kind=LabelKind.REJECTED), 2)
    assert lessons(stores.labels.labelled(NO_TENANT)).runs == ()


def test_a_damaged_run_costs_itself_alone(stores: Stores) -> None:
    stores.has()
    give(stores.labels, VERDICT, CONFIRMED, 1)
    stores.has(replace(VERDICT, run_id="run-2"))
    give(stores.labels, replace(VERDICT, run_id="run-2"), CONFIRMED, 1)
    stores.labels.keep(PackedRun(tenant=NO_TENANT, run_id="run-1", is_failure=True, packed=b"rot"), 9)
    found = lessons(stores.labels.labelled(NO_TENANT))
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


async def test_the_service_keeps_what_failed_redacted_and_of_the_rest_who_acted(stores: Stores) -> None:
    keep_runs = keeper(stores.labels, redact, lambda: 7, in_db)
    fine = replace(RUN, run_id="run-2")
    await keep_runs(NO_TENANT, [(RUN, analysis(Status.ATTRIBUTED)), (fine, analysis(Status.NO_FAILURE))])
    give(stores.labels, VERDICT, CORRECTED, 8)
    assert give(stores.labels, replace(VERDICT, run_id="run-2"), CORRECTED, 8).obstacle
    (learned,) = lessons(stores.labels.labelled(NO_TENANT)).runs
    assert learned.trajectory.steps[0].output == "plan for [e-mail]"


async def test_a_disk_that_refuses_costs_no_verdict(stores: Stores, caplog: pytest.LogCaptureFixture) -> None:
    async def full(*_call: object) -> None:
        raise StoreError("the label store cannot write: database or disk is full")

    await keeper(stores.labels, redact, lambda: 7, full)(NO_TENANT, [(RUN, analysis(Status.ATTRIBUTED))])
    assert "run cannot be kept for labels" in caplog.text
