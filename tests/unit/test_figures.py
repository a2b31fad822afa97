"""Figures of answers: sums, durations and slips, sources, and right figures that look alike."""

from __future__ import annotations

import time

import pytest

from analyzer.lineage.clue import Clue, weigh
from analyzer.lineage.durations import differences, durations
from analyzer.lineage.figures import figures
from analyzer.lineage.slips import wrong_figures
from analyzer.lineage.sources import sources
from analyzer.texts.arithmetic import wrong_calculations
from analyzer.texts.numbers import derivable, numbers, written_out
from analyzer.texts.run_view import read
from semconv.model import Step
from tests.runs import run, step, tool


@pytest.mark.parametrize(
    "text",
    [
        "16 x 10 x 3 = 450",
        "16 GPUs x 10 hours x $3 = $450",
        "16 GPUs × 10 hours × $3 per GPU-hour = $450",  # noqa: RUF001
        "16 * 10 h * $3/h = $450",
        "**16 x 10 = 450**",
        "- 16 + 10 = 450",
        '{"answer": "16 x 10 x 3 = $450"}',
        r"16 \times 10 = 450",
        "cost: 16 x 10 = 450.",
        "x = 16 * 10 = 450",
        "1,000 + 2 = 450",
    ],
)
def test_a_sum_that_does_not_add_up_is_found_and_quoted_word_for_word(text: str) -> None:
    (wrong,) = wrong_calculations(text)
    assert wrong.stated == 450
    assert wrong.quote in text
    assert wrong.right != wrong.stated


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("1.240 + 980 + 1.655 + 725 = 4.500", "4,600"),
        ("318 + 274 + 405 + 198 = 1.295", "1,195"),
        ("1.5 + 2.25 = 3.85", "3.75"),
    ],
)
def test_points_part_thousands_where_that_is_nearer_to_the_result(text: str, right: str) -> None:
    (wrong,) = wrong_calculations(text)
    assert wrong.right_shown == right


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("Rp 45.870.000", 45_870_000, "idr"),
        ("1.260.000 €", 1_260_000, "eur"),
        ("1.250.000,50 €", 1_250_000.5, "eur"),
        ("R$ 2.001.000.000", 2_001_000_000, "brl"),
        ("₹12,34,567", 1_234_567, "inr"),
        ("Rs. 1,23,456.50", 123_456.5, "inr"),
        ("12,43,567 रुपये", 1_243_567, ""),
        ("CHF 1'234'567.50", 1_234_567.5, "chf"),
        ("1’250 Stück", 1_250, "stück"),  # noqa: RUF001 - as typeset
        ("1.500.000đ", 1_500_000, "vnd"),
        ("١٬٢٥٠ ريال", 1_250, ""),  # noqa: RUF001 - Arabic digits
    ],
)
def test_figures_are_read_as_other_countries_write_them(text: str, value: float, unit: str) -> None:
    (figure,) = figures(text)
    assert (figure.value, figure.unit) == (value, unit)


@pytest.mark.parametrize(
    "text", ["192.168.100.200", "v1.234.567", "1.234.567-rc1", "10.100.200.150", "12.5.2026"]
)
def test_addresses_versions_and_dates_are_no_figures(text: str) -> None:
    assert not figures(text)


def test_three_numbers_without_blanks_are_no_figure_of_india() -> None:
    assert 1_020_300 not in {one.value for one in figures("rows 10,20,300 items")}


