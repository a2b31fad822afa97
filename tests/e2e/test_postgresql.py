"""The service with its store in PostgreSQL, also while the server is away."""

from __future__ import annotations

import json
import random
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError

import psycopg
import pytest

from collector_processor.rebuild.encode import encode
from semconv.model import Span, TraceId
from tests.backends.forked import ran
from tests.backends.postgresql import PostgresServer
from tests.backends.supervise import wait_until
from tests.e2e.backend import grpc_backend
from tests.e2e.line import Line, StartLine, environment
from tests.e2e.traffic import CARRIERS, send
from tests.factories import agent, chat, workflow

REFUSING: Final = ["degraded", "the store of verdicts refuses: spans flow on and verdicts wait"]
HANGING: Final = ["degraded", "the store of verdicts does not answer: spans flow on and verdicts wait"]


def run(trace_id: str) -> list[Span]:
    of = TraceId(trace_id)
    return [
        chat(3, parent=2, answer="4", trace_id=of),
        agent(2, "planner", trace_id=of),
        workflow(1, task="add", error="wrong sum", trace_id=of),
    ]


def doctor(data: Path, url: str) -> dict[str, Any]:
    """Return the doctor's finding about the store."""
    command = [sys.executable, "-m", "analyzer", "doctor", "--format", "json"]
    environ = environment(data_dir=str(data), store_url=url)
    said = ran(command, environ=environ)
    found = [json.loads(line) for line in said.stdout.splitlines()]
    return next(one for one in found if one["check"] == "store")


def is_read(line: Line) -> bool:
    """Tell whether the pages read the store; their process has a connection of its own."""
    try:
        line.runs()
    except HTTPError:
        return False
    return True


def test_while_the_server_is_away_spans_flow_on_and_verdicts_wait(
    server: PostgresServer, start_line: StartLine, tmp_path: Path
) -> None:
    url = server.url()
    with grpc_backend() as backend:
        line = start_line(forward_endpoint=backend.url, store_url=url)
        send(line, encode(run("a" * 32)))
        assert line.verdict("a" * 32)["agent"] == "planner"
        backend.await_spans(TraceId("a" * 32), 3 + CARRIERS)
        assert doctor(tmp_path / "data", url)["detail"] == "PostgreSQL at BLAMESPAN_STORE_URL is sound"

        for how, trace_id in (("immediate", "b" * 32), ("kill", "c" * 32)):
            server.kill() if how == "kill" else server.stop(how)
            send(line, encode(run(trace_id)))
            assert len(backend.await_spans(TraceId(trace_id), 3)) == 3, "spans flow on"
            said = doctor(tmp_path / "data", url)
            assert (said["status"], "cannot be reached" in said["detail"]) == ("failed", True)
            assert "spans flow on and verdicts wait" in said["mend"]
            wait_until(lambda: line.said("waiting for the disk"), what="it to be said")
            with pytest.raises(HTTPError, match="503"):
                line.runs()
            assert line.health() == REFUSING
            assert line.labelled("blamespan_store_faulty", "store") == {"journal": 0, "verdicts": 1}
            server.start()
            backend.await_spans(TraceId(trace_id), 3 + CARRIERS)
            wait_until(lambda: is_read(line), what="the pages to reach the server again")
            assert line.verdict(trace_id)["agent"] == "planner"
        assert {one["version"] for one in line.runs()} == {1}
        assert line.terminate() == 0
        line = start_line(forward_endpoint=backend.url, store_url=url)
        assert len(line.runs()) == 3
        assert not (tmp_path / "data" / "store.sqlite").exists()


