"""Each search on docs/backends/jaeger.md finds the right runs in a real Jaeger."""

from __future__ import annotations

from typing import Final
from uuid import uuid4

from semconv.instrument import agent, llm, run, tool
from tests.backends.processes import RunningJaeger
from tests.backends.supervise import wait_until
from tests.docs.jaeger_searches import searches
from tests.e2e.in_jaeger import look, trace_ids
from tests.e2e.line import Line, StartLine
from tests.e2e.test_labels import label_over_http
from tests.e2e.test_line_jaeger import agents, play_through, settings_for
from tests.e2e.traffic import CARRIERS, DEMO_SPANS

_BLAMED: Final = {"failed", "corrected"}
"""A search also finds superseded blame: backends never change written spans."""
FOUND: Final = {
    "blamed and suspected traces": {*_BLAMED, "suspected"},
    "blamed traces": _BLAMED,
    "suspected failures, which the run did not report": {"suspected"},
    "what one agent broke": _BLAMED,
    "one kind of failure": _BLAMED,
    "one step": _BLAMED,
    "verdicts of one method": _BLAMED,
    "verdicts by people": {"corrected"},
    "blame that was withdrawn": {"corrected"},
    "blame that was withdrawn from one agent": {"corrected"},
    "all that blamespan wrote": {*_BLAMED, "passed", "unsure", "suspected"},
    "runs that passed, with `BLAMESPAN_CARRIERS=all`": {"passed"},
    "runs on which it could not decide": {"unsure"},
    "runs whose steps it could not read": set[str](),
    "runs that it could not analyse": set[str](),
    "runs that wait for a person, with `BLAMESPAN_CARRIERS=all`": set[str](),
    "runs that were cancelled, with `BLAMESPAN_CARRIERS=all`": set[str](),
}
"""Six runs: two that failed at step 9 by the calculator, in one of which a person blamed the writer and then
the planner; one that passed; one that is suspected; and one blamed with little confidence. Each search finds
these of them."""


def play_a_run_that_passes(service: str, line: Line) -> str:
    """Let one agent do its task; return the run's id, its trace id, once there is a verdict."""
    with (
        agents(service, line.grpc) as (provider, memory),
        run("sum", task="2 + 2?", capture="SPAN_ONLY", tracer_provider=provider) as attempt,
    ):
        with agent("clerk"), llm("gpt-4o", messages="2 + 2?") as call:
            call.output("4")
        attempt.output("4")
        attempt.outcome("success", source="evaluator")
    (root,) = (span for span in memory.get_finished_spans() if span.parent is None)
    run_id = f"{root.context.trace_id:032x}"
    assert line.verdict(run_id)["status"] == "no_failure"
    return run_id


def play_a_run_with_a_wrong_figure(service: str, line: Line) -> str:
    """Let an agent report another figure than its tool returned; return the trace id, as above."""
    task = "How much power does rack B draw?"
    with (
        agents(service, line.grpc) as (provider, memory),
        run("meter", task=task, capture="SPAN_ONLY", tracer_provider=provider) as attempt,
    ):
        with agent("analyst"):
            with tool("read_meter", arguments={"rack": "B"}) as reading:
                reading.result("Rack B draws 9600 W.")
            with llm("gpt-4o", messages=f"{task} Rack B draws 9600 W.") as call:
                call.output("Rack B draws 6900 W.")
        attempt.output("Rack B draws 6900 W.")
    (root,) = (span for span in memory.get_finished_spans() if span.parent is None)
    run_id = f"{root.context.trace_id:032x}"
    assert line.verdict(run_id)["status"] == "suspected"
    return run_id


def test_every_search_of_the_page_finds_what_it_says(jaeger: RunningJaeger, start_line: StartLine) -> None:
    line = start_line(carriers="all", **settings_for(jaeger, "grpc"))
    runs = {
        name: play_through(f"solar-{uuid4().hex}", line.grpc).trace_id for name in ("failed", "corrected")
    }
    for run_id in runs.values():
        look(jaeger, run_id, spans=DEMO_SPANS + CARRIERS)
    for said in ({"agent": "writer"}, {"step": 0}):
        label_over_http(line, runs["corrected"], "label", said)
    look(jaeger, runs["corrected"], spans=DEMO_SPANS + CARRIERS + 6)
    runs["suspected"] = play_a_run_with_a_wrong_figure(f"meter-{uuid4().hex}", line)
    runs["passed"] = play_a_run_that_passes(f"calm-{uuid4().hex}", line)
    wait_until(lambda: found(jaeger, {"blamespan.failure.status": "no_failure"}, **runs) == {"passed"},
               what="the carrier of the run that passed")  # fmt: skip
    assert line.terminate() == 0
    line = start_line(precision="0.9999", **settings_for(jaeger, "grpc"))
    runs["unsure"] = play_through(f"solar-{uuid4().hex}", line.grpc).trace_id
    look(jaeger, runs["unsure"], spans=DEMO_SPANS + 1)

    answers = {one.find: found(jaeger, one.tags, **runs) for one in searches()}

    assert answers == FOUND


def found(jaeger: RunningJaeger, tags: dict[str, str], **traces: str) -> set[str]:
    services = jaeger.query.services()
    ids = {each for service in services for each in trace_ids(jaeger.query.find_traces(service, tags=tags))}
    return {name for name, trace_id in traces.items() if trace_id in ids}
