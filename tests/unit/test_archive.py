"""The history in Parquet files: each verdict once, by day and tenant, without texts and secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import duckdb
import pytest

from analyzer.cli.archive import (
    SCHEMAS,
    SPECTRA,
    STEPS,
    VERDICTS,
    ArchiveBusy,
    ArchiveExport,
    Exported,
    only_exporter,
    partition,
    recorded,
)
from analyzer.cli.main import run as run_command
from analyzer.history.elements import elements_of, pack
from analyzer.issues.labels import kept_run
from analyzer.issues.labels.label_store import LabelStore, PackedRun
from collector_processor.core.records import Commit, RunFacts, StoredVerdict
from collector_processor.core.runs import RunTotals
from collector_processor.otlp import NO_TENANT, Tenant
from collector_processor.rebuild.redaction import ALL_KINDS, keep, make_redactor
from collector_processor.store.database.connection import StoreConnection, open_database
from collector_processor.store.verdicts import RunStore
from semconv.model import SpanStatus, StepKind
from tests.runs import failed_tool, run, step, tool
from tests.verdicts import stored

DAY_NS: Final = 86_400 * 10**9
NOON: Final = 1_767_268_800 * 10**9
"""2026-01-01 12:00 UTC."""
SECRET: Final = "sk-proj-" + "Ab1" * 24 + "T3BlbkFJ" + "Cd2" * 24
PROMPT: Final = "Tell me about the lighthouse."
ACME: Final = Tenant("x-scope-orgid=acme%2Feu")
STEPS_OF_RUN: Final = run(
    step("planner", "Ask the clerk.", StepKind.HANDOFF, target="clerk", input=PROMPT),
    tool("clerk", "1,450 each", input='{"year": 2023}', start_ns=NOON, end_ns=NOON + 2 * 10**9),
    failed_tool("clerk", f"refused {SECRET}"),
    task=PROMPT,
)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[StoreConnection]:
    with closing(open_database(tmp_path / "store.sqlite")) as database, closing(database.connect()) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "history"


def put(db: StoreConnection, *verdicts: StoredVerdict, trajectory: Any = STEPS_OF_RUN) -> None:
    """Store verdicts with the totals, the spectrum and the steps of their runs, as the service does."""
    runs = RunStore(db)
    runs.commit(Commit(analysed=(), verdicts=verdicts))
    facts = RunFacts(version="v1", release="2.0", elements=pack(elements_of(trajectory)))
    totals = RunTotals(workflow="advice", steps=3, started_ns=NOON, duration_ns=3 * 10**9)
    packed = kept_run.pack(trajectory, keep)
    assert packed is not None
    with runs.transaction():
        runs.totals.total([(one.tenant, one.run_id, totals) for one in verdicts])
        runs.history.note([(one.tenant, one.run_id, "failed", facts) for one in verdicts])
    names = {(one.tenant, one.run_id) for one in verdicts}
    kept = [PackedRun(tenant=t, run_id=name, is_failure=True, packed=packed) for t, name in names]
    LabelStore(db).keep(kept, NOON)


def verdict(number: int = 1, **fields: Any) -> StoredVerdict:
    document = {"method": "signals", "confidence": 0.7, "ranking": [{"step": 1, "probability": 0.7}]}
    given = {"run_id": f"{number:032x}", "decided_ns": NOON, "document": json.dumps(document)}
    return stored(**(given | fields))


CURRENT: Final = (
    "FROM verdicts QUALIFY row_number() OVER (PARTITION BY tenant, run_id ORDER BY version DESC) = 1"
)


def export(db: StoreConnection, folder: Path, tenant: Tenant | None = None) -> Exported:
    redactor = make_redactor(ALL_KINDS)
    with only_exporter(folder):
        return ArchiveExport(db, folder, redactor.redact).export(tenant)


def asked(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    """Ask as the recipe of docs/history.md does."""
    with duckdb.connect() as db:
        for table in SCHEMAS:
            files = db.read_parquet(
                f"{folder}/{table}/*/*/*.parquet", union_by_name=True, hive_partitioning=True
            )
            db.register(table, files)
        return db.execute(f"WITH runs AS ({CURRENT}) {sql}").fetchall()


def test_a_run_is_found_again_with_its_steps_and_its_spectrum(db: StoreConnection, folder: Path) -> None:
    put(db, verdict(tenant=ACME))
    spectra = len(elements_of(STEPS_OF_RUN))
    assert export(db, folder) == Exported(verdicts=1, steps=3, spectra=spectra, partitions=1)
    assert asked(folder, "SELECT day::TEXT, tenant, run_id, agent, step, workflow, outcome FROM runs") == [
        ("2026-01-01", ACME, f"{1:032x}", "clerk", 1, "advice", "failed")
    ]
    columns = "step, agent, kind, target, is_error, is_decisive, duration_s"
    assert asked(folder, f"SELECT {columns} FROM steps ORDER BY step") == [
        (0, "planner", "handoff", "clerk", False, False, None),
        (1, "clerk", "tool", "lookup", False, True, None),  # the compact encoding has no times
        (2, "clerk", "tool", "lookup", True, False, None),
    ]
    names = {one for (one,) in asked(folder, "SELECT name FROM spectra WHERE step = 1")}
    assert names == {element.key for element in elements_of(STEPS_OF_RUN) if element.step == 1}


def test_each_verdict_is_written_once_however_often_it_is_exported(db: StoreConnection, folder: Path) -> None:
    put(db, verdict(1), verdict(2))
    assert export(db, folder).verdicts == 2
    files = sorted(folder.rglob("*.parquet"))
    assert export(db, folder) == Exported()
    assert sorted(folder.rglob("*.parquet")) == files
    put(db, verdict(2, version=2, agent="planner"), verdict(3))
    assert export(db, folder).verdicts == 2
    assert asked(folder, "SELECT count(*), count(DISTINCT run_id) FROM verdicts") == [(4, 3)]
    current = asked(folder, "SELECT agent, version FROM runs ORDER BY run_id")
    assert current == [("clerk", 1), ("planner", 2), ("clerk", 1)]
    corrected = "SELECT count(*) FROM steps JOIN runs USING (tenant, run_id, version)"
    assert asked(folder, corrected) == [(9,)], "three steps of each run, those of the current verdict"


def test_what_the_store_has_forgotten_stays_in_the_files(db: StoreConnection, folder: Path) -> None:
    put(db, verdict(1))
    export(db, folder)
    db.execute("DELETE FROM verdict")
    put(db, verdict(2))
    export(db, folder)
    assert asked(folder, "SELECT count(*) FROM runs") == [(2,)]


def test_days_and_tenants_have_folders_of_their_own(db: StoreConnection, folder: Path) -> None:
    put(db, verdict(1), verdict(1, tenant=ACME), verdict(2, decided_ns=NOON + DAY_NS))
    assert export(db, folder).partitions == 3
    verdicts = folder / VERDICTS
    found = {str(file.parent.relative_to(verdicts)) for file in verdicts.rglob("*.parquet")}
    assert found == {
        "day=2026-01-01/tenant=none",
        "day=2026-01-01/tenant=x-scope-orgid%3Dacme%252Feu",
        "day=2026-01-02/tenant=none",
    }


def test_one_tenant_can_be_exported_alone(db: StoreConnection, folder: Path) -> None:
    put(db, verdict(1), verdict(2, tenant=ACME))
    assert export(db, folder, ACME).verdicts == 1
    assert asked(folder, "SELECT DISTINCT tenant FROM steps") == [(ACME,)]


@pytest.mark.parametrize(
    "tenant",
    ["x=../../../etc", "x=a/b\\c", "x=" + "%F0%9F%A6%8A" * 500, "x='; DROP TABLE runs; --", "x=*?[a]", "x= "],
)
def test_a_hostile_tenant_stays_inside_its_folder_and_is_told_apart(
    db: StoreConnection, folder: Path, tenant: str
) -> None:
    put(db, verdict(1, tenant=Tenant(tenant)), verdict(1, tenant=Tenant(tenant + "1")))
    export(db, folder)
    for file in folder.rglob("*.parquet"):
        assert len(file.relative_to(folder).parts) == 4
    assert {file.name for file in folder.parent.iterdir()} == {"history", "store.sqlite"} | {
        file.name for file in folder.parent.glob("store.sqlite-*")
    }
    found = [one for (one,) in asked(folder, "SELECT DISTINCT tenant FROM steps ORDER BY ALL")]
    assert len(found) == 2
    if len(tenant) < 50:
        assert found == [tenant, tenant + "1"]


def test_no_text_of_a_run_and_no_secret_reaches_a_file(db: StoreConnection, folder: Path) -> None:
    named = run(step(f"clerk {SECRET}", PROMPT), tool("clerk", PROMPT, target=SECRET), task=PROMPT)
    document = json.dumps({"reason": PROMPT, "fix": PROMPT, "model": SECRET, "mode": SECRET})
    put(db, verdict(agent=f"clerk {SECRET}", service=SECRET, document=document), trajectory=named)
    export(db, folder)
    everything = "".join(str(asked(folder, f"SELECT * FROM {table}")) for table in (VERDICTS, STEPS, SPECTRA))
    assert SECRET not in everything
    assert PROMPT not in everything
    assert asked(folder, "SELECT agent, model FROM runs") == [("clerk [key]", "[key]")]


def test_values_that_no_clock_and_no_unicode_has_are_exported(db: StoreConnection, folder: Path) -> None:
    odd = run(
        replace(step("a\ud800\x00b", "x"), start_ns=1 << 64, end_ns=(1 << 64) - 1, status=SpanStatus.ERROR)
    )
    put(db, verdict(), trajectory=odd)
    assert export(db, folder).steps == 1
    assert asked(folder, "SELECT agent, started_at FROM steps") == [("a?\x00b", None)]


def test_a_run_whose_steps_are_gone_keeps_its_verdict_and_its_spectrum(
    db: StoreConnection, folder: Path
) -> None:
    put(db, verdict(1), verdict(2))
    db.execute("DELETE FROM kept_run WHERE run_id = ?", (f"{1:032x}",))
    export(db, folder)
    assert asked(folder, "SELECT count(*) FROM runs") == [(2,)]
    assert asked(folder, "SELECT DISTINCT run_id FROM steps") == [(f"{2:032x}",)]
    shared = "SELECT element FROM spectra GROUP BY element HAVING count(*) = 2 AND count(name) = 1"
    assert len(asked(folder, shared)) == len(elements_of(STEPS_OF_RUN)), (
        "compared by element, named by another"
    )


def test_a_provisional_verdict_is_not_history(db: StoreConnection, folder: Path) -> None:
    put(db, verdict(is_provisional=True))
    assert export(db, folder) == Exported()


def test_an_export_that_was_cut_short_is_written_anew(db: StoreConnection, folder: Path) -> None:
    put(db, verdict(1))
    export(db, folder)
    (written,) = (folder / VERDICTS).rglob("*.parquet")
    written.unlink()  # the steps have their name already, the verdicts do not
    (written.parent / ".half.parquet.tmp").write_bytes(b"PAR1 and no more")
    assert export(db, folder).verdicts == 1
    assert asked(folder, "SELECT count(*) FROM steps") == [(3,)]
    assert {file.suffix for file in folder.rglob("*.*")} == {".parquet"}


def test_a_new_archive_is_its_owners_alone(db: StoreConnection, folder: Path) -> None:
    put(db, verdict())
    export(db, folder)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_two_exports_into_one_folder_do_not_meet(db: StoreConnection, folder: Path) -> None:
    put(db, verdict())
    with only_exporter(folder), pytest.raises(ArchiveBusy, match="another export"):
        export(db, folder)
    assert export(db, folder).verdicts == 1
    assert recorded(folder, partition("2026-01-01", NO_TENANT)) == {(f"{1:032x}", 1)}


def test_every_column_has_a_type_that_all_engines_read(db: StoreConnection, folder: Path) -> None:
    put(db, verdict())
    export(db, folder)
    types = {str(column.type) for schema in SCHEMAS.values() for column in schema}
    assert types == {"string", "int32", "int64", "double", "bool", "timestamp[us]"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["runs", "export"], "expected RUN, or --parquet DIR"),
        (["runs", "export", "abc", "--parquet", "x"], "expected RUN, or --parquet DIR"),
        (["runs", "export", "abc", "--since", "2026-01-01"], "--since belongs to --parquet"),
        (["runs", "export", "--parquet", "x", "--since", "yesterday"], "expected a day, such as 2026-01-31"),
    ],
)
def test_a_wrong_call_says_what_was_expected(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(arguments) == 2
    assert told in capsys.readouterr().err
