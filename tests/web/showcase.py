"""Runs for the pages: the demo, a parallel one, a crash, a successful one, and hostile names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Final

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from analyzer.cli.demo_run import play
from analyzer.history.changes import before_and_after, change_points
from analyzer.issues.issue_store import DAY_NS
from analyzer.issues.recurrence import Count, Fingerprint, IssueState, Share
from analyzer.issues.report import AgentShare
from analyzer.issues.workflow_reports import FixedWorkflow, IssueFix
from analyzer.web.rendering import workflow_path
from collector_processor.core.runs import Run, RunTotals
from collector_processor.rebuild.runs import total_up
from collector_processor.rebuild.stages import rebuild
from semconv.model import Trajectory
from tests.runs import failed_tool, run, step, tool
from tests.security.test_hostile_text import HOSTILE
from tests.web.long_runs import add_spans, long_run, papers
from tests.web.stage import NOW_NS, Stage, open_stage, with_recordings
from tests.workflows import Place, keep_runs

PARALLEL = run(
    step("lead", "Split the fleet between the two of you."),
    step("north desk", "Asking for the Marianne.", group=1),
    step("south desk", "Asking for the Odile.", group=1),
    tool("north desk", "120 seats", target="seats", group=1),
    failed_tool("south desk", "TimeoutError: the registry did not answer", target="seats", group=1),
    step("south desk", "I take it to be 80 seats, as last year.", group=1),
    step("lead", "Together they have 200 seats."),
    step("writer", "The two ferries have 200 seats together."),
    task="How many seats do the Marianne and the Odile have together?",
    output="The two ferries have 200 seats together.",
    run_id="5a" * 16,
    root_error="the answer was refused",
)

SHARE = AgentShare(
    blamed=Count(hits=21, n=64), labelled=0, share=Share(estimate=0.2, low=0.0, high=0.6), is_alarm=True,
    against_past=Share(estimate=8.4, low=2.9, high=24.1),
    against_fellows=Share(estimate=1.6, low=0.8, high=3.1),
)  # fmt: skip
"""Runs of an agent that fails more often than before."""


def demo_run() -> Trajectory:
    """Run the demo and return its steps."""
    return played_demo().trajectory


def played_demo() -> Run:
    """Run the demo and rebuild its run."""
    return rebuild([demo_body()])[0]


def demo_body() -> bytes:
    """Run the demo and return its spans as an export request."""
    memory, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    play(provider)
    body: bytes = encode_spans(memory.get_finished_spans()).SerializeToString()
    return body


def hostile() -> Trajectory:
    """Return a run in which every text contains markup or escapes."""
    steps = [
        one
        for text in HOSTILE.values()
        for one in (step(f"agent {text}", text), failed_tool(text, text, target=text, input=text))
    ]
    return run(
        *steps, task=HOSTILE["html"], output=HOSTILE["svg"], root_error=HOSTILE["html"], run_id="ho" * 8
    )


async def showcase(folder: Path, recordings: int = 40) -> tuple[Stage, dict[str, str]]:
    """Return a stage with runs, and the ids of some by what they show."""
    stage = open_stage(folder)
    await with_recordings(stage, recordings)
    ids = {
        "hostile": await stage.add(
            hostile(), HOSTILE["html"], totals=RunTotals(workflow=HOSTILE["svg"], steps=1)
        ),
        "parallel": await stage.add(PARALLEL, "ferries"),
        "demo": await _add_demo(stage),
    }
    ids["long"] = await add_spans(stage, long_run(260), "archive")
    ids["papers"] = await add_spans(stage, papers(), "paper-desk")
    ids["parallel issue"] = _add_issues(stage, ids)
    mark = Fingerprint(
        service=HOSTILE["svg"], agent=HOSTILE["html"], mode="unhandled_error",
        kind="tool", tool="seats", error="",
    )  # fmt: skip
    runs = (ids["hostile"], "forgotten")
    ids["hostile issue"] = stage.issues.add(mark, IssueState.ONGOING, (1,) * 14, runs)
    _add_workflows(stage, ids)
    return stage, ids


def _add_workflows(stage: Stage, ids: dict[str, str]) -> None:
    """Add a workflow with a rule that one run breaks, and one with hostile names; keep their paths."""
    cinema = Place(start_ns=NOW_NS - 9 * DAY_NS, service="cinema", workflow="seat-sales")
    hostile = Place(start_ns=NOW_NS - 8 * DAY_NS, service=HOSTILE["svg"], workflow=HOSTILE["html"])
    db = stage.verdicts._db
    keep_runs(db, cinema, ["passed"] * 21 + ["failed"], prefix="cinema", other_seats=[3, 21])
    keep_runs(db, hostile, ["passed"] * 10, prefix="hostile")
    for name, place in (("seats workflow", cinema), ("hostile workflow", hostile)):
        ids[name] = workflow_path(place.service, place.workflow, place.tenant)


def _compared() -> FixedWorkflow:
    """Return 30 runs before a release and 40 since, of which more pass."""
    before, after = [False, True, True] * 10, [True] * 39 + [False]
    (change,) = change_points([*before, *after])
    at_ns = NOW_NS - 3 * DAY_NS
    return FixedWorkflow(
        service="ferries", workflow="crossings", at_ns=at_ns, whole=before_and_after(before, after),
        spared=before_and_after([True] * 24 + [False] * 6, [True] * 40), change=change, changed_ns=at_ns,
    )  # fmt: skip


FIX: Final = IssueFix(since="2.1", workflows=(_compared(),), releases=("2.1", "2.0"))


async def _add_demo(stage: Stage) -> str:
    demo = played_demo()
    return await stage.add(demo.trajectory, "solar-advisor", totals=total_up(demo))


def _add_issues(stage: Stage, ids: dict[str, str]) -> str:
    """Add two issues; return the newer one's id."""
    add = stage.issues.add
    mark = Fingerprint(
        service="ferries", agent="south desk", mode="unhandled_error", kind="tool", tool="seats",
        error="TimeoutError",
    )  # fmt: skip
    trend = (0, 0, 0, 0, 1, 0, 0, 2, 1, 0, 3, 2, 5, 8)
    first = add(mark, IssueState.NEW, trend, (ids["parallel"],), SHARE, fix=FIX)
    wrong = replace(mark, service="solar-advisor", agent="calculator", mode="wrong_computation")
    wrong = replace(wrong, tool="", error="")
    add(wrong, IssueState.REGRESSED, (4, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 3), (ids["demo"],))
    return first


