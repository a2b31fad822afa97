"""Doctor's checks besides settings, each with a sound and a broken case; no message is sent."""

from __future__ import annotations

import socket
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from aiohttp import web
from aiohttp.test_utils import TestServer

from analyzer.cli.checks import (
    Finding,
    Health,
    check_certificate,
    check_earned,
    check_journal,
    check_listener,
    check_notifiers,
    check_privacy,
    check_scores,
    check_store,
    check_worths,
)
from analyzer.inquiry.calibration import Worth
from collector_processor.core.analysis import TrackRecord
from collector_processor.core.disk import RUNS
from collector_processor.core.records import AbsentParent
from collector_processor.core.scores import ScoreBackend
from collector_processor.otlp import NO_TENANT
from collector_processor.settings import load_settings
from collector_processor.settings.value_types import ScoreTarget
from collector_processor.store.verdicts import RunStore

PROBES = ("/v1/projects", "/api/2.0/mlflow/experiments/search", "/api/public/projects")
NOW_S = 1_800_000_000.0


@dataclass(slots=True)
class Somebody:
    """An HTTP server with scripted answers that keeps the requests."""

    statuses: dict[str, int] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    url: str = ""

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append((request.method, request.path))
        return web.Response(
            status=self.statuses.get(request.path, 200), text=self.texts.get(request.path, "")
        )


@pytest.fixture
async def somebody() -> AsyncIterator[Somebody]:
    server = Somebody()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    async with TestServer(app) as opened:
        server.url = str(opened.make_url("")).rstrip("/")
        yield server