def test_while_the_servers_disk_is_bad_spans_flow_on_and_verdicts_wait(
    server: PostgresServer, start_line: StartLine
) -> None:
    """PostgreSQL answers, but a table's data is damaged: verdicts wait until it is repaired, as with a full
    disk."""
    with grpc_backend() as backend:
        line = start_line(forward_endpoint=backend.url, store_url=server.url())
        send(line, encode(run("a" * 32)))
        assert line.verdict("a" * 32)["agent"] == "planner"
        with psycopg.connect(host=str(server.folder), user="postgres") as db:
            found = db.execute("SELECT pg_relation_filepath('verdict')").fetchone()
        assert found is not None
        file = server.data / found[0]
        server.stop()
        sound = file.read_bytes()
        file.write_bytes(random.Random(7).randbytes(len(sound)))
        server.start()
        send(line, encode(run("b" * 32)))
        assert len(backend.await_spans(TraceId("b" * 32), 3)) == 3, "spans flow on"
        wait_until(lambda: line.said("verdict waits for the store"), what="it to be said")
        with pytest.raises(HTTPError, match="503"):
            line.runs()
        server.stop()
        file.write_bytes(sound)
        server.start()
        backend.await_spans(TraceId("b" * 32), 3 + CARRIERS)
        wait_until(lambda: is_read(line), what="the pages to reach the server again")
        assert line.verdict("b" * 32)["agent"] == "planner"
        assert {one["version"] for one in line.runs()} == {1}
        assert "Traceback" not in line.server.log.read_text(errors="replace")


def test_while_the_server_hangs_spans_flow_on_and_verdicts_wait(
    server: PostgresServer, start_line: StartLine
) -> None:
    """Its processes are stopped, so that it accepts connections and answers nothing."""
    with grpc_backend() as backend:
        line = start_line(forward_endpoint=backend.url, store_url=server.url())
        send(line, encode(run("a" * 32)))
        assert line.verdict("a" * 32)["agent"] == "planner"
        server.freeze()
        try:
            send(line, encode(run("b" * 32)))
            assert len(backend.await_spans(TraceId("b" * 32), 3)) == 3, "spans flow on"
            wait_until(lambda: line.health() == HANGING, what="it to be told")
            wait_until(
                lambda: line.said("verdict waits for the store") or line.said("waiting for the disk"),
                what="a statement to be given up",
                timeout_s=300,
            )
            wait_until(lambda: line.health()[0] == "degraded", what="it to be told")
        finally:
            server.thaw()
        backend.await_spans(TraceId("b" * 32), 3 + CARRIERS)
        assert line.verdict("b" * 32)["agent"] == "planner"
        assert [one["version"] for one in line.runs()] == [1, 1]
        wait_until(lambda: line.health() == ["ok"], what="it to be well")
        assert "Traceback" not in line.server.log.read_text(errors="replace")


@pytest.mark.parametrize("ending", ["killed", "frozen"])
def test_a_server_that_ends_in_the_middle_of_a_commit_loses_and_doubles_nothing(
    server: PostgresServer, start_line: StartLine, ending: str
) -> None:
    def connect() -> psycopg.Connection[Any]:
        return psycopg.connect(host=str(server.folder), user="postgres", autocommit=True)

    with grpc_backend() as backend:
        line = start_line(forward_endpoint=backend.url, store_url=server.url())
        with connect() as db:
            for statement in (_SLOW, _COMMITTING):
                db.execute(statement)
            send(line, encode(run("a" * 32)))
            committing = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query = 'COMMIT'"
            wait_until(lambda: db.execute(committing).fetchone() == (1,), what="a commit")
        server.kill() if ending == "killed" else server.freeze()
        send(line, encode(run("b" * 32)))
        assert len(backend.await_spans(TraceId("b" * 32), 3)) == 3, "spans flow on"
        wait_until(lambda: line.health()[0] == "degraded", what="it to be told")
        server.start() if ending == "killed" else server.thaw()
        with connect() as db:
            db.execute(*_MENDED)
        for trace_id in ("a" * 32, "b" * 32):
            backend.await_spans(TraceId(trace_id), 3 + CARRIERS)
        with suppress(HTTPError):  # the pages notice only now that their connection has ended
            line.runs()
        for trace_id in ("a" * 32, "b" * 32):
            assert line.verdict(trace_id)["agent"] == "planner"
        assert [one["version"] for one in line.runs()] == [1, 1]


