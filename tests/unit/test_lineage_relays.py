"""What goes wrong when agents pass on rows, ids and totals, and twins in which it goes right."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from analyzer.lineage.clue import Clue
from analyzer.lineage.known import Known
from analyzer.lineage.older import values_before_update, values_of_other_times
from analyzer.lineage.readers import LineageReader
from analyzer.lineage.relayed import relayed_values
from analyzer.lineage.rows import values_of_other_rows
from analyzer.lineage.ruled_out import deeds_after_correction
from analyzer.lineage.selected import wrongly_selected
from analyzer.lineage.targets import deeds_on_untold
from analyzer.lineage.totals import wrong_aggregates
from analyzer.texts.run_view import read
from semconv.model import Step
from tests.runs import calling, hearing, run, step, tool


def found(reader: LineageReader, task: str, *steps: Step) -> Clue | None:
    return next(reader(Known(read(run(*steps, task=task, output=steps[-1].output)))), None)


def called(agent: str, name: str, arguments: object, result: object, heard: str = "") -> list[Step]:
    asked = json.dumps(arguments)
    told = result if isinstance(result, str) else json.dumps(result)
    call = calling(agent, (name, asked))
    return [hearing(call, ("user", heard)) if heard else call, tool(agent, told, name, input=asked)]


CELLARS = {
    "cellars": [
        {"cellar": "3", "wine": {"sort": "Riesling", "acid": 7.25}, "seen": "2027-03-01"},
        {"cellar": "4", "wine": {"sort": "Riesling", "acid": 6.85}, "seen": "2027-03-01"},
        {"cellar": "5", "wine": {"sort": "Kerner", "acid": 5.95}, "seen": "2027-03-02"},
    ]
}
KEEPERS = """
| site | keeper | phone |
|---|---|---|
| Mill | Ute Rahn | 555-0141 |
| Quay | Jo Abel | 555-0178 |
| Dam | Al Ito | 555-0113 |
""".strip()


@pytest.mark.parametrize(
    ("task", "result", "wrong", "right"),
    [
        (
            "How acid is cellar 4?",
            CELLARS,
            "Cellar 4 has 7.25 g/l of acid.",
            "Cellar 4 has 6.85 g/l of acid.",
        ),
        ("Who keeps Quay?", KEEPERS, "The keeper of Quay is Ute Rahn.", "The keeper of Quay is Jo Abel."),
        ("Who keeps Quay?", KEEPERS, "Quay is kept by 555-0113.", "Mill has Ute Rahn, Quay has Jo Abel."),
    ],
)
def test_values_of_another_row(task: str, result: object, wrong: str, right: str) -> None:
    look = called("reader", "list_all", {}, result)
    clue = found(values_of_other_rows, task, *look, step("reader", wrong))
    assert clue is not None
    assert clue.step == 2
    assert found(values_of_other_rows, task, *look, step("reader", right)) is None


def test_a_value_that_somebody_asked_for_is_not_taken_from_another_row() -> None:
    look = called("reader", "list_all", {}, KEEPERS)
    task = "Does Ute Rahn keep Quay?"
    assert found(values_of_other_rows, task, *look, step("reader", "Ute Rahn keeps Quay, I think.")) is None


TEAMS = {
    "teams": [
        {"team": team, "captain": captain, "points": points}
        for team, captain, points in [
            ("Falcons", "Ada Roth", 45.5),
            ("Otters", "Ben Stahl", 61.5),
            ("Lynx", "Dora Lind", 52.5),
            ("Bears", "Ed Moss", 29.5),
        ]
    ]
}


@pytest.mark.parametrize(
    ("lines", "is_slip"),
    [
        (["Falcons have 52.5."], True),
        (["Falcons trail the leading 61.5."], False),
        (["Falcons have 52.5.", "Sorry, Falcons have 45.5."], False),
    ],
)
def test_a_value_that_is_the_greatest_or_set_right_later(lines: Sequence[str], *, is_slip: bool) -> None:
    look = called("reader", "list_all", {}, TEAMS)
    said = [step("reader", line) for line in lines]
    assert (found(values_of_other_rows, "Points of the Falcons?", *look, *said) is not None) == is_slip


PUMPS = {
    "pumps": [
        {"pump": f"PU-{number}", "hall": hall}
        for number, hall in ((31, "a"), (47, "b"), (52, "c"), (57, "e"), (58, "d"))
    ]
}


@pytest.mark.parametrize(
    ("words", "pump", "is_slip"),
    [
        ("Stop PU-52, please.", "PU-58", True),
        ("Stop PU-52, please.", "PU-52", False),
        ("Stop pump 58, leave PU-52.", "PU-58", False),
        ("Stop the pump after PU-57.", "PU-58", False),
        ("Stop the twin of PU-52 in hall d.", "PU-58", False),
        ("Stop the twin of PU-52 in hall b.", "PU-58", True),
    ],
)
def test_a_deed_on_an_id_that_the_agent_was_never_told(words: str, pump: str, *, is_slip: bool) -> None:
    look = called("watch", "pressures", {}, PUMPS)
    order = step("watch", words)
    deed = called("hands", "stop_pump", {"pump": pump}, {"state": "stopped"}, heard=words)
    clue = found(deeds_on_untold, "Stop the pump at 5.2 bar.", *look, order, *deed, step("hands", "Stopped."))
    assert (clue is not None and clue.step == 3) == is_slip


def test_an_agent_that_heard_the_whole_list_may_choose() -> None:
    look = called("hands", "pressures", {}, PUMPS, heard="Stop PU-52 or the next one.")
    deed = called("hands", "stop_pump", {"pump": "PU-58"}, {"state": "stopped"})
    others = step("watch", "Go on.")
    assert found(deeds_on_untold, "Stop it.", *look, others, *deed, step("hands", "Stopped.")) is None


@pytest.mark.parametrize(
    ("said", "pier", "is_slip"),
    [
        ("Sorry, not Northpier but Eastpier.", "Northpier", True),
        ("Not from Northpier after all, I am near Eastpier.", "Northpier", True),
        ("Sorry, not Northpier but Eastpier.", "Eastpier", False),
        ("If it is not Northpier, then Eastpier.", "Northpier", False),
        ("It is not Northpier that is closed but Eastpier.", "Northpier", False),
        ("Northpier is fine, I come from Eastpier.", "Northpier", False),
    ],
)
def test_what_a_person_took_back(said: str, pier: str, *, is_slip: bool) -> None:
    asks = step("desk", "Shall I book it?")
    deed = called("desk", "book_boat", {"pier": pier}, {"booking": "B-1"}, heard=said)
    done = step("desk", f"Booked at {pier}.")
    assert (found(deeds_after_correction, "A boat from Northpier.", asks, *deed, done) is not None) == is_slip


def test_what_a_person_gave_instead_may_be_used_by_its_id() -> None:
    piers = called(
        "desk",
        "piers",
        {},
        {"piers": [{"id": "P-1", "name": "Northpier"}, {"id": "P-2", "name": "Eastpier"}]},
    )
    asks = step("desk", "Shall I book it?")
    freed = called("desk", "cancel", {"name": "Northpier"}, "ok", heard="Sorry, not Northpier but Eastpier.")
    deed = called("desk", "book_boat", {"pier": "P-2"}, {"booking": "B-1"})
    steps = (*piers, asks, *freed, *deed, step("desk", "Booked."))
    assert found(deeds_after_correction, "A boat from Northpier.", *steps) is None


@pytest.mark.parametrize(
    ("said", "answer", "is_slip"),
    [
        ("Free the 412 mark at Bridge.", "Done.", True),
        ("Free the 412 mark at Bridge.", "Bridge has 389 now.", False),
        ("Bridge no longer has 412.", "Done.", False),
        ("Bridge fell by 23 from 412.", "Done.", False),
    ],
)
def test_what_no_longer_holds_may_be_spoken_of(said: str, answer: str, *, is_slip: bool) -> None:
    first = called("gauge", "levels", {}, {"gauges": [{"at": "Bridge", "cm": 412}]})
    later = called("gauge", "levels", {}, {"gauges": [{"at": "Bridge", "cm": 389}]})
    heard = hearing(step("gauge", said), ("tool", later[1].output))
    steps = (*first, *later, heard, step("gauge", answer))
    assert (found(values_before_update, "Level at the bridge?", *steps) is not None) == is_slip


def test_a_task_may_ask_for_what_was_before() -> None:
    first = called("gauge", "levels", {}, {"gauges": [{"at": "Bridge", "cm": 412}]})
    later = called("gauge", "levels", {}, {"gauges": [{"at": "Bridge", "cm": 389}]})
    heard = hearing(step("gauge", "Bridge: 412 cm."), ("tool", later[1].output))
    assert found(values_before_update, "Level at the bridge before the rain?", *first, *later, heard) is None


def test_the_same_call_for_another_unit_returns_nothing_later() -> None:
    first = called("gauge", "levels", {}, {"gauges": [{"at": "Bridge", "level": 412}]})
    later = called("gauge", "levels", {"unit": "inch"}, {"gauges": [{"at": "Bridge", "level": 162}]})
    heard = hearing(step("gauge", "Bridge: 412 cm."), ("tool", later[1].output))
    assert found(values_before_update, "Level at the bridge?", *first, *later, heard) is None


@pytest.mark.parametrize(("level", "is_slip"), [("412", True), ("389", False), ("412, now 389", False)])
def test_what_the_same_call_returned_before(level: str, *, is_slip: bool) -> None:
    first = called("gauge", "levels", {"river": "Ahne"}, {"gauges": [{"at": "Bridge", "cm": 412}]})
    later = called(
        "gauge", "levels", {"river": "Ahne", "fresh": True}, {"gauges": [{"at": "Bridge", "cm": 389}]}
    )
    heard = hearing(step("gauge", f"Bridge: {level} cm."), ("tool", later[1].output))
    assert (found(values_before_update, "Level at the bridge?", *first, *later, heard) is not None) == is_slip


FEES = {
    "fees": [
        {"from": "2024-01-01", "to": "2025-12-31", "fee": 145},
        {"from": "2026-01-01", "to": None, "fee": 162},
    ]
}


@pytest.mark.parametrize(
    ("asked", "fee", "is_slip"),
    [
        ("Which fee held on 2026-05-04?", "145", True),
        ("Which fee held on 2026-05-04?", "162", False),
        ("Today is 2026-05-04. Which fee held last year?", "145", False),
        ("As of 2026-05-04: which fee held last year?", "145", False),
        ("Which fee held before 2026-05-04?", "145", False),
        ("Which fee held when it was changed on 2026-01-01?", "145", False),
    ],
)
def test_a_value_that_did_not_hold_on_the_day_asked_about(asked: str, fee: str, *, is_slip: bool) -> None:
    look = called("clerk", "fees", {}, FEES, heard=asked)
    assert (
        found(values_of_other_times, "Fee?", *look, step("clerk", f"It was {fee} EUR.")) is not None
    ) == is_slip


BOATS = {
    "boats": [
        {"boat": f"BT-{place}", "owner": {"name": name, "kind": kind}, "length_m": length}
        for place, (name, kind, length) in enumerate(
            [
                ("Alder", "club", 7.5), ("Birch", "club", 9.1), ("Cedar", "company", 8.2),
                ("Dogwood", "club", 8.8), ("Elm", "company", 7.9), ("Fir", "club", 8.4),
            ],
            start=21,
        )
    ]
}  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "is_slip"),
    [
        ("All club boats: BT-21, BT-22, BT-24 and BT-26.", False),
        ("All club boats: BT-21, BT-22, BT-23 and BT-24.", True),
        ("All club boats: BT-21, BT-22 and BT-24.", True),
        ("Club boats: BT-21, BT-22, BT-24 and BT-26; BT-23 belongs to a company.", False),
    ],
)
def test_entries_that_a_condition_selects(answer: str, *, is_slip: bool) -> None:
    look = called("clerk", "boats", {}, BOATS)
    task = "List all boats that belong to a club."
    assert (found(wrongly_selected, task, *look, step("clerk", answer)) is not None) == is_slip


@pytest.mark.parametrize(("boat", "is_slip"), [("BT-23", False), ("BT-25", True)])
def test_an_entry_that_a_call_looked_into_may_be_chosen(boat: str, *, is_slip: bool) -> None:
    look, inside = (
        called("clerk", "boats", {}, BOATS),
        called("clerk", "get_boat", {"boat": boat}, "lent to a club"),
    )
    steps = (*look, *inside, step("clerk", "Club boats: BT-21, BT-22, BT-23 and BT-24."))
    assert (found(wrongly_selected, "List boats that belong to a club.", *steps) is not None) == is_slip


HOURS = "visit;hours\nV-1;12.5\nV-2;31\nV-3;18.5\nV-4;22"
RATES = "no;yard;litres;price\na;Ost;90;2.5\nb;West;310;3\nc;Ost;70;6.5\nd;West;20;5.2\ne;West;110;9.8"
COSTS = {"costs": [{"who": who, "sum": amount, "currency": code} for who, amount, code in [
    ("Ann", 310, "GBP"), ("Bo", 455, "EUR"), ("Cy", 270, "EUR")]]}  # fmt: skip


@pytest.mark.parametrize(
    ("result", "answer", "is_slip"),
    [
        (HOURS, "The four visits took 24 hours on average.", True),
        (HOURS, "The four visits took 21 hours on average.", False),
        (HOURS, "The average of the four visits is 24 hours.", True),
        (HOURS, "The average of the four visits is 21 hours.", False),
        (HOURS, "The average of the two long visits is 26.5 hours.", False),
        (RATES, "The five orders cost 4.65 on average.", False),  # by litres
        (RATES, "The five orders cost 4.90 on average.", False),  # without the greatest and the least
        (RATES, "The average of the five orders is 5.2 (the median).", False),
        (RATES, "Of the five orders, those of Ost cost 4.50 on average.", False),
        (RATES, "Of the five orders, the two dearest cost 8.15 on average.", False),
        (RATES, "The five orders cost 5.04 on average.", True),
        (COSTS, "Together 1,035 EUR.", True),
        (COSTS, "Together 1,089 EUR at 1.17 EUR per GBP.", False),
    ],
)
def test_totals_and_means_of_whole_lists(result: object, answer: str, *, is_slip: bool) -> None:
    look = called("clerk", "list_all", {}, result)
    clue = found(wrong_aggregates, "Sum it up, please.", *look, step("clerk", answer))
    assert (clue is not None) == is_slip


RELAYED = [
    ("Emma by Jane Austen, shelf C4, 2 copies.", "Emma is on shelf D4; two copies.", "Emma is on shelf C4."),
    (
        "The meeting starts at 9:30 in room 12.",
        "Reminder: the meeting starts at 8:30 in room 12.",
        "Reminder: the meeting starts at 9:30; be there at 9:15.",
    ),
    (
        "Der Zug nach Ulm fährt um 14:05.",
        "Der Zug nach Ulm fährt um 14:50.",
        "Er fährt um 14.05 nach Ulm.",
    ),
    ("El vuelo a Lima sale de la puerta B12.", "El vuelo sale de la puerta B21.", "El vuelo sale de la B12."),
]


@pytest.mark.parametrize(("read_words", "wrong", "right"), RELAYED)
def test_an_agent_passes_on_a_time_or_a_code(read_words: str, wrong: str, right: str) -> None:
    def told(answer: str) -> Clue | None:
        heard = hearing(step("clerk", answer), ("user", read_words))
        return found(relayed_values, "Tell me more.", step("guide", read_words), heard)

    clue = told(wrong)
    assert clue is not None
    assert clue.step == 1
    assert told(right) is None


@pytest.mark.parametrize(
    ("read_words", "answer"),
    [
        ("The train leaves at 9:30.", "The taxi leaves at 8:30."),
        ("Session A starts at 9:30.", "Session B starts at 10:30."),
        ("The call starts at 9:30 CET.", "The call starts at 8:30 UTC."),
        ("The meeting starts at 9:30 and takes 60 minutes.", "The next meeting starts at 10:30."),
        ("Emma is on shelf C4.", "Emma was on shelf C4 and is on shelf D4 now."),
        ("Put Emma on shelf C4 of hall 1.", "Put Emma on shelf D4 of hall 2."),
    ],
)
def test_another_time_or_code_is_not_a_wrong_one(read_words: str, answer: str) -> None:
    heard = hearing(step("clerk", answer), ("user", read_words))
    assert found(relayed_values, "Tell me more.", step("guide", read_words), heard) is None


def test_a_time_that_a_tool_gives_later_is_known() -> None:
    words = "The meeting starts at 9:30."
    steps = [step("guide", words), hearing(step("clerk", "The meeting starts at 8:30."), ("user", words))]
    late = [*called("clerk", "calendar", {}, "starts 8:30"), step("clerk", "The meeting starts at 8:30.")]
    assert found(relayed_values, "When?", *steps) is not None
    assert found(relayed_values, "When?", *steps, *late) is None
