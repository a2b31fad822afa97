"""A run that ends normally with a wrong figure is suspected; its passing twin is not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final

from collector_processor.rebuild.encode import encode
from semconv.attributes import (
    FAILURE_AGENT_NAME,
    FAILURE_DECISIVE,
    FAILURE_STATUS,
    FAILURE_STEP_INDEX,
    TASK_OUTCOME,
    TASK_OUTCOME_SOURCE,
)
from semconv.model import TraceId
from tests.e2e.backend import grpc_backend
from tests.e2e.line import StartLine
from tests.e2e.spans import carriers
from tests.e2e.traffic import send
from tests.factories import agent, chat, tool, workflow
from tests.renderings.official import OFFICIAL
from tests.renderings.play import Asked, ModelCall, Play, ToolUse, Transfer, Turn
from tests.renderings.staging import Stage

HASTE_MS: Final = 100
PASSING: Final = 40
WRONG: Final = TraceId("77aa0000000000000000000000000001")
RIGHT: Final = TraceId("77aa0000000000000000000000000002")


def told(trace_id: TraceId, figure: str) -> bytes:
    """Return the spans of a run in which the analyst reports its tool's result as ``figure``."""
    read = Asked(tool="read_meter", arguments=json.dumps({"rack": "B"}), call_id="c1")
    over = Asked(tool="transfer_to_writer", arguments="{}", call_id="c2")
    play = Play(
        name="run",
        task="How much power does rack B draw?",
        stages=(
            Turn(
                agent="analyst",
                instructions="You are the analyst.",
                acts=(
                    ModelCall(asks=(read,)),
                    ToolUse(asked=read, result="Rack B draws 9600 W."),
                    ModelCall(text=f"Rack B draws {figure} W."),
                    ModelCall(asks=(over,)),
                    Transfer(asked=over, target="writer"),
                ),
            ),
            Turn(
                agent="writer",
                instructions="You are the writer.",
                acts=(ModelCall(text=f"Rack B draws {figure} W at the moment."),),
            ),
        ),
    )
    return encode([replace(span, trace_id=trace_id) for span in OFFICIAL.spans(Stage(play))])


def test_a_silent_wrong_figure_is_suspected_and_its_passing_twin_is_not(start_line: StartLine) -> None:
    with grpc_backend() as backend:
        line = start_line(forward_endpoint=backend.url, root_grace=HASTE_MS)
        send(line, told(WRONG, "6,900"))
        send(line, told(RIGHT, "9,600"))

        assert line.verdict(RIGHT)["status"] == "no_failure"
        verdict = line.verdict(WRONG)
        assert (verdict["status"], verdict["agent"], verdict["step"]) == ("suspected", "analyst", 2)
        quotes = {found["step"]: found["quote"] for found in verdict["evidence"]}
        assert "9600 W" in quotes[1]
        assert "6,900 W" in quotes[2]
        assert line.terminate() == 0

        found = carriers(backend.spans(WRONG))
        assert [one.span.name for one in found] == ["suspected: analyst (unsupported claim)"] * 2
        for one in found:
            assert one.attributes[FAILURE_STATUS] == "suspected"
            assert one.attributes[FAILURE_AGENT_NAME] == "analyst"
            assert one.attributes[FAILURE_STEP_INDEX] == 2
            assert {"error", FAILURE_DECISIVE}.isdisjoint(one.attributes)
        assert carriers(backend.spans(RIGHT)) == []


def paid(number: int, allowed: int, amount: int, outcome: str = "") -> bytes:
    """Return the spans of a run in which the teller pays an amount after a check allowed one."""
    check = {"account": f"AC-{7000 + number}"}
    pay = {"account": f"AC-{7000 + number}", "cents": amount}
    stated = {TASK_OUTCOME: outcome, TASK_OUTCOME_SOURCE: "evaluator"} if outcome else {}
    root = workflow(task=f"Pay out account AC-{7000 + number}.", answer="The account was paid out.")
    spans = [
        replace(root, attributes={**root.attributes, **stated}),
        agent(2, "teller"),
        chat(3, calls=[("check", json.dumps(check), "c1")], agent_name="teller", parent=2),
        tool(4, "check", arguments=json.dumps(check), result=json.dumps({"allowed": allowed}), parent=2),
        chat(5, calls=[("pay", json.dumps(pay), "c2")], agent_name="teller", parent=2),
        tool(6, "pay", arguments=json.dumps(pay), result='{"done": true}', parent=2),
        chat(7, answer="The account was paid out.", agent_name="teller", parent=2),
    ]
    return encode([replace(span, trace_id=TraceId(f"{number:032x}")) for span in spans])


def test_a_silent_run_that_breaks_what_all_passing_runs_did_is_suspected(start_line: StartLine) -> None:
    """Nothing in the run itself is wrong: an amount below the allowed one may be meant."""
    line = start_line(root_grace=HASTE_MS)
    for number in range(1, PASSING + 1):
        amount = 1_000 + 37 * number
        send(line, paid(number, amount, amount, "success"))
    for number in range(1, PASSING + 1):
        line.verdict(f"{number:032x}")
    send(line, paid(98, 5_000, 4_321))
    send(line, paid(99, 5_100, 5_100))
    broken, kept = line.verdict(f"{98:032x}"), line.verdict(f"{99:032x}")
    assert (broken["status"], broken["agent"], broken["method"]) == ("suspected", "teller", "history")
    assert f"{PASSING} of {PASSING} passing runs" in broken["reason"]
    assert "4321" in broken["reason"].replace(",", "")
    assert kept["status"] == "no_failure"
