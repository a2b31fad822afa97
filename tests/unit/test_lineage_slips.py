"""Slips of names, lists and sums that an agent tells, in several languages; each with runs that are right."""

from __future__ import annotations

import pytest

from analyzer.lineage.calculations import wrong_sums
from analyzer.lineage.clue import ClueKind, weigh
from analyzer.lineage.slips import wrong_figures
from analyzer.texts.run_view import read
from semconv.model import Step
from tests.lineage import found
from tests.runs import calling, run, step, tool

SUSPECTED = 0.4752


def looked_up(result: str, about: str = "probes") -> tuple[Step, Step]:
    asked = f'{{"about": "{about}"}}'
    return calling("reader", ("look_up", asked)), tool("reader", result, "look_up", input=asked)


PUMPS = (
    '{"pumps": [{"pump": "hall/p4-east/in", "bar": 17.5, "maker": "Okker"},'
    ' {"pump": "hall/p6-west/in", "bar": 21.0, "maker": "Lindahl Nordsee"}]}'
)


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [
        ("The pumps run at 17.5 bar (hall/p9-east/in) and 21 bar (hall/p6-west/in).", False),
        ("Die Pumpe hall/p4-ost/in läuft mit 17.5 bar, hall/p6-west/in mit 21.", False),
        ("I copied the settings to hall/p9-east/in, also with 17.5 bar.", True),
        ("Die Pumpe von Lindahl Ostsee hat 21 bar.", True),
        ("The pumps run at 17.5 bar (hall/p4-east/in) and 21 bar (hall/p6-west/in).", True),
        ("Pump p4 in the east runs at 17.5 bar.", True),
        ("I renamed hall/p4-east/in to hall/p9-east/in; it runs at 17.5 bar.", True),
        ("Its next sibling would be hall/p9-east/in.", True),
        ("It runs at 17.5 bar, as hall/2027-east/in once did.", True),
    ],
)
def test_an_id_with_another_part_beside_a_value_of_its_record_was_changed(
    answer: str, is_right: bool
) -> None:
    clue = found("At which pressure do the pumps run?", *looked_up(PUMPS), step("reader", answer))
    assert (clue is None) is is_right


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [
        ("Dear Westlanders Utrecht, your licence is granted.", False),
        ("Sehr geehrte Westlanders Utrecht, die Erlaubnis ist erteilt.", False),
        ("Dear Nordlanders Utrecht, your licence is granted.", True),
        ("Dear friends in Utrecht, the Outlanders can be proud.", True),
        ("Dear Nordlander Utrecht, your licence is granted.", True),
    ],
)
def test_a_name_with_another_word_was_changed(answer: str, is_right: bool) -> None:
    given = '{"club": "Nordlanders Utrecht", "licence": "granted"}'
    clue = found("Write to the club.", *looked_up(given), step("reader", answer))
    assert (clue is None) is is_right


OWING = '{"pupils": ["Ada Noor", "Ben Ruiz", "Cleo Pohl", "Dag Moen", "Eva Sola"]}'
RED = (
    '{"alarms": [{"probe": "n-3", "level": "red", "at": "02:11"},'
    ' {"probe": "e-1", "level": "amber", "at": "02:40"},'
    ' {"probe": "d-7", "level": "red", "at": "03:05"}, {"probe": "s-2", "level": "red", "at": "04:52"}]}'
)


@pytest.mark.parametrize(
    ("task", "result", "answer", "is_right"),
    [
        (
            "Which children have forgotten the form?",
            OWING,
            "Three children have forgotten it: Ada Noor, Ben Ruiz and Cleo Pohl.",
            False,
        ),
        ("¿Qué niños han olvidado el papel?", OWING, "Tres niños: Ada Noor, Ben Ruiz y Cleo Pohl.", False),
        (
            "Which children have forgotten the form?",
            OWING,
            "Five have, among them Ada Noor, Ben Ruiz and Cleo Pohl.",
            True,
        ),
        (
            "Which children have forgotten the form?",
            OWING,
            "Three days are left for Ada Noor, Ben Ruiz and others.",
            True,
        ),
        (
            "Name three children who have forgotten it.",
            OWING,
            "Three children: Ada Noor, Ben Ruiz and Cleo Pohl.",
            True,
        ),
        ("Write the forms of all 5 pupils.", OWING, "Ada Noor, Ben Ruiz, Cleo Pohl.", False),
        ("List all probes with an alarm.", RED, "Three probes alarmed: n-3, e-1 and d-7.", False),
        ("List all probes with an alarm.", RED, "Four probes alarmed: n-3, e-1, d-7 and s-2.", True),
        ("List all probes with an alarm by 04:00.", RED, "Three probes alarmed: n-3, e-1 and d-7.", True),
        ("List all probes with red alarms.", RED, "Three probes: n-3, d-7 and s-2.", True),
    ],
)
def test_who_counts_the_first_entries_by_the_word_of_the_task_lost_the_rest(
    task: str, result: str, answer: str, is_right: bool
) -> None:
    about = "forgotten olvidado" if result == OWING else "probes"
    clue = found(task, *looked_up(result, about), step("reader", answer))
    assert (clue is None) is is_right
    assert is_right or (clue is not None and clue.kind is ClueKind.CUT_SHORT)


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [
        ("Six doors at 312.40 with fitting for 61.80 each come to 2,425.20 euros.", False),
        ("Sechs Türen zu 312,40 und je 61,80 für den Einbau kosten 2.425,20 Euro.", False),
        ("Six doors at 312.40 with fitting for 61.80 each come to 2,245.20 euros.", True),
        ("Six doors come to 2,425.20 euros.", True),
        (
            "Six doors at 312.40 with fitting for 61.80 and 30.00 for the van each come to 2,425.20 euros.",
            True,
        ),
    ],
)
def test_a_result_with_its_digits_in_another_order_is_a_slip_of_its_sentence(
    answer: str, is_right: bool
) -> None:
    given = '{"door": 312.4, "fitting": 61.8, "van": 30.0}'
    reading = read(
        run(*looked_up(given), step("reader", answer), task="What do 6 doors cost?", output=answer)
    )
    clues = [*wrong_figures(reading)]
    assert (not clues) is is_right
    assert is_right or weigh(clues).probability > SUSPECTED


