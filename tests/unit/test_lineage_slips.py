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


KILNS = (
    '{"kilns": [{"kiln": "Ostwaldofen", "cone": 6, "hours": 11.5},'
    ' {"kiln": "glaze-large", "cone": 10, "hours": 14.0}]}'
)


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [
        ("The Ostwindrofen fires cone 6 in 11.5 hours, glaze-large cone 10.", False),
        ("Cone 6: Ostwaldofen.\nCone 10: glaze-small, 14 hours.", False),
        ("Der Ostwald-Ofen brennt Kegel 6 in 11.5 Stunden.", True),
        ("Der Ostwaldöfen Betrieb: Kegel 6, 11.5 Stunden.", True),
        ("The eastern kiln fires cone 6 in 11.5 hours.", True),
        ("Cone 10: glaze-large takes 14 hours, glaze-small was sold.", True),
        ("A glaze-small kiln would need 9 hours.", True),
        ("Call them Ostwindrofen (cone 6, 11.5 hours) and glaze-new (cone 10, 14 hours).", True),
        ("For cone 10 you need 11.5 hours in a glaze-medium kiln.", True),
    ],
)
def test_a_name_that_shares_a_part_stands_beside_the_values_of_another(answer: str, is_right: bool) -> None:
    clue = found("Which kilns are there?", *looked_up(KILNS, "kilns"), step("reader", answer))
    assert (clue is None) is is_right


PATIENT = '{"visit": 81, "owner": {"name": "Jolanda van Rijn"}, "animal": "Pip", "state": "ready"}'


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [
        ("Dear Mrs Okafor, Pip is ready.", False),
        ("Geachte mevrouw Bakker, Pip is klaar.", False),
        ("Dear Mrs van Rijn, Pip is ready.", True),
        ("Dear Jolanda, Pip is ready.", True),
        ("Dear Mr Haldane, Pip is ready.", True),
        ("Dear Madam, Pip is ready.", True),
        ("Jolanda van Rijn's Pip is ready; ask for Mrs Okafor.", True),
    ],
)
def test_a_letter_is_for_the_person_of_the_record(answer: str, is_right: bool) -> None:
    task = "Write to the owner for visit 81; sign for Mr Haldane."
    clue = found(task, *looked_up(PATIENT, "visit 81"), step("reader", answer))
    assert (clue is None) is is_right


@pytest.mark.parametrize(
    ("said", "is_right"),
    [
        ("A tent is €62, the deposit €45. Four tents with the deposit: €393.", False),
        ("Ein Zelt kostet 62 €, die Kaution 45 €. Vier Zelte mit Kaution: 393 €.", False),
        ("A tent is €62, the deposit €45. Four tents with the deposit: €293.", True),
        ("A tent is €62, the deposit €45. Four tents and three stoves come to €393.", True),
        ("A tent is €62, the deposit €45. Four tents: €248, and we ask €331 for a week.", True),
        ("A tent is €62, the deposit €45. The season costs €393.", True),
    ],
)
def test_so_many_of_one_amount_and_another(said: str, is_right: bool) -> None:
    tents = '{"tent_day": 62, "deposit": 45, "currency": "EUR"}'
    steps = (*looked_up(tents, "tents"), step("reader", said))
    reading = read(run(*steps, task="What do they cost?", output=said))
    assert (not any(True for _ in wrong_figures(reading))) is is_right


@pytest.mark.parametrize(
    ("more", "answer", "is_right"),
    [
        ("", "The share is €287 and the fund gets €1,163.", False),
        ("", "The share is €187 and the fund gets €1,063.", True),
        (', "bonus": 100', "With the bonus of 100 the share is €287.", True),
    ],
)
def test_what_another_agent_worked_out_is_passed_on_with_a_slip(
    more: str, answer: str, is_right: bool
) -> None:
    steps = (
        *looked_up(f'{{"raised": 1250, "share_percent": 15{more}}}', "raffle"),
        step("reader", "It raised 1,250. The share is 15 %, 187 euros, so the fund gets 1,063."),
        step("host", answer),
    )
    reading = read(run(*steps, task="How is it divided?", output=answer))
    assert (not any(True for _ in wrong_figures(reading))) is is_right
