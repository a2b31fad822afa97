"""With a model out of quota or budget, replying nonsense, or slow, telemetry flows on and no question is
repeated."""

from __future__ import annotations

import time
from typing import Final

import pytest

from semconv.attributes import FAILURE_AGENT_NAME, FAILURE_FALLBACK, FAILURE_METHOD
from tests.backends.supervise import wait_until
from tests.e2e.backend import Backend, grpc_backend
from tests.e2e.line import Line, StartLine
from tests.e2e.model_server import ModelServer, Scripted, serve
from tests.e2e.spans import by_id, originals, placed
from tests.e2e.test_line_model import VERDICT, in_background, settings_for
from tests.e2e.traffic import CARRIERS, DEMO_SPANS, Played, play_demo, send

PRICED: Final = "openai/gpt-4o-mini"
REST_S: Final = 1.5


def settle(line: Line, backend: Backend, played: Played) -> None:
    """Wait for the verdict, and compare the backend's spans with those sent."""
    spans = backend.await_spans(played.trace_id, DEMO_SPANS + CARRIERS)
    assert originals(spans) == by_id(placed(played.body))
    assert line.verdict(played.trace_id)["version"] == 1


def after_a_restart(start: StartLine, line: Line, backend: Backend, server: ModelServer) -> Line:
    """Restart and wait until nothing is pending; return the new process."""
    before = len(server.received)
    assert line.terminate() == 0
    line = start(forward_endpoint=backend.url, **settings_for(server))
    time.sleep(REST_S)
    assert len(server.received) == before
    return line


@pytest.mark.parametrize(
    ("answer", "settings", "asked"),
    [
        pytest.param(Scripted(status=429, headers={"Retry-After": "3600"}), {}, (1, 1), id="out of quota"),
        pytest.param(Scripted(text="It was Writer, I think."), {}, (1, 4), id="no JSON"),
        pytest.param(
            Scripted(text=VERDICT),
            {"budget_usd_per_run": "0", "model": PRICED},
            (0, 0),
            id="over budget by the run",
        ),
        pytest.param(
            Scripted(text=VERDICT),
            {"budget_usd_per_hour": "0", "model": PRICED},
            (0, 0),
            id="over budget by the hour",
        ),
    ],
)
def test_signals_answer_in_its_place_and_a_restart_asks_no_model_again(
    start_line: StartLine, answer: Scripted, settings: dict[str, str], asked: tuple[int, int]
) -> None:
    with grpc_backend() as backend, in_background(serve(answer)) as server:
        line = start_line(forward_endpoint=backend.url, **settings_for(server) | settings)
        played = play_demo()
        send(line, played.body)
        settle(line, backend, played)
        (told,) = (one.attributes for one in backend.spans(played.trace_id) if one.is_decisive)
        assert told[FAILURE_METHOD] == "signals"
        assert told[FAILURE_FALLBACK].startswith("signals, because")
        assert told[FAILURE_AGENT_NAME] == "calculator"
        assert asked[0] <= len(server.received) <= asked[1]
        line = after_a_restart(start_line, line, backend, server)
        settle(line, backend, played)
        assert len(backend.spans(played.trace_id)) == DEMO_SPANS + CARRIERS


def test_without_a_fallback_the_run_stays_undecided_and_says_why(start_line: StartLine) -> None:
    quota = Scripted(status=429, headers={"Retry-After": "3600"})
    with grpc_backend() as backend, in_background(serve(quota)) as server:
        line = start_line(forward_endpoint=backend.url, method="judge", **settings_for(server))
        played = play_demo()
        send(line, played.body)
        verdict = line.verdict(played.trace_id)
        assert verdict["status"] == "error"
        assert verdict["error"]
        assert verdict["agent"] is None
        line.await_items("forwarded", DEMO_SPANS)
        after_a_restart(start_line, line, backend, server)


def test_while_the_model_thinks_spans_go_on_and_a_kill_costs_one_question_more_at_most(
    start_line: StartLine,
) -> None:
    with grpc_backend() as backend, in_background(serve(Scripted(text=VERDICT))) as server:
        server.may_answer.clear()
        line = start_line(forward_endpoint=backend.url, **settings_for(server))
        played = play_demo()
        send(line, played.body)
        backend.await_spans(played.trace_id, DEMO_SPANS)
        line.await_items("forwarded", DEMO_SPANS)
        wait_until(lambda: bool(server.received), what="a question")
        assert line.run(played.trace_id) is None
        line.server.kill()
        server.may_answer.set()
        line = start_line(forward_endpoint=backend.url, **settings_for(server))
        settle(line, backend, played)
        assert len(server.received) == 2
        after_a_restart(start_line, line, backend, server)


def test_an_hours_budget_holds_however_often_the_process_is_killed(start_line: StartLine) -> None:
    """Each call is recorded durably before it is made, with its maximum cost."""
    with grpc_backend() as backend, in_background(serve(Scripted(text=VERDICT, delay_s=60.0))) as server:
        settings = settings_for(server) | {"forward_endpoint": backend.url, "model": PRICED}
        line, played = start_line(**settings), play_demo()
        send(line, played.body)
        price = 0.0
        for asked in (1, 2):
            wait_until(lambda: len(server.received) == asked, what=f"question {asked}")  # noqa: B023 - at once
            price = price or line.spent_usd()
            assert price > 0
            assert line.spent_usd() == pytest.approx(asked * price), "a call in progress counts"
            line.server.kill()
            settings |= {"budget_usd_per_hour": f"{2.5 * price:.6f}"}
            line = start_line(**settings)
            assert line.spent_usd() == pytest.approx(asked * price), "and a call that was cut short"
        for _ in range(2):
            settle(line, backend, played)
            assert "budget" in line.verdict(played.trace_id)["fallback"]
            assert line.spent_usd() == pytest.approx(2 * price)
            line.server.kill()
            line = start_line(**settings)
        assert len(server.received) == 2, "both asked by processes that were killed"