@pytest.mark.parametrize(
    ("said", "is_right"),
    [
        ("The coat can be fetched on 6 November 2027.", False),
        ("Der Mantel ist am 6. November 2027 fertig.", False),
        ("It hangs on rail 14.", False),
        ("The coat is being cleaned; no day is known.", True),
        ("No day is known; ask again on 6 November 2027.", True),
        ("It was brought on 2 October 2027.", True),
        ("The coat is being cleaned.", True),
    ],
)
def test_a_value_for_a_field_without_one_is_made_up(said: str, is_right: bool) -> None:
    given = '{"coat": "C 7", "state": "being cleaned", "ready": null, "rail": "", "brought": "2027-10-02"}'
    given = given.replace("{", '{"error": null, ')
    clue = found("When can coat C 7 be fetched?", *looked_up(given), step("reader", said), step("host", said))
    assert (clue is None) is is_right
    assert is_right or (clue is not None and (clue.step, clue.kind) == (2, ClueKind.INVENTED))
    assert clue is None or "for error" not in clue.reason


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [("About 32 hours.", False), ("About 3.2 hours.", True), ("3 h 12 min.", True), ("192 minutes.", True)],
)
def test_an_hour_is_so_many_milliseconds(answer: str, is_right: bool) -> None:
    clue = found("How long did it take?", *looked_up('{"export_ms": 11520000}'), step("reader", answer))
    assert (clue is None) is is_right


@pytest.mark.parametrize(
    ("task", "is_right"),
    [
        ("Book the barge for 17 October 2027, before 10 am.", False),
        ("Buche den Kahn für den 17. Oktober 2027, vor 10 Uhr.", False),
        ("Book the barge for 10 days after 17 October 2027.", True),
        ("Move the barge from 17 October 2027 to the 27th.", True),
    ],
)
def test_an_hour_counts_no_days(task: str, is_right: bool) -> None:
    asked = '{"barge": "Ida", "day": "2027-10-27"}'
    booked = tool("reader", '{"state": "booked"}', "book_barge", input=asked)
    clue = found(task, calling("reader", ("book_barge", asked)), booked, step("reader", "Ida is booked."))
    assert (clue is None) is is_right


@pytest.mark.parametrize(
    ("task", "answer", "is_right"),
    [
        ("Compute 14*30", "421", False),
        ("What is 19 x 21?", "19 x 21 is 389.", False),
        ("Berechne 132 / 12 + 4", "Das Ergebnis ist 16.", False),
        ("请计算 14*30。", "421", False),
        ("Compute 14*30", "420", True),
        ("Compute 10/3", "3.3", True),
        ("What is 4 - 9?", "-5", True),
        ("Compute 14*30", "0x1a4", True),
        ("Compute 1 / 2 + 1 / 4", "3/4", True),
        ("Compute 1 / 2 + 1 / 4", "3", False),
        ("Compute 14*30", "In base 8 it is 644.", True),
        ("Order 2 x 3 boards", "Done, order 5512.", True),
        ("Compute 14*30 and tell me the date of order 7", "421", True),
        ("Compute 14*30", "I cannot compute that, ask 21 people.", True),
    ],
)
def test_a_task_that_is_a_sum_has_one_answer(task: str, answer: str, is_right: bool) -> None:
    clues = [*wrong_sums(read(run(step("solver", answer), task=task, output=answer)))]
    assert (not clues) is is_right
    assert is_right or weigh(clues).probability > SUSPECTED
