"""What a model earns: labels and proofs on its own steps, per tenant, until the run is deleted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.analyses.analyst import RunAnalyst
from analyzer.analyses.models.scripted import ScriptedModel
from analyzer.cli.judged_runs import as_labels_say, judge
from analyzer.cli.recorded_runs import RecordedRun
from analyzer.inquiry.calibration import Worth, as_labelled
from analyzer.inquiry.verdict import to_json
from analyzer.issues.labels.label_store import Opinion, OpinionStore
from analyzer.issues.labels.run_label import Label, LabelKind
from analyzer.issues.labels.track_records import FRESH_S, TrackRecords, track_records, worths
from analyzer.methods.attribution import Attributor
from analyzer.methods.pooling import UNPROVED, Trust, trust_of
from analyzer.methods.without_model import judge_by_signals
from collector_processor.core.analysis import Earned, TrackRecord
from collector_processor.core.disk import RUNS, StoreError
from collector_processor.core.records import EXPERIMENT, Commit
from collector_processor.otlp import NO_TENANT, Tenant
from collector_processor.settings import Settings, load_settings
from collector_processor.store.deletion import delete_run
from semconv.model import Attribution, Blame, Outcome, Ranked, SpanId
from tests.issues import START, Bench
from tests.runs import failed_tool, run, step
from tests.verdicts import stored

MODEL = "provider/large"
OTHER = Tenant("x=b")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    found = Bench(folder=tmp_path)
    yield found
    found.close()


def span(step: int) -> SpanId:
    return SpanId(f"{step + 1:016x}")


def named(step: int) -> dict[str, object]:
    return {"step": step, "agent": "clerk", "span_id": span(step)}


def document(model: object, own: object, asked: str | None = MODEL) -> str:
    both = {"model": model, "without_model": own, "weight": 0.25, "right": 0, "labelled": 0}
    return json.dumps({"model": asked, "pooled": both})


def judged(bench: Bench, run_id: str = "run-1", *, model: int, own: int, **fields: Any) -> None:
    """Commit a verdict that blames step 1, after a model and signals named these steps."""
    told = {"run_id": run_id, "document": document(named(model), named(own))} | fields
    bench.verdicts.commit(Commit(analysed=(), verdicts=(stored(**told),)))


def labelled(bench: Bench, kind: LabelKind, step: int | None, **fields: Any) -> None:
    told: dict[str, Any] = {"tenant": NO_TENANT, "run_id": "run-1", "version": 1, "service": "shop"}
    place = None if step is None else span(step)
    told |= {"agent": "clerk", "step": step, "span_id": place, "labelled_ns": START}
    bench.labels.add(Label(kind=kind, **(told | fields)))


def opinion(bench: Bench, method: str, text: str, given_ns: int = 9) -> None:
    told = {"tenant": NO_TENANT, "run_id": "run-1", "method": method, "model": MODEL, "run_digest": ""}
    OpinionStore(bench.db).add(Opinion(**told, given_ns=given_ns, document=text))  # type: ignore[arg-type]


def records(bench: Bench, tenant: Tenant = NO_TENANT) -> Earned:
    return track_records(bench.labels, bench.verdicts, OpinionStore(bench.db), tenant)


def earned(**parts: float) -> Earned:
    return {MODEL: TrackRecord(**parts)}


@pytest.mark.parametrize(
    ("model", "own", "known"),
    [
        pytest.param(1, 1, {"labelled": 1, "right": 1}, id="both right"),
        pytest.param(1, 2, {"labelled": 1, "right": 1, "won": 1}, id="the model alone right"),
        pytest.param(2, 1, {"labelled": 1, "lost": 1}, id="signals alone right"),
        pytest.param(2, 3, {"labelled": 1}, id="neither right"),
    ],
)
def test_a_label_decides_whose_step_was_right(
    bench: Bench, model: int, own: int, known: dict[str, float]
) -> None:
    judged(bench, model=model, own=own)
    assert records(bench) == {}
    labelled(bench, LabelKind.CORRECTED, 1)
    assert records(bench) == earned(**known)


def test_a_rejection_counts_only_against_a_model_that_named_the_step(bench: Bench) -> None:
    judged(bench, model=1, own=1)
    judged(bench, "run-2", model=2, own=1)
    for run_id in ("run-1", "run-2"):
        labelled(bench, LabelKind.REJECTED, None, run_id=run_id)
    assert records(bench) == earned(labelled=1)


@pytest.mark.parametrize(
    "label",
    [(LabelKind.NOT_A_FAILURE, None), (LabelKind.CORRECTED, None)],
    ids=["no failure", "an agent without a step"],
)
def test_a_label_without_a_step_says_nothing_of_the_model(
    bench: Bench, label: tuple[LabelKind, int | None]
) -> None:
    judged(bench, model=1, own=1)
    labelled(bench, *label)
    assert records(bench) == {}


def test_the_newest_label_of_a_run_counts(bench: Bench) -> None:
    judged(bench, model=1, own=2)
    labelled(bench, LabelKind.CONFIRMED, 1)
    labelled(bench, LabelKind.CORRECTED, 2)
    assert records(bench) == earned(labelled=1, lost=1)


def test_a_moved_step_is_known_by_its_span_and_another_step_of_the_span_is_not_counted(bench: Bench) -> None:
    judged(bench, model=1, own=2)
    labelled(bench, LabelKind.CORRECTED, 1, span_id=span(7))
    assert records(bench) == earned(labelled=1)  # the same number, another span
    labelled(bench, LabelKind.CORRECTED, 5, span_id=span(1))
    assert records(bench) == {}


def test_a_proof_counts_half_and_a_persons_label_outranks_it(bench: Bench) -> None:
    judged(bench, model=1, own=2)
    opinion(bench, EXPERIMENT, json.dumps({"status": "attributed", "step": 1, "span_id": span(1)}))
    assert records(bench) == earned(labelled=0.5, right=0.5, won=0.5)
    labelled(bench, LabelKind.CORRECTED, 2)
    assert records(bench) == earned(labelled=1, lost=1)


def test_a_refutation_counts_half_against_the_model_that_named_the_step(bench: Bench) -> None:
    judged(bench, model=1, own=2)
    refuted = {"status": "undetermined", "proof": {"decision": "refuted", "step": 1, "span_id": span(1)}}
    opinion(bench, EXPERIMENT, json.dumps(refuted))
    assert records(bench) == earned(labelled=0.5)


def test_a_model_counts_once_for_a_run_by_its_first_answer(bench: Bench) -> None:
    judged(bench, model=2, own=3)
    opinion(bench, "auto", document(named(1), named(3)))
    judged(bench, model=1, own=3, version=2, decided_ns=10)
    opinion(bench, "auto", document(named(1), named(3), "provider/small"))
    labelled(bench, LabelKind.CORRECTED, 1)
    assert records(bench) == {
        MODEL: TrackRecord(labelled=1),
        "provider/small": TrackRecord(labelled=1, right=1, won=1),
    }


@pytest.mark.parametrize(
    "text",
    [
        "no JSON",
        "[]",
        document(None, None),
        document({"step": "1"}, named(1)),
        document(named(1), named(1), None),
        json.dumps({"model": MODEL, "pooled": 7}),
    ],
)
def test_a_damaged_document_counts_nothing(bench: Bench, text: str) -> None:
    judged(bench, model=1, own=1, document=text)
    labelled(bench, LabelKind.CORRECTED, 1)
    assert records(bench) == {}


def test_statements_of_a_run_are_deleted_with_it_and_stay_within_its_tenant(bench: Bench) -> None:
    for tenant in (NO_TENANT, OTHER):
        judged(bench, model=1, own=2, tenant=tenant)
    labelled(bench, LabelKind.CONFIRMED, 1, tenant=OTHER)
    labelled(bench, LabelKind.REJECTED, None, tenant=OTHER, run_id="run-2")
    assert (records(bench), records(bench, OTHER)) == ({}, earned(labelled=1, right=1, won=1))
    assert delete_run(bench.db, OTHER, "run-1")
    assert records(bench, OTHER) == {}


async def test_if_the_store_refuses_the_last_record_stays() -> None:
    now, reads = [0.0], iter((1.0, None, 2.0))

    async def read(_tenant: Tenant) -> Earned:
        labelled = next(reads)
        if labelled is None:
            raise StoreError("disk full")
        return earned(labelled=labelled)

    reader = TrackRecords(read, lambda: now[0])
    seen = []
    for now[0] in (0.0, FRESH_S - 1, FRESH_S, 2 * FRESH_S):
        seen.append((await reader(NO_TENANT))[MODEL].labelled)
    assert seen == [1, 1, 1, 2]


def settings_of(folder: Path) -> Settings:
    return load_settings({}, directory=folder, data_dir=folder)


def trusted(folder: Path, model: str = MODEL) -> Trust:
    asked = RunAnalyst(attributor=Attributor(model=ScriptedModel(replies=(), name=model)))
    return as_labels_say(asked, settings_of(folder)).attributor.trust


def test_a_command_on_files_trusts_a_model_by_the_labels_of_the_store(bench: Bench) -> None:
    for number in range(15):
        judged(bench, f"run-{number}", model=1, own=2)
        labelled(bench, LabelKind.CORRECTED, 1, run_id=f"run-{number}")
    assert trusted(bench.folder) == trust_of(TrackRecord(labelled=15, right=15, won=15))
    assert trusted(bench.folder, "provider/other") == UNPROVED


def test_labels_of_several_tenants_are_counted_separately(bench: Bench) -> None:
    judged(bench, model=1, own=2, tenant=OTHER)
    labelled(bench, LabelKind.CORRECTED, 1, tenant=OTHER)
    assert trusted(bench.folder).labelled == 1
    labelled(bench, LabelKind.CORRECTED, 1, tenant=NO_TENANT, run_id="run-2")
    assert trusted(bench.folder) == UNPROVED


def test_without_a_store_a_model_has_the_default_trust_and_no_store_is_created(tmp_path: Path) -> None:
    assert trusted(tmp_path) == UNPROVED
    assert not list(tmp_path.iterdir())


def test_an_unreadable_store_is_reported_and_the_command_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / RUNS).write_bytes(b"no database" * 1000)
    assert trusted(tmp_path) == UNPROVED
    assert "the labels of earlier runs are left out" in " ".join(capsys.readouterr().err.split())


def test_a_verdict_on_a_file_says_what_its_model_has_earned(bench: Bench) -> None:
    judged(bench, model=1, own=2)
    labelled(bench, LabelKind.CORRECTED, 1)
    reply = json.dumps({"reason": "it gave up", "step": 1, "evidence": [{"step": 1, "quote": "call"}]})
    asked = RunAnalyst(attributor=Attributor(model=ScriptedModel(replies=(reply,), name=MODEL)))
    failed = run(step("a", "plan"), step("b", "call"), failed_tool("b"), outcome=Outcome.FAILURE)
    (found,) = judge([RecordedRun(trajectory=failed)], asked, settings_of(bench.folder))
    assert found.attribution.pooled is not None
    assert (found.attribution.pooled.right, found.attribution.pooled.labelled) == (1, 1)


def shown(bench: Bench, run_id: str, *, confidence: float, step: int = 1, **more: object) -> None:
    """Commit a verdict by signals alone that blames a step for a loop."""
    fields = {
        "method": "signals",
        "mode": "loop",
        "confidence": confidence,
        "step": step,
        "span_id": span(step),
    }
    told = {"run_id": run_id, "step": step, "span_id": span(step), "document": json.dumps(fields | more)}
    bench.verdicts.commit(Commit(analysed=(), verdicts=(stored(**told),)))


def worth(bench: Bench, tenant: Tenant = NO_TENANT) -> Mapping[str, Worth]:
    return worths(bench.labels, bench.verdicts, OpinionStore(bench.db), tenant)


def test_evidence_is_counted_by_its_kind_with_the_confidence_that_signals_stated(bench: Bench) -> None:
    shown(bench, "run-1", confidence=0.3)
    shown(bench, "run-2", confidence=0.6, stated_confidence=0.4)
    shown(bench, "run-3", confidence=0.5)
    shown(bench, "run-4", confidence=0.5)
    labelled(bench, LabelKind.CONFIRMED, 1)
    labelled(bench, LabelKind.CORRECTED, 2, run_id="run-2")
    labelled(bench, LabelKind.REJECTED, None, run_id="run-3")
    assert worth(bench, OTHER) == {}
    assert worth(bench) == {"loop": Worth(labelled=3, right=1, stated=0.3 + 0.4 + 0.5)}


@pytest.mark.parametrize(
    "more",
    [{"method": "judge+signals"}, {"method": "signals+history"}, {"mode": ""}, {"stated_confidence": "much"}],
    ids=["a model's", "with other runs", "nothing stands out", "damaged"],
)
def test_only_evidence_of_signals_alone_is_counted(bench: Bench, more: dict[str, Any]) -> None:
    shown(bench, "run-1", confidence=0.3, **more)
    labelled(bench, LabelKind.CONFIRMED, 1)
    assert worth(bench) == {}


def test_a_command_on_files_corrects_a_confidence_by_the_labels_of_the_store(bench: Bench) -> None:
    failed = run(step("a", "plan"), step("b", "call"), failed_tool("b"), outcome=Outcome.FAILURE)
    own = judge_by_signals(failed)
    assert isinstance(own, Blame)
    for number in range(8):
        shown(bench, f"run-{number}", confidence=own.confidence, mode=own.mode)
        labelled(bench, LabelKind.CORRECTED, 2, run_id=f"run-{number}")
    asked = RunAnalyst(attributor=Attributor())
    (found,) = judge([RecordedRun(trajectory=failed)], asked, settings_of(bench.folder))
    verdict = found.attribution.verdict
    assert isinstance(verdict, Blame)
    assert verdict.confidence < own.confidence
    assert (verdict.step, found.attribution.stated) == (own.step, own.confidence)
    assert "Such evidence was right in 0 of 8 labelled runs" in verdict.reason
    assert to_json(found.attribution, failed)["stated_confidence"] == own.confidence


@given(
    right=st.integers(0, 300),
    wrong=st.integers(0, 300),
    stated=st.floats(0.01, 0.9),
    own=st.floats(0.01, 0.95),
)
def test_a_corrected_confidence_follows_the_labels(right: int, wrong: int, stated: float, own: float) -> None:
    n = right + wrong
    found = Worth(labelled=n, right=right, stated=stated * n).corrected(own)
    assert 0 < found <= max(0.9, own)
    if n < 5:
        assert found == own
    elif right < stated * n:
        assert found <= own + 1e-9
    one_more = Worth(labelled=n + 1, right=right + 1, stated=stated * n + stated)
    assert n < 5 or one_more.corrected(own) >= found - 1e-9


def test_the_ranking_keeps_its_order_and_its_sum_when_labels_raise_the_confidence() -> None:
    ranking = tuple(
        Ranked(step=at, agent="a", probability=share) for at, share in ((1, 0.4), (0, 0.35), (2, 0.2))
    )
    verdict = Blame(agent="a", step=1, reason="It looped.", confidence=0.4, mode="loop", ranking=ranking)
    told = Attribution(run_id="r", verdict=verdict, method="signals")
    found = as_labelled(told, {"loop": Worth(labelled=40, right=38, stated=16)}).verdict
    assert isinstance(found, Blame)
    assert found.confidence == found.ranking[0].probability > 0.8
    shares = [one.probability for one in found.ranking]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) <= 1
    assert (
        as_labelled(replace(told, method="ranker"), {"loop": Worth(labelled=40, stated=16)}).verdict
        is verdict
    )
