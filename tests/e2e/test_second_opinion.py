"""A model's second opinion on a kept run is stored, paid for once, and becomes a version of the verdict."""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.request import ProxyHandler, Request, build_opener

from semconv.attributes import (
    FAILURE_AGENT_NAME,
    FAILURE_ID,
    FAILURE_METHOD,
    FAILURE_MODEL,
    FAILURE_STEP_INDEX,
    FAILURE_SUPERSEDES,
)
from tests.e2e.backend import grpc_backend
from tests.e2e.line import Line, StartLine
from tests.e2e.model_server import Scripted, serve
from tests.e2e.spans import by_id, carriers, originals, placed
from tests.e2e.test_line_model import MODEL, VERDICT, in_background, settings_for
from tests.e2e.traffic import CARRIERS, DEMO_SPANS, play_demo, send, span_id

HASTE_MS: Final = 100
WITHDRAWALS: Final = 2
WRITER: Final = json.dumps(
    {
        "reason": "the writer passed the figure on without checking it.",
        "step": 11,
        "agent": "writer",
        "mode": "unverified_result",
        "fix": "check the figure",
        "evidence": [{"step": 11, "quote": "will save about 9,266.14 euros"}],
        "ranking": [{"step": 11, "probability": 0.9}],
    }
)


def ask(line: Line, run_id: str, method: str = "judge") -> dict[str, Any]:
    """Request a second opinion over the API, and return the answer."""
    request = Request(
        f"{line.web}/api/runs/{run_id}/opinions",
        data=json.dumps({"method": method}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with build_opener(ProxyHandler({})).open(request, timeout=300) as answer:
        given: dict[str, Any] = json.load(answer)
        return given


def test_a_models_other_answer_becomes_a_version_supersedes_the_carriers_and_is_paid_once(
    start_line: StartLine,
) -> None:
    with grpc_backend() as backend, in_background(serve(Scripted(text=WRITER))) as server:
        settings = {"method": "signals", "forward_endpoint": backend.url, **settings_for(server)}
        line = start_line(root_grace=HASTE_MS, **settings)
        played = play_demo()
        send(line, played.body)
        before = backend.await_spans(played.trace_id, DEMO_SPANS + CARRIERS)
        first = line.verdict(played.trace_id)
        assert (first["method"], first["agent"], first["step"]) == ("signals", "calculator", 9)
        assert server.received == []

        given = ask(line, played.trace_id)

        assert given["outcome"] == "new_version"
        assert given["opinion"]["chosen"]["method"] == "judge"
        assert len(server.received) == 1
        second = line.verdict(played.trace_id, version=2)
        assert (second["version"], second["method"], second["model"]) == (2, "judge", MODEL)
        assert (second["agent"], second["step"], second["fallback"]) == ("writer", 11, None)

        after = backend.await_spans(played.trace_id, DEMO_SPANS + 2 * CARRIERS + WITHDRAWALS)
        new = carriers(after[len(before) :])
        assert {one.attributes[FAILURE_SUPERSEDES] for one in new} == {first["failure_id"]}
        assert {one.attributes[FAILURE_ID] for one in carriers(before)} == {first["failure_id"]}
        (decisive,) = (one for one in new if one.is_decisive)
        assert decisive.attributes[FAILURE_AGENT_NAME] == "writer"
        assert decisive.attributes[FAILURE_STEP_INDEX] == 11
        assert (decisive.attributes[FAILURE_METHOD], decisive.attributes[FAILURE_MODEL]) == ("judge", MODEL)
        withdrawn = [one for one in new if one.span.name == "withdrawn: calculator → writer"]
        assert {one.parent_id for one in withdrawn} == {span_id(played.decisive), span_id(played.root)}
        assert originals(after) == by_id(placed(played.body))

        again = ask(line, played.trace_id)
        assert again["outcome"] == "known"
        assert again["opinion"]["verdict"]["agent"] == "writer"
        assert line.terminate() == 0

        line = start_line(root_grace=HASTE_MS, **settings)  # kept: a restart forgets nothing
        assert ask(line, played.trace_id)["outcome"] == "known"
        kept = line.verdict(played.trace_id, version=2)
        assert (kept["version"], [one["verdict"]["agent"] for one in kept["opinions"]]) == (2, ["writer"])
        assert len(server.received) == 1, "nothing is paid for twice"
        assert len(backend.spans(played.trace_id)) == len(after), "and nothing is said twice"


def test_an_opinion_that_agrees_is_kept_and_one_that_failed_may_be_asked_for_again(
    start_line: StartLine,
) -> None:
    down = Scripted(status=401, text="who are you")
    with grpc_backend() as backend, in_background(serve(down, Scripted(text=VERDICT))) as server:
        settings = {"method": "signals", "forward_endpoint": backend.url, **settings_for(server)}
        line = start_line(root_grace=HASTE_MS, **settings)
        played = play_demo()
        send(line, played.body)
        told = line.verdict(played.trace_id)
        sent = backend.await_spans(played.trace_id, DEMO_SPANS + CARRIERS)

        assert ask(line, played.trace_id)["outcome"] == "no_answer"
        paid = len(server.received)
        assert ask(line, played.trace_id)["outcome"] == "agrees"
        assert len(server.received) == paid + 1
        assert ask(line, played.trace_id)["outcome"] == "known"
        assert len(server.received) == paid + 1

        kept = line.run(played.trace_id)
        assert kept is not None
        assert (kept["version"], kept["failure_id"], kept["method"]) == (1, told["failure_id"], "signals")
        assert [one["verdict"]["method"] for one in kept["opinions"]] == ["judge"]
        assert line.terminate() == 0
        assert by_id(backend.spans(played.trace_id)) == by_id(sent), "what the trace says stays"