LEFT_ALONE = {
    "right, or no plain arithmetic": [
        "16 x 10 x 3 = 480",
        "7 / 3 = 2.33",
        "1,000 + 3 = 1,003",
        "10 x 420 + 1.800 = 6.000",
        "2 + 3 * 4 = 14",
        "15% x 200 = 30",
        "(5 + 3) * 2 = 16",
        "y + 3 * 4 = 20",
        "2024-11-05 = 2014",
        "pages 3-4 = 12",
        "2^3 + 4 = 12",
        "16 GPUs at $3 for 10 hours = 450",
        "14 x 435 W = 6.09 kWp",
        "220 x 14 + 92 x 8 = 3 816,00 €",
        "5 / 0 = 1",
        "a = 3",
        "",
    ],
    "more than a number on a side": [
        "1/2 + 1/3 = 5/6",
        "1/3 + 1/3 = 2/3",
        "1/4 + 1/4 = 1/2",
        "1 + 1/2 + 1/4 = 7/4",
        "10 / 3 = 3 1/3",
        "6 * 2 = 3 * 4",
        "9 - 5 = 4 - 0",
        "5 + 5 = 10 + 0 = 10",
        "3 + 4 = 7 * 2 = 14",
        "x = 3 + 4 = 8 - 1",
        "x = 3 + 4 = 9 - y",
        "12 * 35 = 4.2 × 10^2",  # noqa: RUF001 - as written
        r"12 * 35 = 4.2 \times 10^{2}",
        "12 * 35 = 4.2 * 10**2",
        "12 * 35 = 4.2e2",
        "12 * 2 = 5^2 - 1",
        "0.5 * 100 = 5000 %",
        "A ratio 3/4 = 75 percent",
        "7 + 5 = 0 (mod 12)",
        "1011 + 1 = 1100 (binary)",
        "11 / 4 = 2 R 3",
        "11 / 4 = 2 remainder 3",
        "11 / 4 = 2 (integer division)",
        "1234 * 2 = 2,500 (rounded to hundreds)",
        "1 000 + 2 000 = 3 000",
        "1000 * 2 = 2.000",
        "10:45 + 15 = 11:00",
        "500 : 6 × 9 = 750",  # noqa: RUF001 - as written
        "500 g : 6 × 9 = 750 g",  # noqa: RUF001 - as written
        "√16 + 2 = 6",
        "-5 + 8 = 3",
        "- 5 + 8 = 3",
        "15/04 - 10 = 5 days",
        "half of 5 + 5 = 5",
        "5 choose 2 + 1 = 11",
    ],
    "numbers in different units": [
        "1.2 GB + 300 MB = 1.5 GB",
        "60 min + 1 h = 2 h",
        "60 km/h * 30 min = 30 km",
        "3600 s / 60 = 1 h",
        "100 km / 2 h = 13.9 m/s",
        "60 * 2 = 2 hours",
        "5 days + 2 days = 1 week",
        "5 ft 3 + 4 = 5 ft 7",
        "2 dozen + 1 = 25",
        "12 eggs + 12 eggs = 2 dozen",
        "3 million * 2 = 6,000,000",
        "3 * 2,000,000 = 6 million",
        "4 quarters + 4 quarters = 2 wholes",
    ],
}


@pytest.mark.parametrize(
    "text", [pytest.param(text, id=f"{why}: {text}") for why, texts in LEFT_ALONE.items() for text in texts]
)
def test_what_is_no_wrong_sum_is_left_alone(text: str) -> None:
    assert list(wrong_calculations(text)) == []


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("84 * 0.41 * 905 * 0.31 = 9,266.14", 9662.142),
        ("84 * 0.41 * 905 * 0.31 = 9,266.14 (rounded to cents)", 9662.142),
        ("5 kg + 3 kg = 9 kg", 8),
        ("$5 + $3 = $9", 8),
        ("$5 + $3 = $9, so it costs $9", 8),
        ("5 + 3 = 9 and 2 + 2 = 4", 8),
        ("5 apples + 3 apples = 9 apples in total", 8),
        ("5 hours * 3 = 16 hours", 15),
        ("3 * 4 = 15 hours", 12),
        ("3 million * 2 = 7 million", 6),
        ("1/2 + 1/2 = 3/2", 1),
        ("6 * 2 = 3 * 5", 12),
        ("5 + 3 = 9!", 8),
        ("5 + 3 = 9 - which is odd", 8),
        ("(5 + 3 = 9)", 8),
        ("**5 + 3 = 9**", 8),
        ("5 + 3 = 9: see above", 8),
        (r"\(5 + 3 = 9\)", 8),
        ('{"sum":5 + 3 = 9}', 8),
        ("1: 5 + 3 = 9", 8),
    ],
)
def test_a_wrong_sum_stays_wrong_whatever_stands_around_it(text: str, right: float) -> None:
    (wrong,) = wrong_calculations(text)
    assert wrong.right == pytest.approx(right)
    assert text[wrong.start : wrong.end] == wrong.quote


def test_numbers_are_values_not_spellings() -> None:
    assert numbers("$1,080.0 of 3 GPUs, v2 and 4-5, 2024") >= {1080.0, 3.0, 2024.0}
    assert 2.0 not in numbers("v2 x2y")


