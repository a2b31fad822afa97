"""Early warnings: their threshold, out of fold, and a service's, by tenant, service and release."""

from __future__ import annotations

import json
import random
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
from analyzer.history.early import MOST_PAIRS, EarlyAlarm, KnownPart, Part, early_alarm, elements_so_far
from analyzer.history.elements import END, RUN, Element, digest_of, pack
from analyzer.history.spectrum import Said
from analyzer.issues.recurrence import Notice
from collector_processor.core.analysis import EARLY, NOTES, Analysis
from collector_processor.core.records import RunOutcome
from collector_processor.otlp import NO_TENANT, Tenant, TraceKey
from collector_processor.rebuild.encode import encode
from collector_processor.settings import Settings, load_settings
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


SHARE: Final = 0.05
_TESTED: Final = 400


def element(name: str, step: int = 0) -> Element:
    return Element(key=f"A|{name}", site=RUN, step=step, text=f"calls {name}")


def part(*names: str) -> Part:
    return Part(pairs=frozenset((digest_of(f"A|{name}"), digest_of(RUN)) for name in names))


def known(said: Said, *names: str) -> KnownPart:
    seen = part(*names)
    return KnownPart(said=said, part=seen, whole=seen.digests)


def passing(count: int) -> list[KnownPart]:
    return [known(Said.PASSED, "search", "answer") for _ in range(count)]


def warns(alarm: EarlyAlarm) -> bool:
    return alarm.warned([element("search"), element("delete", 1)]) is not None


def test_a_warning_needs_59_passing_runs() -> None:
    assert not warns(early_alarm(passing(58), SHARE))
    assert warns(early_alarm(passing(59), SHARE))


def test_failing_runs_alone_set_no_threshold() -> None:
    assert not warns(early_alarm([known(Said.FAILED, "delete") for _ in range(100)], SHARE))


def test_the_warning_names_the_step_that_is_unlike_passing_runs() -> None:
    warned = early_alarm(passing(80), SHARE).warned([element("search"), element("delete", 3)])
    assert warned is not None
    assert (warned.step, warned.text, warned.as_high, warned.passing) == (3, "calls delete", 0, 80)


def test_a_part_like_passing_runs_or_without_steps_is_not_warned_of() -> None:
    alarm = early_alarm([*passing(80), known(Said.FAILED, "delete")], SHARE)
    assert alarm.warned([element("search"), element("answer", 1)]) is None
    assert alarm.warned([]) is None


def test_a_passing_run_is_scored_without_itself() -> None:
    odd = known(Said.PASSED, "search", "odd")
    alarm = early_alarm([*passing(80), odd], SHARE)
    warned = early_alarm(passing(80), SHARE).warned([element("search"), element("odd", 1)])
    assert warned is not None
    assert alarm.scores[-1] == pytest.approx(warned.score, rel=0.25)
    assert alarm.scores[-1] > alarm.scores[0]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_at_most_5_percent_of_passing_runs_get_a_warning_even_if_20_percent_show_something_new(
    seed: int,
) -> None:
    coin = random.Random(seed)

    def names() -> list[str]:
        return ["search", f"new{coin.random()}"] if coin.random() < 0.2 else ["search", "answer"]

    alarm = early_alarm([known(Said.PASSED, *names()) for _ in range(200)], SHARE)
    warned = sum(alarm.warned([*map(element, names())]) is not None for _ in range(_TESTED))
    assert warned <= SHARE * _TESTED


def test_a_parts_last_step_is_not_its_end_and_a_part_is_bounded() -> None:
    end = Element(key=f"{END}|answer", site=RUN, step=0, text="ends")
    many = [element(str(number), number) for number in range(3 * MOST_PAIRS)]
    assert elements_so_far([end, element("search")]) == (element("search"),)
    assert len(elements_so_far(many)) == MOST_PAIRS
    wide = [part(*(f"{side}{n}" for n in range(MOST_PAIRS))) for side in "ab"]
    joined = wide[0].joined(wide[1])
    assert len(joined.pairs) == MOST_PAIRS
    assert len(joined.packed()) <= 720
    assert Part.unpacked(joined.packed()) == joined


def test_early_warnings_are_off_without_the_setting() -> None:
    assert Settings.model_fields["early_false_alarms"].default == 0
