"""Figures of an answer: wrong ones, in several languages and domains, and right ones that look alike."""

from __future__ import annotations

import pytest

from analyzer.lineage.clue import Clue, weigh
from analyzer.lineage.figures import figures
from analyzer.lineage.slips import wrong_figures
from analyzer.signals.run_view import read
from tests.runs import run, step, tool

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
