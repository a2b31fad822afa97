"""Durations in two units and between times of day are derived, not invented."""

from __future__ import annotations

import pytest

from analyzer.lineage.durations import differences, durations
from analyzer.lineage.figures import figures
from analyzer.lineage.slips import wrong_figures
from analyzer.signals.run_view import read
from tests.runs import run, step, tool


def accused(result: str, answer: str) -> bool:
    given = run(tool("a", result, "read_log"), step("a", answer), task="How long did it take?", output=answer)
    return any(clue.signs for clue in wrong_figures(read(given)))


@pytest.mark.parametrize(
    "answer",
    [
        "The kiln ran for 7 hours and 45 minutes.",
        "Der Ofen lief 7 Stunden und 45 Minuten.",
        "Le four a tourné 7 heures et 45 minutes.",
        "El horno funcionó 7 horas y 45 minutos.",
        "Печь работала 7 часов 45 минут.",
        "窑炉运行了7小时45分钟。",
        "窯は7時間45分動きました。",
        "It ran for 7.75 hours.",
    ],
)
def test_hours_in_decimals_may_be_said_in_hours_and_minutes(answer: str) -> None:
    assert not accused('{"kiln_h": 7.75}', answer)


def test_a_wrong_duration_is_still_found() -> None:
    assert accused('{"kiln_h": 7.75, "heat_c": 1180}', "The kiln ran for 47.5 hours.")


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [
        ("It took 37 minutes.", True),
        ("It took 38 minutes.", True),
        ("Es dauerte 37 Minuten.", True),
        ("It took 37 minutes at a load of 7120.", False),
    ],
)
def test_the_time_between_two_times_of_day_is_given(answer: str, is_right: bool) -> None:
    log = '[{"t": "03:20:10", "what": "closed"}, {"t": "03:57:31", "what": "open"}, {"load": 5120}]'
    assert accused(log, answer) is not is_right


def test_times_after_midnight_are_later() -> None:
    assert 2400.0 in differences(["from 23:40 to 00:20"])


def test_two_units_make_one_duration() -> None:
    assert [one.seconds for one in durations("2 h 5 min, then 90 minutes and 30 seconds")] == [7500.0, 5430.0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("138.4 万", 1_384_000),
        ("3.2亿", 3.2e8),
        ("2,5 Mrd. Euro", 2.5e9),
        ("4 crore", 4e7),
        ("12 тыс. руб.", 12_000),  # noqa: RUF001
    ],
)
def test_scale_words_belong_to_the_number(text: str, value: float) -> None:
    assert [one.value for one in figures(text)] == [pytest.approx(value)]