def test_a_product_of_known_figures_is_derivable_and_another_figure_is_not() -> None:
    assert derivable(480, [3, 10, 16])
    assert not derivable(450, [3, 10, 16])


def test_a_dotless_i_is_an_i_as_for_the_search() -> None:
    assert written_out("5 m\u0131llion people") == {5.0: 5_000_000.0}


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


EVEN = 0.5


def found(task: str, result: str, answer: str) -> Clue | None:
    made = run(tool("clerk", result, "look_up"), step("clerk", answer), task=task, output=answer)
    return next(wrong_figures(read(made)), None)


@pytest.mark.parametrize(
    ("task", "result", "answer", "right"),
    [
        ("How deep is the well?", '{"depth_cm": 9600}', "It is 6,900 cm deep.", "look_up returned 9600"),
        ("Was kostet der Zaun?", '{"summe": 1840.0}', "Er kostet 1.940,00 €.", "look_up returned 1840.0"),
        (
            "Quel est le solde ?",
            '{"solde": 2481.6}',
            "Le solde est de 2 841,60 €.",
            "look_up returned 2481.6",
        ),
        ("How many seats has it?", '{"seats": 120}', "It has 140 seats.", "look_up returned 120"),
        ("Wie viele Betten sind frei?", "120 Betten", "Es sind 150 Betten.", "look_up returned 120"),
        (
            "What do 2 tickets cost?",
            '{"price": 171.5}',
            "One costs 171.50 euros, so both cost 334 euros.",
            "171.50 x 2 is 343",
        ),
        (
            "Сколько воды ушло за год?",
            "2025-01-01; 48213\n2026-01-01; 51067",
            "Счётчик показал 48213 и 51067, расход 2584.",
            "51067 - 48213 is 2,854",
        ),
    ],
)
def test_a_slip_is_told_with_what_should_stand_there(task: str, result: str, answer: str, right: str) -> None:
    clue = found(task, result, answer)
    assert clue is not None
    assert right in clue.reason
    assert weigh([clue]).probability > EVEN


@pytest.mark.parametrize(
    ("task", "result", "answer"),
    [
        pytest.param(
            "Pay 200 to Mia and 200 to Zoe.",
            '{"balance": 913.25}',
            "Both have 200. 513.25 are left.",
            id="a known amount twice",
        ),
        pytest.param(
            "What did the fair raise after costs?",
            '{"takings": 1284.5, "flour": 212.3, "stall": 60}',
            "It raised 1,012.20: 1,284.50 less 212.30 and 60.",
            id="three values",
        ),
        pytest.param(
            "Was kosten 3.200 kWh im Jahr?",
            '{"preis_ct": 29.0, "grund_monat": 9.9}',
            "| Strom | 928,00 € |\n| Grundpreis | 118,80 € |\n| Summe | 1.046,80 € |",
            id="cents, months and a thousands dot",
        ),
        pytest.param(
            "Combien de pains par jour ?",
            "lun 0\nmar 84\nmer 92\njeu 88\nven 110\nsam 156\ndim 142",
            "672 pains, soit 112 par jour d'ouverture.",
            id="a mean without the closed day",
        ),
        pytest.param(
            "How old is the oldest jar?",
            '[{"year": 950}, {"year": -1200}]',
            "It is from 1200 BC, about 3200 years old.",
            id="an age that is rounded",
        ),
        pytest.param(
            "How many cents are 4.35 euros?", '{"fee": "4.35 EUR"}', "They are 435 ct.", id="cents of euros"
        ),
        pytest.param(
            "How long is the beam?", '{"beam_m": 3.42}', "The beam is 342 cm long.", id="metres in cm"
        ),
        pytest.param(
            "How heavy is each crate?",
            '{"a": 118, "b": 224, "c": 391, "d": 475, "e": 533, "f": 617, "g": 702, "h": 866, "i": 941}',
            "After packing, crate c weighs 319 kg with its lid.",
            id="many figures, of which one is alike by chance",
        ),
        pytest.param(
            "What is left in the fund?",
            '{"fund": 1840, "grant": 100}',
            "With the grant the fund has 1,940 euros.",
            id="a round amount added",
        ),
        pytest.param(
            "How many seats are left?",
            '{"seats": 120, "sold": 87}',
            "33 seats are left.",
            id="the same noun, worked out",
        ),
        pytest.param(
            "How many beds have the two?",
            "Elm House has 120 beds, Oak House has 95 beds.",
            "Elm House has 120 beds. A third house would add 64 beds.",
            id="the same noun, several figures",
        ),
        pytest.param(
            "What does the boat cost?",
            '{"length_m": 12.5, "berth": 4}',
            "The boat costs 14,837.62 pounds.",
            id="a figure from nowhere may come from outside the run",
        ),
        pytest.param(
            "Which crew is on duty?",
            '{"crew": "north", "shift": 3}',
            "The north crew. For scale: light takes 8.317 minutes from the sun.",
            id="an aside",
        ),
    ],
)
def test_a_figure_that_arithmetic_could_give_accuses_nobody(task: str, result: str, answer: str) -> None:
    assert found(task, result, answer) is None


