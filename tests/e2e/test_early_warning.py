"""A run is warned of while it goes on: its spans arrive one after another, and the last ones never do."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Thread
from typing import Any, Final
from urllib.request import Request, urlopen

import pytest

from collector_processor.rebuild.encode import encode
from semconv.attributes import TASK_OUTCOME, TASK_OUTCOME_SOURCE
from semconv.model import Span, TraceId
from tests.backends.postgresql import PostgresServer
from tests.backends.supervise import wait_until
from tests.e2e.line import Line, StartLine
from tests.factories import agent, chat, tool, workflow

PASSING: Final = 16
ENOUGH: Final = 14
"""Passing runs from which a share of 0.2 has a threshold."""
HEADER: Final = "X-Scope-OrgID"
SETTINGS: Final[dict[str, str | float]] = {"early_false_alarms": 0.2, "root_grace": 100}


def spans(number: int, name: str = "look_up") -> list[Span]:
    """Return the spans of a run, in the order of their ends; the last two enclose the others."""
    of = TraceId(f"{number:032x}")
    said = {TASK_OUTCOME: "success", TASK_OUTCOME_SOURCE: "evaluator"}
    root = workflow(1, task="What is the price?", answer="4", trace_id=of)
    return [
        chat(3, parent=2, answer="I look it up.", trace_id=of, start=10, end=20),
        tool(4, name, parent=2, trace_id=of, start=30, end=40),
        chat(5, parent=2, answer="4", trace_id=of, start=50, end=60),
        agent(2, "clerk", trace_id=of),
        replace(root, attributes={**root.attributes, **said}),
    ]


def post(line: Line, tenant: str, *sent: Span) -> None:
    headers = {"Content-Type": "application/x-protobuf", HEADER: tenant}
    with urlopen(Request(f"{line.http}/v1/traces", encode(list(sent)), headers), timeout=300) as answer:
        assert answer.status == 200


def found(line: Line, tenant: str, number: int) -> dict[str, Any] | None:
    with urlopen(Request(f"{line.web}/api/runs?limit=200", headers={HEADER: tenant}), timeout=300) as answer:
        runs = json.loads(answer.read())["runs"]
    return next((one for one in runs if one["run_id"] == f"{number:032x}"), None)


def looks(line: Line) -> float:
    return line.labelled("blamespan_early_looks", "outcome").get("done", 0)


def post_each(line: Line, tenant: str, sent: Sequence[Span]) -> None:
    """Send spans one after another, each after a look at those before it."""
    for one in sent:
        before = looks(line)
        post(line, tenant, one)
        wait_until(partial(has_looked, line, before), what="a look", timeout_s=300)


def has_looked(line: Line, before: float) -> bool:
    return looks(line) > before


def play_in_parts(line: Line, tenant: str, numbers: range) -> None:
    """Send runs that pass, each looked at before its last span."""
    for number in numbers:
        sent = spans(number)
        post_each(line, tenant, sent[:-1])
        post(line, tenant, sent[-1])
    for number in numbers:
        wait_until(partial(is_final, line, tenant, number), what="verdicts", timeout_s=300)


def is_final(line: Line, tenant: str, number: int) -> bool:
    run = found(line, tenant, number)
    return run is not None and not run["provisional"]


@pytest.mark.parametrize("half", ["all", "collector"])
def test_the_warning_arrives_before_the_last_span_and_to_its_tenant_only(
    server: PostgresServer, start_line: StartLine, half: str
) -> None:
    """No analyzer answers the collector."""
    shared = {"store_url": server.url()} if half == "collector" else {}
    with Webhook() as (url, notices):
        line = start_line(half=half, notify_url=url, **shared, **SETTINGS)
        play_in_parts(line, "red", range(1, PASSING + 1))
        unlike = spans(100, "delete_everything")
        post_each(line, "red", unlike[:2])
        wait_until(goes_on(line, "red", 100), what="the warning", timeout_s=300)
        run = found(line, "red", 100)
        assert run is not None
        (note,) = run["notes"]
        assert run["provisional"]
        assert "calls delete_everything" in note
        warning = run["early_warning"]
        assert warning["as_high"] == 0
        assert ENOUGH <= warning["passing"] <= PASSING  # the last ones are counted some seconds later
        assert warning["agent"] == "unknown"  # the span that names it arrives later
        assert "delete_everything" in warning["text"]
        assert f"0 of {warning['passing']} runs" in note
        assert line.sample("blamespan_early_warnings") == 1
        with urlopen(Request(f"{line.web}/runs/{100:032x}", headers={HEADER: "red"}), timeout=300) as page:
            assert "Early warning" in page.read().decode()
        wait_until(lambda: len(notices) == 1, what="the notice", timeout_s=300)
        assert (notices[0]["kind"], notices[0]["tenant"]) == ("early_warning", "x-scope-orgid=red")
        assert notices[0]["run_id"] == f"{100:032x}"

        post_each(line, "red", spans(101)[:3])
        post_each(line, "blue", spans(102, "delete_everything")[:3])
        assert (found(line, "red", 101), found(line, "blue", 102)) == (None, None)
        assert line.sample("blamespan_early_warnings") == 1

        post(line, "red", *unlike[2:])  # a run that passes after all
        wait_until(lambda: is_final(line, "red", 100), what="the final verdict", timeout_s=300)
        final = found(line, "red", 100)
        assert final is not None
        assert (final["status"], final["notes"], final["early_warning"]) == ("no_failure", [], None)
        assert line.terminate() == 0


def goes_on(line: Line, tenant: str, number: int) -> Callable[[], bool]:
    """Return a function that sends one more span of a run, and returns whether the run is warned of.

    Runs that ended a moment ago are counted some seconds later, so one span may not be enough.
    """
    of, steps = TraceId(f"{number:032x}"), count(10)

    def is_warned() -> bool:
        place = next(steps)
        more: dict[str, Any] = {"parent": 2, "trace_id": of, "start": place * 10, "end": place * 10 + 5}
        one = tool(place, "delete_everything", **more) if place % 2 else chat(place, answer="Next.", **more)
        post(line, tenant, one)
        return found(line, tenant, number) is not None

    return is_warned


def test_without_the_setting_nothing_is_looked_at(start_line: StartLine) -> None:
    line = start_line(**{**SETTINGS, "early_false_alarms": 0})
    post(line, "red", *spans(1)[:3])
    post(line, "red", *spans(2))
    wait_until(lambda: is_final(line, "red", 2), what="the verdict", timeout_s=300)
    assert found(line, "red", 1) is None
    assert looks(line) == 0
    assert line.terminate() == 0


class Webhook:
    """A receiver of notices on a free port."""

    def __enter__(self) -> tuple[str, list[dict[str, Any]]]:
        notices: list[dict[str, Any]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                notices.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._server.serve_forever)
        self._thread.start()
        return f"http://127.0.0.1:{self._server.server_port}", notices

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