def nobody() -> str:
    """Return an address without a listener."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


async def test_receivers_are_connected_to_and_told_nothing(somebody: Somebody) -> None:
    told = dict.fromkeys(("slack", "webhook"), f"{somebody.url}/secret/part")
    found = await check_notifiers(told)
    assert [one.health for one in found] == [Health.OK] * 2
    assert somebody.asked == []
    assert [one for one in found if "secret" in one.detail] == []


async def test_receivers_that_cannot_be_reached_fail_without_their_secret() -> None:
    url = f"{nobody()}/services/T0/B0/secret?token=hidden"
    found = await check_notifiers(dict.fromkeys(("slack", "webhook"), url))
    assert [one.health for one in found] == [Health.FAILED] * 2
    assert [one.mend.split(",")[0] for one in found] == ["correct BLAMESPAN_NOTIFY_URL"] * 2
    assert [one for one in found if "secret" in one.detail or "hidden" in one.detail] == []


async def test_backends_of_scores_are_asked_for_their_credentials_and_given_nothing(
    somebody: Somebody,
) -> None:
    for backend in ScoreBackend:
        target = ScoreTarget(backend=backend, tenant=NO_TENANT, url=somebody.url)
        somebody.texts, somebody.statuses = dict.fromkeys(PROBES, "{}"), {}
        (told,) = await check_scores([target])
        assert (told.check, told.health) == (f"scores:{backend}", Health.OK)
        somebody.statuses = dict.fromkeys(PROBES, 401)
        (refused,) = await check_scores([target])
        assert refused.health is Health.FAILED
        assert target.variables[0] in refused.mend
    (away,) = await check_scores([replace(target, url=nobody())])
    assert (away.health, "refused" in away.detail) == (Health.FAILED, True)
    assert {path for _, path in somebody.asked} == set(PROBES)


async def test_our_own_door_is_known_from_another_program(somebody: Somebody) -> None:
    assert (await check_listener(somebody.url, None)).health is Health.OK
    somebody.texts = {"/healthz": "degraded\nthe store of journal refuses: spans are refused\n"}
    told = await check_listener(somebody.url, None)
    assert (told.health, "the store of journal refuses" in told.detail) == (Health.FAILED, True)
    somebody.statuses = {"/readyz": 404}
    assert (await check_listener(somebody.url, None)).health is Health.WARNING
    assert (await check_listener(nobody(), None)).health is Health.FAILED


def written(folder: Path, *, ends_in_days: float, begins_in_days: float = -400) -> tuple[Path, Path]:
    now = datetime.now(tz=UTC)
    leaf = trustme.CA().issue_cert(
        "localhost",
        not_before=now + timedelta(days=begins_in_days),
        not_after=now + timedelta(days=ends_in_days),
    )
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    certificate.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
    key.write_bytes(leaf.private_key_pem.bytes())
    return certificate, key


@pytest.mark.parametrize(
    ("days", "begins", "health", "word"),
    [
        (60, -400, Health.OK, "is valid until"),
        (7, -400, Health.WARNING, "is valid until"),
        (-1, -400, Health.FAILED, "has expired"),
        (60, 2, Health.FAILED, "not yet valid"),
    ],
    ids=["long", "a week", "over", "not begun"],
)
def test_a_certificate_is_told_by_its_end(
    tmp_path: Path, days: float, begins: float, health: Health, word: str
) -> None:
    certificate, key = written(tmp_path, ends_in_days=days, begins_in_days=begins)
    found = check_certificate("TLS", certificate, key, datetime.now(tz=UTC).timestamp())
    assert (found.health, word in found.detail) == (health, True), found.detail


@pytest.mark.parametrize("content", [b"", b"not PEM at all", b"\x00\xff" * 999])
def test_a_file_that_is_no_certificate_is_said_to_be_none(tmp_path: Path, content: bytes) -> None:
    certificate, key = written(tmp_path, ends_in_days=60)
    certificate.write_bytes(content)
    found = check_certificate("TLS", certificate, key, NOW_S)
    assert (found.health, str(certificate) in found.detail) == (Health.FAILED, True)
    assert check_certificate("TLS", tmp_path / "none", key, NOW_S).health is Health.FAILED


def checked(folder: Path) -> list[Finding]:
    return list(check_store(load_settings({}, data_dir=folder)))


def parents(folder: Path) -> list[Finding]:
    return [one for one in checked(folder) if one.check == "parents"]


def test_the_store_is_read_and_one_that_is_damaged_is_said(tmp_path: Path) -> None:
    assert [one.detail for one in checked(tmp_path)] == ["is made at the first start"]
    RunStore(tmp_path / RUNS).close()
    assert [(one.health, one.detail) for one in checked(tmp_path)] == [
        (Health.OK, f"{tmp_path / RUNS} is sound")
    ]
    (tmp_path / RUNS).write_bytes(b"no database at all, but long enough to be read" * 100)
    (found,) = checked(tmp_path)
    assert (found.health, found.check) == (Health.FAILED, "store")


def test_a_journal_of_an_earlier_version_is_said_with_what_it_holds(tmp_path: Path) -> None:
    assert list(check_journal(tmp_path)) == []
    (tmp_path / "ingest").mkdir()
    with closing(sqlite3.connect(tmp_path / "ingest" / "00000001.sqlite")) as db:
        db.execute("CREATE TABLE chunk (signal TEXT, items INTEGER, state INTEGER)")
        db.execute("INSERT INTO chunk VALUES ('traces', 7, 0)")
        db.commit()
    (found,) = check_journal(tmp_path)
    assert (found.check, found.health) == ("journal", Health.FAILED)
    assert "7 spans and 0 log records" in found.detail + found.mend
    assert "run the earlier version" in found.mend


def test_what_a_model_has_earned_is_told() -> None:
    (found,) = check_earned({"provider/large": TrackRecord(labelled=12, right=7, won=3, lost=1)})
    assert (found.health, found.check) == (Health.OK, "trust in models")
    assert found.detail.startswith("provider/large: named the right step in 7 of 12 labelled or proved runs;")
    assert not list(check_earned({}))


def test_what_evidence_has_earned_is_told() -> None:
    (found,) = check_worths({"loop": Worth(labelled=40, right=30, stated=12)})
    assert (found.health, found.check) == (Health.OK, "trust in evidence")
    assert found.detail.startswith(
        "loop: right in 30 of 40 labelled or proved runs; a confidence of 30% becomes 6"
    )
    (few,) = check_worths({"loop": Worth(labelled=2, right=2, stated=0.6)})
    assert few.detail.endswith("a confidence of 30% becomes 30%")


def absent(name: str, *, since_ns: int, service: str = "shop") -> AbsentParent:
    return AbsentParent(
        tenant=NO_TENANT, kind=since_ns, service=service, scope="tracer", name=name, since_ns=since_ns
    )


def test_parents_that_never_arrive_are_told_with_what_mends_it_while_the_service_runs(tmp_path: Path) -> None:
    running = RunStore(tmp_path / RUNS)
    assert not list(parents(tmp_path)), "every parent has arrived"
    running.absent.add([absent("write", since_ns=1), absent("plan", since_ns=2)])
    (finding,) = parents(tmp_path)
    assert finding.health is Health.WARNING
    assert finding.detail == (
        "parents that never arrive: 2 kinds, e.g. of span `plan` of service `shop` (scope `tracer`):"
        " traces like these are judged without waiting for the parent"
    )
    assert finding.mend.startswith("send the parent's spans here too")
    running.absent.arrived([(NO_TENANT, 1), (NO_TENANT, 2)], now_ns=3)
    assert not list(parents(tmp_path)), "they came after all"
    running.close()


def test_names_that_senders_chose_are_shown_short_and_on_one_line(tmp_path: Path) -> None:
    running = RunStore(tmp_path / RUNS)
    running.absent.add([absent("plan\n\x1b[2J" + "x" * 9_999, since_ns=1, service="")])
    running.close()
    (finding,) = parents(tmp_path)
    assert "1 kind, e.g. of span `plan [2Jxxx" in finding.detail
    assert ("service" in finding.detail, len(finding.detail) < 200) == (False, True)


def test_a_data_directory_that_others_may_read_is_told_with_what_mends_it(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    assert not list(check_privacy(folder)), "it does not exist yet"
    folder.mkdir()
    folder.chmod(0o700)
    assert not list(check_privacy(folder))
    folder.chmod(0o755)
    (finding,) = check_privacy(folder)
    assert (finding.health, finding.mend) == (Health.WARNING, f"chmod 700 {folder}")
