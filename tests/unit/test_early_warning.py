"""The threshold of early warnings: out of fold, from passing runs alone, and only from what has arrived."""

from __future__ import annotations

import random
from typing import Final

import pytest

from analyzer.history.early import MOST_PAIRS, EarlyAlarm, KnownPart, Part, early_alarm, elements_so_far
from analyzer.history.elements import END, RUN, Element, digest_of
from analyzer.history.spectrum import Said
from collector_processor.settings import Settings

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
