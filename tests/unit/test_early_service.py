"""Early warnings of a service: tenants, services and releases apart, bounded, also after a restart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from dataclasses import replace as changed
from typing import Final

import pytest

from analyzer.analyses.commit import decide_provisionally
from analyzer.analyses.early import FRESH_S, MOST_RUNS, MOST_SERVICES, EarlyWarning
from analyzer.analyses.prepared import Analysed, Open, PreparedRun, TraceBytes
from analyzer.analyses.worker import work_from_settings
from analyzer.analyses.worker_process import worker_settings
from analyzer.history.elements import pack
from analyzer.issues.recurrence import Notice
from collector_processor.core.analysis import EARLY, NOTES, Analysis
from collector_processor.core.records import RunOutcome
from collector_processor.otlp import NO_TENANT, Tenant, TraceKey
from collector_processor.rebuild.encode import encode
from collector_processor.settings import load_settings
from semconv.model import Completion, Resource, Span, TraceId
from semconv.record import replace
from tests.factories import agent, chat, tool, workflow

SETTINGS: Final = load_settings({}, early_false_alarms=0.2)
PREPARE: Final = work_from_settings(worker_settings(SETTINGS)).prepare
"""As in a worker process, which gets some of the settings only."""
ENOUGH: Final = 14
"""Passing runs for a share of 0.2."""


def spans(number: int, call: str, release: str, service: str) -> list[Span]:
    of = TraceId(f"{number:032x}")
    about = Resource(attributes={"service.name": service, "service.version": release})
    found = [
        workflow(1, task="What is the price?", answer="4", trace_id=of),
        agent(2, "clerk", trace_id=of),
        chat(3, parent=2, answer="I look it up.", trace_id=of, start=10, end=20),
        tool(4, call, parent=2, trace_id=of, start=30, end=40),
    ]
    return [replace(one, resource=about) for one in found]


def prepared(
    number: int, call: str, completion: Completion, *, release: str = "1", service: str = "shop"
) -> PreparedRun:
    sent = spans(number, call, release, service)
    body = encode(sent[1:] if completion is Completion.IDLE_OPEN else sent)
    key = TraceKey(NO_TENANT, sent[0].trace_id)
    (run,) = PREPARE(TraceBytes(key=key, completion=completion, bodies=(body,))).runs
    return run


def unfinished(number: int, call: str, release: str = "1", service: str = "shop") -> Open:
    run = prepared(number, call, Completion.IDLE_OPEN, release=release, service=service)
    assert isinstance(run, Open)
    return run


@dataclass
class World:
    """Early warnings, with a store that says of each run that it passed."""

    now: float = 0.0
    told: list[Notice] = field(default_factory=list)
    early: EarlyWarning = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.early = EarlyWarning(
            read=self.read, share=0.2, announce=self.announce, clock=lambda: self.now, now_ns=lambda: 0
        )

    async def announce(self, notice: Notice) -> None:
        self.told.append(notice)

    async def read(self, _tenant: Tenant, run_ids: Sequence[str]) -> Sequence[RunOutcome]:
        assert len(run_ids) <= MOST_RUNS
        return [RunOutcome(run_id=one, said="passed", elements=pack(())) for one in run_ids]

    async def look(
        self, number: int, call: str, tenant: Tenant = NO_TENANT, release: str = "1", service: str = "shop"
    ) -> Analysis | None:
        return await self.early.warn(tenant, unfinished(number, call, release, service))

    async def play(
        self, first: int, tenant: Tenant = NO_TENANT, service: str = "shop", n: int = ENOUGH
    ) -> None:
        """Play runs that are looked at once, end, and pass."""
        for number in range(first, first + n):
            await self.look(number, "look_up", tenant, service=service)
            run = prepared(number, "look_up", Completion.ROOT_ENDED, service=service)
            assert isinstance(run, Analysed)
            self.early.end(tenant, run)
        self.now += FRESH_S


async def test_a_run_is_warned_of_once_in_plain_words() -> None:
    world = World()
    await world.play(1)
    assert await world.look(90, "look_up") is None
    warned = await world.look(91, "delete_all")
    again = await world.look(91, "delete_all")
    assert warned is not None
    assert warned == again
    assert [one.title for one in world.told] == ["clerk calls delete_all (step 1)"]
    assert world.early.warnings == 1


@pytest.mark.parametrize(
    "place",
    [{"tenant": Tenant("blue")}, {"release": "2"}, {"service": "bank"}],
    ids=["tenant", "release", "service"],
)
async def test_runs_of_another_tenant_release_or_service_are_not_compared(place: dict[str, str]) -> None:
    world = World()
    await world.play(1)
    assert await world.look(91, "delete_all", **place) is None  # type: ignore[arg-type]


async def test_a_tenant_with_many_services_does_not_push_out_the_runs_of_another() -> None:
    world = World()
    await world.play(1, Tenant("blue"))
    for number in range(2 * MOST_SERVICES):
        await world.play(1000 + number, service=f"service-{number}", n=1)
    assert await world.look(91, "delete_all", Tenant("blue")) is not None


async def test_a_tenant_that_comes_after_many_others_is_warned_too() -> None:
    world = World()
    for number in range(MOST_SERVICES):
        await world.play(1000 + number, Tenant(f"tenant-{number}"), n=1)
    await world.play(1, Tenant("blue"))
    assert await world.look(91, "delete_all", Tenant("blue")) is not None


async def test_a_warning_outlives_a_restart_while_the_run_goes_on() -> None:
    world = World()
    await world.play(1)
    warned = await world.look(91, "delete_all")
    assert warned is not None
    run = unfinished(91, "delete_all")
    (before,) = decide_provisionally(NO_TENANT, [changed(run, analysis=warned)], {}, 1).verdicts
    world.restart()
    assert await world.look(91, "delete_all") is None
    known = {run.run.identity.run_id: before}
    (after,) = decide_provisionally(NO_TENANT, [run], known, 2).verdicts
    assert after.decided_ns == 2
    assert after.fields[EARLY] == before.fields[EARLY]
    assert after.fields[NOTES] == before.fields[NOTES]


async def test_a_lasting_warning_keeps_its_own_note_only() -> None:
    run = unfinished(1, "look_up")
    warned = run.analysis.with_note("This run may go on.").with_warning({"step": 1}, "Early warning.")
    again = run.analysis.with_warning_of(json.loads(warned.document))
    assert json.loads(again.document)[NOTES] == ["Early warning."]