WENT_WELL: Final = (
    ("refunds", "Refund order 4417: it arrived broken.", "support", "I refunded 34.90 euros to the card."),
    (
        "trip-desk",
        "A night train from Vienna to Venice, two berths.",
        "booker",
        "Two berths booked.",
    ),
    ("solar-advisor", "Does a battery of 5 kWh pay for itself in Freiburg?", "writer", "In eleven years."),
    ("ferries", "When does the last ferry leave for Borkum today?", "north desk", "At 19:30."),
    ("refunds", "Where is parcel 00340434?", "tracker", "In the depot of Kassel since 6:12."),
)
"""Service, task, agent and answer."""
CRASHED: Final = (
    ("trip-desk", "Move my stay in Udine by one night.", "hotel desk", "reserve", "RateLimitError: 429"),
    (
        "refunds",
        "Cancel my subscription from June.",
        "billing",
        "cancel",
        "PermissionError: not yours",
    ),
)
"""Service, task, agent, tool and its error."""


_WORKFLOWS: Final = {
    "refunds": "refund-desk", "trip-desk": "booking", "solar-advisor": "solar-savings",
    "ferries": "crossings",
}  # fmt: skip
_ROUNDS: Final = 12
AGREED: Final = run(
    step("lead", "Split the fleet between the two of you."),
    step("north desk", "Asking for the Marianne.", group=1),
    step("south desk", "Asking for the Odile.", group=1),
    tool("north desk", "120 seats", target="seats", group=1),
    tool("south desk", "95 seats", target="seats", group=1),
    step("lead", "Together they have 215 seats."),
    step("writer", "The two ferries have 215 seats together."),
    task=PARALLEL.task,
    output="The two ferries have 215 seats together.",
    run_id="5b" * 16,
)
"""A run of the same task that passed."""


async def shop_window(folder: Path) -> tuple[Stage, dict[str, str]]:
    """Return a stage like a normal day, for the documentation's pictures, and what they show."""
    stage, chance = open_stage(folder), Random(7)
    crashes: dict[tuple[str, ...], list[str]] = {}
    for number in range(_ROUNDS * len(WENT_WELL)):
        stage.shown += chance.choice((0, 0, 1, 3))
        service, task, agent, answer = WENT_WELL[chance.randrange(len(WENT_WELL))]
        told = run(step("front desk", "One moment."), step(agent, answer), task=task, output=answer)
        await _add_told(stage, replace(told, run_id=f"{number:032x}"), service, chance)
        if number % 11 == 9:
            crashed = CRASHED[number % len(CRASHED)]
            crashes.setdefault(crashed, []).append(await _add_crash(stage, number, crashed, chance))
    for (service, _task, agent, name, error), runs in crashes.items():
        kind = error.partition(":")[0]
        mark = Fingerprint(
            service=service, agent=agent, mode="unhandled_error", kind="tool", tool=name, error=kind
        )  # fmt: skip
        trend = (1, 0, 2, 1, 1, 0, 1, 3, 1, 0, 2, 1, 2, len(runs))
        stage.issues.add(mark, IssueState.ONGOING, trend, tuple(runs))
    passed = await _add_told(stage, AGREED, "ferries", chance)
    ids = {"parallel": await _add_told(stage, PARALLEL, "ferries", chance)}
    ids["demo"] = await add_spans(stage, demo_body(), "solar-advisor")
    shown = {"run": ids["demo"], "issue": _add_issues(stage, ids)}
    return stage, {**shown, "failed": ids["parallel"], "passed": passed}


async def _add_crash(stage: Stage, number: int, crashed: tuple[str, ...], chance: Random) -> str:
    service, task, agent, name, error = crashed
    broken = run(
        step("front desk", "One moment."), failed_tool(agent, error, target=name), step(agent, "Sorry."),
        task=task, output="Sorry.", root_error=error,
    )  # fmt: skip
    return await _add_told(stage, replace(broken, run_id=f"c{number:031x}"), service, chance)


async def _add_told(stage: Stage, told: Trajectory, service: str, chance: Random) -> str:
    """Add a run with the numbers that its spans would have."""
    steps = len(told.steps)
    totals = RunTotals(
        workflow=_WORKFLOWS[service], steps=steps, duration_ns=steps * chance.randrange(400, 1900) * 10**6,
        input_tokens=steps * chance.randrange(150, 900), output_tokens=steps * chance.randrange(20, 90),
        cost_usd=steps * chance.randrange(3, 60) / 10_000,
    )  # fmt: skip
    return await stage.add(told, service, totals=totals)
