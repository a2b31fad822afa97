"""A page shows the command that proves a verdict or tries a fix, as given last time, and its result."""

from __future__ import annotations

import json
from contextlib import closing
from html import unescape

import pytest
from aiohttp.test_utils import TestClient
from aiohttp.web import Application, Request

from analyzer.issues.recurrence import IssueState
from analyzer.records.proof_records import Report
from analyzer.web.pages.issue_page import experiment_command, source_of
from collector_processor.core.disk import RUNS
from collector_processor.otlp import NO_TENANT, Tenant
from collector_processor.rebuild.redaction import Redactor
from collector_processor.store.database.connection import open_database
from collector_processor.store.small_tables import ProofRows, StoredProof
from tests.security.test_hostile_text import HOSTILE
from tests.web.stage import Stage
from tests.web.test_compare import FAILED
from tests.web.test_pages import MARK, Page, blame, text_of

Client = TestClient[Request, Application]
GIVEN = {
    "options": ["--check", "grep -q 120", "--http-tool", "seats=API"],
    "command": ["python", "my agents.py"],
}


def result(head: str = "undecided", line: str = "too few trials", cell: str = "desk") -> Report:
    return Report(head=head, lines=(line,), columns=("step", "agent"), rows=(("1", cell),))


def keep(
    stage: Stage, subject: str, *, kind: str = "experiment", report: Report | None = None,
    given: dict[str, list[str]] | None = None, tenant: Tenant = NO_TENANT, service: str = "ferries",
) -> None:  # fmt: skip
    document = {**(report or result()).document(Redactor()), **(given or {})}
    with closing(open_database(stage.folder / RUNS)) as database, closing(database.connect()) as db:
        ProofRows(db).keep(
            StoredProof(
                tenant=tenant, subject=subject, kind=kind, service=service, ended_ns=1,
                document=json.dumps(document),
            )
        )  # fmt: skip


@pytest.mark.parametrize(
    ("document", "source"),
    [({}, "run-1"), ({"file": "out/run.json"}, "out/run.json"), ({"file": ""}, "FILE")],
    ids=["kept by the service", "saved", "kept nowhere"],
)
def test_a_command_reads_a_run_from_where_it_is_kept(document: dict[str, str], source: str) -> None:
    assert source_of(document, "run-1") == source
    command = experiment_command(source_of(document, "run-1"), ())
    assert command.line == f"blamespan experiment {source} --check CHECK -- COMMAND"
    assert command.is_kept == (source != "FILE")


async def test_a_runs_page_shows_the_last_command_and_then_its_result(stage: Stage, client: Client) -> None:
    await stage.add(FAILED, "ferries", blame(FAILED, 1))
    page = unescape(await text_of(client, "/runs/failed"))
    assert "blamespan experiment failed --check CHECK -- COMMAND</pre>" in page
    assert "Last experiment" not in page
    keep(stage, "another run of the service", given=GIVEN)
    keep(stage, "of another tenant", given={**GIVEN, "command": ["theirs.py"]}, tenant=Tenant("x=other"))
    keep(stage, "of another service", given={**GIVEN, "command": ["other.py"]}, service="shop")
    page = unescape(await text_of(client, "/runs/failed"))
    line = "experiment failed --check 'grep -q 120' --http-tool seats=API -- python 'my agents.py'"
    assert f'<pre class="plain">blamespan {line}</pre>' in page.partition("<dt>Prove it</dt>")[2]
    assert "theirs.py" not in page
    assert "other.py" not in page
    keep(stage, "failed", report=result("proved: step 1, clerk", "11 of 11"))
    page = unescape(await text_of(client, "/runs/failed"))
    assert "Last experiment: proved: step 1, clerk" in page
    assert "<li>11 of 11</li>" in page
    assert line in page, "a result that was kept without its command hides no earlier command"


async def test_an_issue_shows_how_to_try_a_fix_and_its_last_backtest(stage: Stage, client: Client) -> None:
    issue_id = stage.issues.add(MARK, IssueState.ONGOING, (1, 2), ("run-1",))
    page = unescape(await text_of(client, f"/issues/{issue_id}"))
    assert f"blamespan backtest {issue_id} --check CHECK -- COMMAND</pre>" in page
    keep(stage, "run-1", given=GIVEN, service=MARK.service)
    keep(
        stage, issue_id, kind="backtest", report=result("Fixed (proved): 9 of 9 today"), service=MARK.service
    )
    page = unescape(await text_of(client, f"/issues/{issue_id}"))
    command = f"blamespan backtest {issue_id} --check 'grep -q 120' -- python 'my agents.py'</pre>"
    assert command in page, "a backtest has no --http-tool"
    assert "Last backtest: Fixed (proved): 9 of 9 today" in page


def test_secrets_are_replaced_before_a_result_is_kept() -> None:
    secret = "sk-proj-aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5zA7bC9dE1fG3"
    document = result(secret, f"asked with {secret}", secret).document(Redactor())
    assert secret not in json.dumps(document)


@pytest.mark.parametrize("name", HOSTILE)
async def test_no_text_of_a_result_changes_a_page(stage: Stage, client: Client, name: str) -> None:
    await stage.add(FAILED, "ferries", blame(FAILED, 1))
    issue_id = stage.issues.add(MARK, IssueState.ONGOING, (1, 2), ("run-1",))
    shown = []
    for text in ("calm", HOSTILE[name]):
        given = {"options": ["--expect", text], "command": [text]}
        for subject, kind, service in (
            ("failed", "experiment", "ferries"), (issue_id, "backtest", MARK.service)
        ):  # fmt: skip
            report = result(text, text, text)
            keep(stage, subject, kind=kind, report=report, given=given, service=service)
        shown.append([Page(await text_of(client, path)) for path in ("/runs/failed", f"/issues/{issue_id}")])
    for calm, hostile in zip(*shown, strict=True):
        assert calm.attributes == hostile.attributes
        assert set(calm.tags) == set(hostile.tags)


@pytest.mark.parametrize(
    "document", [{}, {"head": 1, "rows": []}, {"head": "x", "rows": [1], "command": "rm"}]
)
async def test_a_damaged_result_breaks_no_page(
    stage: Stage, client: Client, document: dict[str, object]
) -> None:
    await stage.add(FAILED, "ferries", blame(FAILED, 1))
    with closing(open_database(stage.folder / RUNS)) as database, closing(database.connect()) as db:
        ProofRows(db).keep(
            StoredProof(
                tenant=NO_TENANT, subject="failed", kind="experiment", service="ferries", ended_ns=1,
                document=json.dumps(document),
            )
        )  # fmt: skip
    assert "--check CHECK" in await text_of(client, "/runs/failed")