_FUNCTION: Final = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {does}; END $$"
_RAISE: Final = "RAISE EXCEPTION 'could not write block 7' USING ERRCODE = '{code}'"
_IO_ERROR: Final = _FUNCTION.format(does=_RAISE.format(code="io_error"))
_DISK_FULL: Final = _FUNCTION.format(does=_RAISE.format(code="disk_full"))
_DISCONNECT: Final = _FUNCTION.format(does="PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL")
_SLOW: Final = _FUNCTION.format(does="PERFORM pg_sleep(20); RETURN NULL")
_WRITING: Final = "CREATE TRIGGER refuses AFTER INSERT ON verdict FOR EACH ROW EXECUTE FUNCTION refuse()"
_COMMITTING: Final = (
    "CREATE CONSTRAINT TRIGGER refuses AFTER INSERT ON verdict DEFERRABLE INITIALLY DEFERRED"
    " FOR EACH ROW EXECUTE FUNCTION refuse()"
)
_MENDED: Final = ("DROP FUNCTION refuse CASCADE",)
_FAULTS: Final = {
    "an I/O error while writing": ((_IO_ERROR, _WRITING), _MENDED),
    "an I/O error while committing": ((_IO_ERROR, _COMMITTING), _MENDED),
    "a full disk": ((_DISK_FULL, _WRITING), _MENDED),
    "connections that end while committing": ((_DISCONNECT, _COMMITTING), _MENDED),
    "read-only": (
        (
            "ALTER SYSTEM SET default_transaction_read_only = on",
            "SELECT pg_reload_conf()",
            "SELECT pg_sleep(2)",  # sessions are told by a signal
        ),
        (
            "SET default_transaction_read_only = off",
            "ALTER SYSTEM RESET default_transaction_read_only",
            "SELECT pg_reload_conf()",
        ),
    ),
}
"""Statements that begin each fault, and those that end it."""


def test_while_the_server_refuses_spans_flow_on_and_verdicts_wait(
    server: PostgresServer, start_line: StartLine
) -> None:
    with (
        grpc_backend() as backend,
        psycopg.connect(host=str(server.folder), user="postgres", autocommit=True) as db,
    ):
        line = start_line(forward_endpoint=backend.url, store_url=server.url())

        def refusals() -> int:
            return len(line.said("verdict waits for the store")) + len(line.said("waiting for the disk"))

        def has_refused_since(before: int) -> bool:
            return refusals() > before

        for number, (fault, (begin, end)) in enumerate(_FAULTS.items(), start=1):
            trace_id, before = f"{number:032x}", refusals()
            for statement in begin:
                db.execute(statement)
            send(line, encode(run(trace_id)))
            assert len(backend.await_spans(TraceId(trace_id), 3)) == 3, f"{fault}: spans flow on"
            wait_until(partial(has_refused_since, before), what=f"{fault} to be said")
            for statement in end:
                db.execute(statement)
            backend.await_spans(TraceId(trace_id), 3 + CARRIERS)
            assert line.verdict(trace_id)["agent"] == "planner"
        assert [one["version"] for one in line.runs()] == [1] * len(_FAULTS)
        assert "Traceback" not in line.server.log.read_text(errors="replace")


def test_a_server_that_is_away_at_the_start_is_reported_and_nothing_is_accepted(
    server: PostgresServer, tmp_path: Path
) -> None:
    server.stop()
    command = [sys.executable, "-m", "analyzer", "serve", "--format", "json", "--data-dir", str(tmp_path)]
    environ = environment(store_url=server.url().replace("postgres@", "postgres:hush@"))
    done = ran(command, environ=environ)
    assert done.returncode == 1
    assert "the store cannot be reached" in done.stderr.splitlines()[-1]
    assert "hush" not in done.stderr
    assert any((tmp_path / "ingest").iterdir())