COSTS = (
    '[{"item": "rent", "eur": 1248.3}, {"item": "seeds", "eur": 875.0}, {"item": "tools", "eur": 2310.45}]'
)


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [
        ("In all that is 4,433.75 euros.", True),
        ("In all that is 4,533.75 euros.", False),
        ("Insgesamt sind es 4.343,75 €.", False),
    ],
)
def test_the_sum_of_a_column_has_no_slip(answer: str, is_right: bool) -> None:
    clue = found("What did it cost?", COSTS, answer)
    assert (clue is None) is is_right
    assert clue is None or "the 3 values that it adds up are 4,433.75" in clue.reason


def test_a_day_of_a_month_has_a_number_that_a_day_can_have() -> None:
    assert [one.value for one in figures("mar 84, mar 12")] == [84.0]


def texts(*steps: Step) -> list[str]:
    """Return the texts from outside that these steps show."""
    return [source.text for source in sources(read(run(*steps))) if source.is_result]


def test_a_result_is_an_agents_word_only_if_that_agent_worked_within_the_call() -> None:
    wrote = "The barn holds 44 hens."
    within = step("helper", wrote, start_ns=20, end_ns=30)
    asked = tool("farmer", wrote, "ask_helper", start_ns=10, end_ns=40)
    before = tool("farmer", wrote, "count", start_ns=1, end_ns=9)
    ends_later = tool("farmer", wrote, "count", start_ns=15, end_ns=29)
    assert texts(asked, within) == []
    assert texts(before, within) == [wrote]
    assert texts(ends_later, within) == [wrote]


def test_a_sentence_of_several_agents_is_theirs_once_and_a_short_word_is_nobodys() -> None:
    wrote = step("helper", "ok")
    assert texts(wrote, wrote, tool("farmer", "44 hens, ok")) == ["44 hens, ok"]
    assert texts(wrote, wrote, tool("farmer", "ok")) == []


def test_thousands_of_calls_take_seconds() -> None:
    """CPU time, because the machine may be busy; comparing each call with each step took half a minute."""
    pairs = [
        (
            tool("farmer", f"Barn {n} holds hens.", start_ns=10 * n + 1, end_ns=10 * n + 5),
            step("farmer", f"I have read of barn {n}.", start_ns=10 * n + 6, end_ns=10 * n + 9),
        )
        for n in range(3_000)
    ]
    reading = read(run(*[one for pair in pairs for one in pair]))
    started = time.process_time()
    assert len(sources(reading)) == 3_000
    assert time.process_time() - started < 8


SURVEY = tool("look", '[{"village": "A", "households": 7360, "dry": 1840, "last_year": 1363}]', "survey")


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [
        ("1,840 of 7,360 households (35%) are dry.", False),
        ("1.840 von 7.360 Haushalten (35 %) sind trocken.", False),
        ("7,360 世帯のうち 1,840 世帯。1,840 / 7,360 (35%)", False),
        ("1,840 of 7,360 households (25%) are dry.", True),
        ("1,840 of 7,360 households (about 24%) are dry.", True),
        ("1,840 of 7,360 households are dry, 35% more than last year.", True),
        ("1,840 of 7,360 (35% more than last year).", True),
        ("1,840 of 7,360, against a target of 35%.", True),
    ],
)
def test_a_share_in_brackets_is_that_of_the_figures_before_it(answer: str, *, is_right: bool) -> None:
    made = run(SURVEY, step("writer", answer), task="How many households are dry?", output=answer)
    assert (next(wrong_figures(read(made)), None) is None) is is_right
