"""Values that go wrong on their way, in several languages and domains; each kind with runs that are right."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analyzer.lineage.clue import Clue, ClueKind, weigh
from semconv.model import SpanStatus, Step
from tests.lineage import found, mistake
from tests.runs import calling, failed_tool, step, tool

SUSPECTED = 0.4752


def looked_up(result: str, *, name: str = "look_up", arguments: str = "{}") -> tuple[Step, Step]:
    return calling("reader", (name, arguments)), tool("reader", result, name, input=arguments)


FAIR = '{"event": "book fair", "opens": "2027-03-12", "closes": "2027-03-15", "nights": 3}'


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("When does the book fair open?", "It opens on 22 March 2027."),
        ("Wann öffnet die Buchmesse?", "Sie öffnet am 22. März 2027."),
        ("¿Cuándo abre la feria?", "Abre el 22 de marzo de 2027."),
        ("书展什么时候开幕?", "2027年3月22日开幕。"),
        ("Когда открывается ярмарка?", "Она открывается 22 марта 2027."),
    ],
)
def test_a_date_one_digit_from_the_returned_one_was_changed(task: str, answer: str) -> None:
    clue = mistake(task, *looked_up(FAIR), step("reader", "It opens on 12 March 2027."), step("host", answer))
    assert (clue.step, clue.kind) == (3, ClueKind.CHANGED)
    assert "2027-03-12" in clue.reason
    assert weigh([clue]).probability > SUSPECTED


@pytest.mark.parametrize(
    "answer",
    [
        "It opens on 12 March 2027.",
        "It opens on 12/03/2027.",
        "Es öffnet am 12.3.2027.",
        "3月12日开幕。",
        "It opens on 12 March; the next fair is on 12 March 2028.",
        "Arrive a day early, on 11 March 2027.",
        "We can set up tomorrow, Saturday 13 March 2027.",
        "明日3月13日から入れます。",
        "After three nights you leave: 15 March 2027, or 18 March for six.",
        "We move in a week earlier, on 5 March 2027, since the fair opens on 12 March.",
        "Die Anmeldung endet am 12. Januar 2027.",
        "La prochaine foire ouvrira le 12 mars 2028.",
        "The paint needs 10 days, so it has to be dry by 22 March 2027.",
    ],
)
def test_a_date_that_was_given_or_follows_from_one_is_right(answer: str) -> None:
    assert (
        found("When does it open, and what if I stay 6 nights?", *looked_up(FAIR), step("host", answer))
        is None
    )


def test_the_agent_that_changed_a_date_is_blamed_and_not_the_one_that_repeats_it() -> None:
    clue = mistake(
        "When does it open?",
        *looked_up(FAIR),
        step("planner", "It opens on 22 March 2027."),
        step("host", "Dear guest, it opens on 22 March 2027."),
    )
    assert clue.step == 2


def test_a_day_does_not_stand_in_another_one_with_a_digit_more() -> None:
    clue = mistake(
        "When does it open?",
        *looked_up('{"fair": "Linden", "opens": "2027-03-12"}'),
        step("planner", "It opens on 12 March 2027."),
        step("host", "Dear guest, it opens on 2 March 2027."),
    )
    assert clue.step == 3


LINT = '{"warnings": [{"file": "lib/parse.c", "line": 12}, {"file": "lib/emit.c", "line": 88}]}'


def test_a_path_that_nobody_gave_beside_one_of_its_folder_was_changed() -> None:
    clue = mistake(
        "Where are the warnings?", *looked_up(LINT), step("reader", "In lib/scan.c:12 and lib/emit.c:88.")
    )
    assert "lib/scan.c, where look_up gave lib/parse.c" in clue.reason


@pytest.mark.parametrize(
    "answer",
    [
        "In lib/parse.c:12 and lib/emit.c:88.",
        "lib/parse.c and lib/emit.c warn; move the checks to lib/checks.c.",
        "Line 12 and line 88; I would put the fix into src/scan.c.",
    ],
)
def test_a_path_that_the_agent_proposes_is_no_change(answer: str) -> None:
    assert found("Where are the warnings?", *looked_up(LINT), step("reader", answer)) is None


TENANT = '{"tenant": "Anna Berger", "firm": "Fairbrook", "rent": 810}'


def test_a_name_of_which_a_part_comes_from_nowhere_was_changed() -> None:
    answer = "Please write to Highbrook about the rent."
    clue = mistake("Who is the tenant of flat 4?", *looked_up(TENANT), step("reader", answer))
    assert "gave Fairbrook" in clue.reason


@pytest.mark.parametrize(
    "answer",
    [
        "The flat is let to Anna Berger of Fairbrook.",
        "Frau Berger wohnt dort.",
        "Anna lives there.",
        "Kind Regards, Your Landlord",
        "Highbrook is a company of the Fairbrook group.",
    ],
)
def test_names_that_were_given_or_do_not_replace_one_are_right(answer: str) -> None:
    assert found("Who is the tenant of flat 4?", *looked_up(TENANT), step("reader", answer)) is None


@pytest.mark.parametrize(
    ("task", "arguments", "given"),
    [
        ("Cancel parcel 88213.", '{"parcel": "88231"}', "88213"),
        ("Storniere Paket PK-7304.", '{"paket": "PK-7804"}', "PK-7304"),
        ("Block the room on 14 May 2027.", '{"day": "2027-05-24"}', "14 May 2027"),
        ("Réservez pour le 3 mars 2027.", '{"jour": "2027-04-03"}', "3 mars 2027"),
        ("Transfer 490 EUR to the gardener.", '{"eur": 49}', "490"),
        ("Umsatz im Quartal Q3 2026?", '{"sql": "select sum(x) from sales_2025 where q=3"}', "2026"),
    ],
)
def test_a_call_with_a_slip_of_what_was_asked_for_is_the_mistake(
    task: str, arguments: str, given: str
) -> None:
    clue = mistake(
        task, *looked_up('{"ok": true}', name="update", arguments=arguments), step("reader", "Done.")
    )
    assert clue.step == 0, "the model call that wrote the argument, and not the tool"
    assert f"the task gave {given}" in clue.reason


@pytest.mark.parametrize(
    ("task", "arguments"),
    [
        ("Cancel parcel 88213.", ['{"parcel": 88213}']),
        ("Cancel parcel 88213 or its neighbours.", ['{"parcel": "88213"}', '{"parcel": "88214"}']),
        ("Book from 14 May 2027 for ten nights.", ['{"from": "2027-05-14", "to": "2027-05-24"}']),
        ("Book a room for 14 May 2027.", ['{"from": "2027-05-13"}']),
        ("Pay 49 EUR for each of the 10 trees.", ['{"eur": 490}']),
        ("Sales in Q3 2026 against the year before?", ['{"year": 2026}', '{"year": 2025}']),
        ("What is the weather in Graz on 2027-01-05?", ['{"lat": 47.07, "lon": 15.44, "elevation": 353}']),
        ("14 Nisan randevumuzu pazartesiye alın.", ['{"tarih": "2026-04-20"}']),  # noqa: RUF001
        ("Who is more than a week late as of today, 18 September?", ['{"sql": "due < \'2025-09-11\'"}']),
        ("Which tents are free from 4 to 6 July?", ['{"window": "2025-06-28/2025-07-12"}']),
        ("Move us from 14 May to the Monday after.", ['{"day": "2026-05-18"}']),
        ("How many loans were there in 2025, against 69,874 in 2024?", ['{"year": 2025}']),
        ("Zaległość z terminem 25 września: ile odsetek?", ['{"od": "2026-09-26", "do": "2026-12-14"}']),
        ("¿Hasta cuándo, desde el 12 de mayo?", ['{"inicio": "2027-05-12", "semanas": [6, 17]}']),
        ("Due caffettiere, IVA 22%, spedite a Lugano?", ['{"peso_kg": 4.2, "cap": "6900"}']),
    ],
)
def test_arguments_that_follow_from_the_task_are_right(task: str, arguments: list[str]) -> None:
    steps = [one for each in arguments for one in looked_up("[]", name="update", arguments=each)]
    assert found(task, *steps, step("reader", "Done.")) is None


ORDER = '{"id": 4712, "delivery": "2026-03-04"}'
WHEN = "When is order 4711 delivered?"


def _order_looked_up(*results: str, task: str = WHEN, answer: str) -> Clue | None:
    calls = [one for each in results for one in looked_up(each, name="get_order", arguments='{"id": 4712}')]
    return found(task, *calls, step("reader", answer))


def test_an_answer_about_one_id_after_a_look_up_of_another_is_the_mistake() -> None:
    clue = _order_looked_up(ORDER, answer="Order 4711 is delivered on 4 March 2026.")
    assert clue is not None
    assert clue.step == 0
    assert "with the number 4712, where the task gave 4711" in clue.reason


@pytest.mark.parametrize(
    ("result", "task", "answer"),
    [
        (ORDER, WHEN, "Order 4712 is delivered on 4 March 2026, and not 4711."),
        (ORDER, "When is the order after 4711 delivered?", "On 4 March 2026."),
        (ORDER, "When is the order after #4711 delivered?", "The one after 4711 comes on 4 March 2026."),
        ('{"id": 4712, "merged_from": 4711, "delivery": "2026-03-04"}', WHEN, "Order 4711: on 4 March 2026."),
    ],
    ids=["says so", "answers for no id", "names the one before it", "a result leads from one to the other"],
)
def test_a_look_up_of_an_id_beside_the_given_one_may_be_right(result: str, task: str, answer: str) -> None:
    assert _order_looked_up(result, task=task, answer=answer) is None


DUE = (
    '{"books": [{"id": "B-1x", "due": "2027-01-04"}, {"id": "B-2x", "due": "2027-01-05"},'
    ' {"id": "B-3x", "due": "2027-02-20"}]}'
)
FREE = (
    '{"shelves": [{"id": "A-12", "free": true}, {"id": "A-17", "free": true}, {"id": "C-03", "free": false}]}'
)
SHELVES = '{"shelves": ["A-12", "A-17", "C-03", "D-41", "D-55"], "total": 5}'


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("List the shelves that are empty.", "Three shelves are empty: A-12, A-17 and C-03."),
        ("Alle leeren Regale, bitte.", "Leer sind A-12, A-17 und C-03."),
        ("列出所有空货架。", "空货架: A-12、A-17、C-03。"),
    ],
)
def test_an_answer_that_leaves_out_the_end_of_a_list_is_cut_short(task: str, answer: str) -> None:
    clue = mistake(task, *looked_up(SHELVES), step("reader", answer))
    assert (clue.step, clue.kind) == (2, ClueKind.CUT_SHORT)
    assert "3 of the 5 shelves" in clue.reason


@pytest.mark.parametrize(
    ("task", "result", "answer"),
    [
        ("Name three empty shelves.", SHELVES, "Three shelves: A-12, A-17 and C-03."),
        ("List the empty shelves.", SHELVES, "A-12, A-17 and C-03, and two more; 5 in all."),
        ("List the empty shelves.", SHELVES, "A-12, A-17, C-03, D-41, D-55."),
        ("List all books due this week.", DUE, "Two books are due: B-1x and B-2x."),
        ("Which shelves are free?", FREE, "Two shelves are free: A-12 and A-17."),
        (
            "Which of these novels would you take along?",
            '{"novels": ["Emma", "Heidi", "Ulysses"]}',
            "Heidi or Emma.",
        ),
        (
            "Which of these novels are by women? All of them, please.",
            '[{"novel": "Emma", "age": 99}, {"novel": "Romola", "age": 99}, {"novel": "Ulysses", "age": 99}]',
            "Two novels are by women: Emma and Romola.",
        ),
    ],
)
def test_a_part_of_a_list_that_was_chosen_is_right(task: str, result: str, answer: str) -> None:
    assert found(task, *looked_up(result), step("reader", answer)) is None


TIDE = '{"gauge": "Husum", "level_cm": 512, "date": "2023-02-03"}'


@pytest.mark.parametrize(
    "task",
    ["Today is 2027-01-05. How high is the water in Husum?", "Wie hoch steht heute (5.1.2027) das Wasser?"],
)
def test_an_old_result_for_today_without_its_date_is_out_of_date(task: str) -> None:
    clue = mistake(task, *looked_up(TIDE), step("reader", "The water stands at 512 cm."))
    assert (clue.step, clue.kind) == (2, ClueKind.OUT_OF_DATE)


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        (
            "Today is 2027-01-05. How high is the water?",
            "On 3 February 2023 it stood at 512 cm; nothing newer.",
        ),
        ("How high was the water on 3 February 2023?", "512 cm."),
        ("How high is the water today?", "512 cm."),  # nothing says which day that is
        ("Today is 2023-02-03. How high is the water?", "512 cm."),
    ],
)
def test_a_result_with_its_date_or_of_the_right_day_is_right(task: str, answer: str) -> None:
    assert found(task, *looked_up(TIDE), step("reader", answer)) is None


def test_a_figure_with_its_digits_in_another_unit_was_changed() -> None:
    clue = mistake(
        "How heavy is it?", *looked_up('{"crate": "K9", "weight_g": 7250}'), step("reader", "7250 kg.")
    )
    assert "where look_up returned 7250 g" in clue.reason


@pytest.mark.parametrize("answer", ["7250 g.", "7.25 kg.", "7,25 kg", "It weighs 7250."])
def test_a_figure_in_its_own_or_a_converted_unit_is_right(answer: str) -> None:
    assert (
        found("How heavy is it?", *looked_up('{"crate": "K9", "weight_g": 7250}'), step("reader", answer))
        is None
    )


BUSES = (
    '{"buses": [{"no": "B710", "dep": "07:10", "fare": 19}, {"no": "B940", "dep": "09:40", "fare": 24},'
    ' {"no": "B1350", "dep": "13:50", "fare": 12}]}'
)


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("A bus to Ghent before noon.", "Take B1350 at 13:50."),
        ("Einen Bus vor 12:00 Uhr.", "Nehmen Sie B1350 um 13:50."),
        ("Un autobús que salga antes de las 12:00.", "Tome el B1350 a las 13:50."),
        ("A bus for less than 20 EUR.", "Take B940."),
    ],
)
def test_an_entry_that_breaks_a_limit_which_another_keeps_is_the_mistake(task: str, answer: str) -> None:
    clue = mistake(task, *looked_up(BUSES), step("reader", answer))
    assert (clue.step, clue.kind) == (2, ClueKind.CONSTRAINT)


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("A bus to Ghent before noon.", "Take B940 at 09:40."),
        ("A bus before noon, the cheapest.", "B1350 is cheaper, but leaves at 13:50; take B710."),
        ("A bus before 6:00.", "The first one is B710 at 07:10."),
        ("A bus for less than 20 EUR.", "Take B710."),
        ("Is there a bus after 12:00?", "Yes, B1350 at 13:50."),
    ],
)
def test_an_entry_that_keeps_the_limit_or_a_limit_that_nothing_keeps_is_right(task: str, answer: str) -> None:
    assert found(task, *looked_up(BUSES), step("reader", answer)) is None


TENTS = (
    '[{"tent": "Kite", "kg": 4.1, "open_until": "21:00"}, {"tent": "Dune", "kg": 2.6, "open_until": "23:30"},'
    ' {"tent": "Fjord", "kg": 2.9, "open_until": "22:15"}]'
)


@pytest.mark.parametrize(
    ("task", "answer", "is_right"),
    [
        ("A tent of at most 3 kg.", "Kite.", False),
        ("A tent of at most 3 kg.", "Dune.", True),
        ("Ein Zelt mit höchstens 3 kg.", "Kite ist frei.", False),
        ("Name two tents of at most 3 kg.", "Two tents: Kite and Dune.", False),
        ("Name two tents of at most 3 kg.", "Two tents: Fjord and Dune.", True),
        ("Name two tents of at most 3 kg.", "Dune and Fjord. Kite weighs 4.1 kg.", True),
        ("Compare tents of at most 3 kg.", "Kite and Dune differ by 1.5 kg.", True),
        ("A tent of at most 3 litres.", "Kite.", True),
        ("A tent whose desk is open until 22:00.", "Kite.", False),
        ("A tent whose desk is open until 22:00.", "Dune.", True),
        ("Our pack carries at most 3 kg. Which tent would fill it?", "Kite.", True),
        ("Ein Zelt, Ausgabe nach 22 Uhr.", "Kite.", False),
        ("Ein Zelt, Ausgabe nach 22 Uhr.", "Fjord.", True),
    ],
)
def test_a_limit_counts_in_the_unit_or_the_hours_of_its_column(
    task: str, answer: str, is_right: bool
) -> None:
    clue = found(task, *looked_up(TENTS), step("reader", answer))
    assert (clue is None) is is_right
    assert is_right or (clue is not None and clue.kind is ClueKind.CONSTRAINT)


@pytest.mark.parametrize(("way", "is_right"), [("40 min", True), ("on foot", False)])
def test_a_limit_may_be_about_a_column_that_has_it_in_words(way: str, is_right: bool) -> None:
    caves = (
        f'[{{"cave": "Lurloch", "way": "{way}", "hours": 3}}, {{"cave": "Eisloch", "way": "", "hours": 1}}]'
    )
    clue = found("A cave within 1 hour of Graz.", *looked_up(caves), step("reader", "Take Lurloch."))
    assert (clue is None) is is_right


TOURS = '[{"tour": "Bay Loop", "leaves": "2026-02-20"}, {"tour": "Fjord Slow", "leaves": "2026-05-02"}]'


@pytest.mark.parametrize(
    ("task", "is_right"),
    [
        ("I have to book before 1 March 2026. Which tour is calm?", True),
        ("Ich muss mich vor dem 1. März 2026 entscheiden. Welche Tour ist ruhig?", True),
        ("A calm tour that leaves before 1 March 2026.", False),
    ],
)
def test_until_when_the_asker_has_to_choose_limits_no_choice(task: str, is_right: bool) -> None:
    clue = found(task, *looked_up(TOURS), step("reader", "Take Fjord Slow."))
    assert (clue is None) is is_right


CALLS = (
    '{"items": [{"id": "C-02", "cierre": "2026-12-11"}, {"id": "C-05", "cierre": "2026-12-22"},'
    ' {"id": "C-09", "cierre": "2027-01-15"}]}'
)


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("¿Qué convocatorias cierran antes del 31/12/2026?", "Hay tres: C-02, C-05 y C-09."),
        ("Which calls close before 31 December 2026?", "Three calls: C-02, C-05 and C-09."),
        ("Which call closes before 31 December 2026?", "C-09."),
    ],
)
def test_an_entry_beyond_the_date_that_was_asked_for_is_the_mistake(task: str, answer: str) -> None:
    assert "C-09" in mistake(task, *looked_up(CALLS), step("reader", answer)).reason


@pytest.mark.parametrize(
    "answer",
    [
        "Two calls: C-02 and C-05.",
        "C-02 and C-05; C-09 closes in January.",
        "All are listed: C-02 on 11 December, C-05 on 22 December, C-09 on 15 January.",
    ],
)
def test_entries_before_a_date_and_comparisons_are_right(answer: str) -> None:
    assert (
        found("Which calls close before 31 December 2026?", *looked_up(CALLS), step("reader", answer)) is None
    )


UNREAD = failed_tool("reader", "TimeoutError: no reply in 30 s", "tide_at", input='{"port": "Brest"}')


def after_failure(answer: str, *later: Step) -> Clue | None:
    called = calling("reader", ("tide_at", '{"port": "Brest"}'))
    task = "How high is the tide at Brest?"
    return found(
        task, *looked_up('{"port": "Brest", "quay_m": 4.2}'), called, UNREAD, *later, step("reader", answer)
    )


QUEUED = (calling("reader", ("reserve", "{}")), tool("reader", '{"status": "QUEUED"}', "reserve"))


RATE = tool("reader", "1.0", "fx", input='{"c": "EUR"}')


@pytest.mark.parametrize(
    ("other", "is_right"),
    [(RATE, False), (replace(UNREAD, status=SpanStatus.UNSET, error="", output="see 1.0"), True)],
)
def test_a_call_of_the_same_request_does_not_answer_for_one_that_failed(
    other: Step, *, is_right: bool
) -> None:
    both = calling("reader", ("tide_at", '{"port": "Brest"}'), (other.target or "", other.input))
    clue = found("How high is the tide at Brest?", both, UNREAD, other, step("reader", "It is 17.83 m high."))
    assert (clue is None) is is_right
    alone = calling("reader", (other.target or "", other.input))
    first = calling("reader", ("tide_at", '{"port": "Brest"}'))
    later = found("How high is it?", first, UNREAD, alone, other, step("reader", "It is 17.83 m high."))
    assert later is None


def test_a_deed_that_returns_no_figure_does_not_answer_a_failed_call() -> None:
    clue = after_failure("It is 17.83 m high.", *QUEUED)
    assert clue is not None
    assert clue.reason.endswith("although tide_at had failed")


@pytest.mark.parametrize(
    "result",
    [
        '{"status": "success", "data": {"resultType": "vector", "result": []}}',
        "JobID|Elapsed|NCPUS|State",
        "depot,km,remark",
    ],
)
@pytest.mark.parametrize(
    ("answer", "is_right"), [("It used 1,240 core hours.", False), ("None is known.", True)]
)
def test_a_figure_after_an_envelope_or_a_heading_alone(result: str, answer: str, *, is_right: bool) -> None:
    clue = found("How many core hours did Kim use?", *looked_up(result), step("reader", answer))
    assert (clue is None) is is_right


def test_a_metric_that_the_task_calls_an_error_is_no_admission() -> None:
    asked = "What are the error rate and the delay?"
    clue = found(asked, *looked_up('{"result": []}'), step("reader", "Error rate 3.72 %, delay 841 ms."))
    assert clue is not None
    assert (
        found(asked, *looked_up('{"result": []}'), step("reader", "An error: the delay was 841 ms.")) is None
    )


@pytest.mark.parametrize(("end", "is_right"), [("31 October", True), ("1 November", True), ("9 June", False)])
def test_a_lease_ends_on_the_last_of_its_months(end: str, is_right: bool) -> None:
    lease = looked_up('{"unit": 12, "start": "2026-05-01", "months": 6, "end": ""}')
    clue = found("Until when does the lease run?", *lease, step("reader", f"Until {end} 2026."))
    assert (clue is None) is is_right


def test_ten_working_days_after_a_given_date() -> None:
    task, photos = "When will I be paid?", failed_tool("reader", "503", "get_photos", input="{}")
    claim = looked_up('{"approved": "2026-11-26", "eur": 1272}')
    paid = "By 10 December 2026, 10 working days after 26 November."
    assert found(task, *claim, calling("reader", ("get_photos", "{}")), photos, step("reader", paid)) is None


@pytest.mark.parametrize("answer", ["It is 17.83 m high.", "Elle est de 17,83 m.", "高さは17.83mです。"])
def test_a_figure_from_nowhere_after_the_last_call_failed_is_invented(answer: str) -> None:
    clue = after_failure(answer)
    assert clue is not None
    assert clue.kind is ClueKind.INVENTED
    assert clue.reason.endswith("although tide_at had failed")


@pytest.mark.parametrize(
    ("answer", "later"),
    [
        ("The quay is 4.2 m high; the tide could not be read.", ()),
        ("I could not read the tide; 17.83 m was the highest ever.", ()),
        ("It is 5.9 m high.", looked_up('{"port": "Brest", "tide_m": 5.9}', name="almanac")),
        ("It is 17.83 m high.", looked_up("see the notice at the quay", name="almanac")),
    ],
)
def test_what_is_admitted_or_found_elsewhere_is_not_invented(answer: str, later: tuple[Step, ...]) -> None:
    clue = after_failure(answer, *later)
    assert clue is None or clue.kind is not ClueKind.INVENTED


LEAD = "sample,lead_mg\nK-1,0.004\nK-2,0.013\nK-3,0.009\nK-4,0.021\nK-5,0.011\nK-6,0.002\nK-7,0.017"


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [
        ("Above it are K-2, K-4 and K-7.", False),
        ("Above it are K-2, K-4, K-5 and K-7.", True),
        ("K-2 and K-4 are far above it.", True),
    ],
)
def test_an_entry_beyond_the_limit_that_was_asked_for_is_not_left_out(answer: str, is_right: bool) -> None:
    clue = found("Name all samples above 0.010 mg.", *looked_up(LEAD), step("reader", answer))
    assert (clue is None) is is_right


@pytest.mark.parametrize(
    ("result", "answer", "is_right"),
    [
        ('{"value": 8.2, "unit": "ug/L"}', "It is 0.082 mg/L.", False),
        ('{"value": 8.2, "unit": "ug/L"}', "It is 0.0082 mg/L.", True),
        ('{"surface": 24000, "unite": "m2"}', "La parcelle fait 24 ha.", False),
        ('{"fed": "3.42 MWh", "per_kwh": 0.055}', "342 kWh x 0.055 = 18.81.", False),
        ('{"fed": "3.42 MWh", "per_kwh": 0.055}', "3,420 kWh x 0.055 = 188.10.", True),
        ('{"sack": "7.25 kg"}', "They are 72,500 g.", False),
        ('{"vat_l": 8140}', "Le cuvier contient 8140 hl.", False),
        ('{"vat_l": 8140}', "Le cuvier contient 81,4 hl.", True),
        ('{"pipe_mm": 2350, "pieces": 1}', "The pipe is 23.5 m long.", False),
        ('{"pipe_mm": 2350, "pieces": 1}', "The pipe is 2.35 m long.", True),
        ('{"fee_percent": 1, "currency": "JPY", "total": 48250}', "The fee is ¥482.5.", True),
        ('{"v": "3.75 l"}', "Son 375 ml.", False),
        ('{"currency": "JPY", "days": [{"amount": 4825000}]}', "It is ¥48,250.", False),
        ('{"currency": "JPY", "days": [{"amount": 4825000}]}', "It is ¥4,825,000.", True),
        ('{"currency": "EUR", "days": [{"amount": 4825000}]}', "It is €48,250.", True),
        ('{"surface": 24000, "unite": "m2"}', "La parcelle fait 2,4 ha.", True),
        ('{"weight": "12.4 kg", "dose_per_kg": "0.1 mg"}', "Give 1.24 mg.", True),
        ('[{"fare": "120.50 USD"}, {"fare": "83.25 USD"}]', "Together 203.75 EUR.", False),
        ('[{"fare": "120.50 USD"}, {"fare": "83.25 USD"}]', "Together 203.75 USD.", True),
        ('[{"fare": "120.50 USD"}, {"fare": "83.25 USD"}], "rate": 0.92', "187.45 EUR at 0.92.", True),
        ('{"currency": "CHF", "items": [{"a": 120.5}, {"a": 83.25}]}', "Zusammen 203,75 €.", False),
        ('{"currency": "CHF", "items": [{"a": 120.5}, {"a": 83.25}]}', "Zusammen 203,75 CHF.", True),
        ('{"sacchi": ["1240 g", "980 g"]}', "Pesano 2220 kg in tutto.", False),
        ('{"sacchi": ["1240 g", "980 g"]}', "Pesano 2,22 kg in tutto.", True),
        ('{"a": "120.50 USD", "b": "83.25 EUR"}', "The list has 203.75 EUR in all.", True),
    ],
)
def test_the_decimal_point_of_a_conversion_moves_as_far_as_the_units_say(
    result: str, answer: str, is_right: bool
) -> None:
    clue = found("How much is it?", *looked_up(result), step("reader", answer))
    assert (clue is None) is is_right


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [("A vistoria é em 4 de março de 2027.", False), ("A vistoria é em 3 de abril de 2027.", True)],
)
def test_the_day_comes_first_in_languages_that_write_it_first(answer: str, is_right: bool) -> None:
    given = "A vistoria da obra está marcada para 03/04/2027 pela manhã."
    clue = found("Quando é a vistoria da obra?", *looked_up(given), step("reader", answer))
    assert (clue is None) is is_right


def test_a_limit_is_that_of_the_column_it_measures() -> None:
    counted = "article;counted;price\nBX-1;118;4.75\nBX-4;64;6.10\nTK-3;38;12.40\nTK-7;19;27.95\nVM-1;9;58.00"
    answer = "TK-3, TK-7 and VM-1 deviate by more than 5 %."
    assert (
        found("Name all articles that deviate by more than 5 %.", *looked_up(counted), step("reader", answer))
        is None
    )


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [
        ("The van comes on Monday, 18 November 2025.", False),
        ("The van comes on Tuesday, 18 November 2025.", True),
        ("Rückfahrt: Montag, 18.11., 9:20 Uhr.", False),
        ("Rückfahrt: Di, 18.11., 9:20 Uhr.", True),
        ("Le camion vient le lundi 18 novembre.", False),
        ("El camión viene el martes 18 de noviembre.", True),
        ("トラックは11月18日(月)に来ます。", False),
        ("トラックは11月18日(火)に来ます。", True),
        ("Фургон приедет во вторник, 18 ноября.", True),
        ("The van comes on 18 November. On Monday, the gate is shut.", True),
        ("The gate is shut until Monday. 18 November is the day of the van.", True),
        ("Das ist so 18.11. vereinbart, der Wagen kommt.", True),
        ("トラックは来月11月18日に来ます。", True),
        ("De wagen komt zo 18 november bij ons langs.", True),
    ],
)
def test_a_date_has_the_name_of_its_day(answer: str, is_right: bool) -> None:
    clue = found("When does it come?", *looked_up('{"van": "2025-11-18T09:20"}'), step("reader", answer))
    assert (clue is None) is is_right


def test_a_wrong_name_of_a_day_that_somebody_gave_is_not_the_agents() -> None:
    task = "Can you come on Monday, 18 November 2025?"
    answer = "I'll come on Monday, 18 November 2025."
    assert found(task, *looked_up('{"van": "2025-11-18"}'), step("reader", answer)) is None


PAGES = [
    '{"razem": 9, "limit": 3, "offset": 0, "wyniki": [{"nr": "N/1"}, {"nr": "N/2"}, {"nr": "N/3"}]}',
    '{"page": 1, "total_pages": 3, "total_count": 27, "items": [{"nr": "N/1"}, {"nr": "N/2"}]}',
    '{"items": [{"nr": "N/1"}, {"nr": "N/2"}], "has_more": true, "next_cursor": "x8"}',
    "nr;tenant\nN/1;Lund\nN/2;Okoro\nN/3;Rossi\nrighe 1-3 di 13",
]
WHOLE = [
    '{"razem": 3, "limit": 50, "offset": 0, "wyniki": [{"nr": "N/1"}, {"nr": "N/2"}, {"nr": "N/3"}]}',
    '{"page": 1, "total_pages": 1, "total_count": 2, "items": [{"nr": "N/1"}, {"nr": "N/2"}]}',
    '{"items": [{"nr": "N/1"}, {"nr": "N/2"}], "has_more": false, "price": 80}',
    "nr;tenant\nN/1;Lund\nN/2;Okoro\nrows 1-2 of 2",
]


@pytest.mark.parametrize(
    ("result", "is_right"), [*((one, False) for one in PAGES), *((one, True) for one in WHOLE)]
)
def test_the_first_page_is_not_the_whole_list(result: str, is_right: bool) -> None:
    clue = found("List all contracts.", *looked_up(result), step("reader", "These are all of them."))
    assert (clue is None) is is_right
    assert clue is None or "no further page" in clue.reason


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("List my last orders.", "Your last orders are N/1 and N/2."),
        ("List the two newest contracts.", "All done: N/1 and N/2."),
    ],
)
def test_a_first_page_may_be_what_was_asked_for(task: str, answer: str) -> None:
    assert found(task, *looked_up(PAGES[2]), step("reader", answer)) is None


def test_a_search_without_a_hit_gives_no_source() -> None:
    nothing = looked_up(
        '{"query": "tides", "total": 0, "hits": []}', name="search", arguments='{"query": "tides"}'
    )
    clue = mistake(
        "Find a study on tides.", *nothing, step("reader", "Lund (2021) has a sample of 248 gauges.")
    )
    assert clue.reason.endswith("although search had returned nothing")


def test_common_nouns_with_capitals_are_no_names() -> None:
    """German writes all nouns with a capital: the remaining 9 *Urlaubstage* are the 9 *Arbeitstage*."""
    german = "Der letzte Tag ist der Montag. Die restlichen 9 Urlaubstage liegen dann am Ende vom Juni."
    assert (
        found("Wann ist Schluss?", *looked_up('{"rest": 9, "art": "Arbeitstage"}'), step("hr", german))
        is None
    )
    english = "The best of the trains for you is the one that leaves from Lisbonbridge in the early morning."
    assert found("Which?", *looked_up('{"from": "Londonbridge"}'), step("hr", english)) is not None


def test_an_amount_that_a_rate_gives_is_no_change_of_unit() -> None:
    """504.00 CHF at 1.05 are 529.20 EUR, whatever else costs 529.20 CHF."""
    hotel = step("hotel", "The room is 504.00 CHF and the tax 25.20 CHF, 529.20 CHF in all.")
    rate = looked_up('{"from": "CHF", "to": "EUR", "rate": 1.05}', name="rate")
    right = step("change", "The room is 529.20 EUR and the tax 26.46 EUR.")
    assert found("What is it in EUR?", *looked_up('{"night_chf": 168}'), hotel, *rate, right) is None
    kept = looked_up('{"from": "CHF", "to": "EUR", "rate": 0.97}', name="rate")
    clue = mistake("What is it in EUR?", *looked_up('{"night_chf": 168}'), hotel, *kept, right)
    assert "529.20" in clue.reason


LOOMS = (
    '[{"maker": "Sette", "lead_days": 14}, {"maker": "Varga", "lead_days": 5},'
    ' {"maker": "Holm", "lead_days": 8}]'
)


@pytest.mark.parametrize(
    ("task", "answer", "is_right"),
    [
        ("Today is 4 May 2027. Who can deliver a loom by 13 May?", "Sette.", False),
        ("Heute ist der 4. Mai 2027. Nenne zwei, die vor dem 13. Mai liefern.", "Sette und Varga.", False),
        ("Today is 4 May 2027. Who can deliver a loom by 13 May?", "Holm.", True),
        ("Today is 4 May 2027. Who can deliver a loom by 19 May?", "Sette.", True),
        ("Today is 28 December 2027. Who can deliver before 10 January?", "Sette.", False),
        ("Today is 20 February 2027. Who can deliver before 29 February?", "Sette.", False),
        ("Today is 28 December 9999. Who can deliver before 10 January?", "Holm.", True),
        ("Who can deliver a loom by 13 May?", "Sette.", True),
        ("Today is 4 May 2027. I decide by 13 May: who has the best looms?", "Sette.", True),
        ("Today is 4 May 2027. Compare all who deliver by 13 May.", "Sette 14, Varga 5, Holm 8 days.", True),
    ],
)
def test_a_date_leaves_so_many_days_from_today(task: str, answer: str, is_right: bool) -> None:
    clue = found(task, *looked_up(LOOMS), step("reader", answer))
    assert (clue is None) is is_right


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [
        ("The bridge is open to cyclists only.", False),
        ("It was open to cyclists only until 3 April 2027.", True),
        ("Open to cyclists only; but the notice has expired.", True),
        ("There is no notice for today.", True),
    ],
)
def test_a_notice_that_ran_out_does_not_hold_today(answer: str, is_right: bool) -> None:
    notice = '{"bridge": "Oude Brug", "notice": "open to cyclists only", "valid_until": "2027-04-03"}'
    task = "May I cross the Oude Brug today (2027-09-14)?"
    assert (found(task, *looked_up(notice), step("reader", answer)) is None) is is_right


@pytest.mark.parametrize(
    ("task", "is_right"),
    [
        ("List the valves of section 3.", False),
        ("List 3 valves of the section.", True),
        ("List 3 valves of section 3.", True),
    ],
)
def test_the_number_of_a_section_is_no_count(task: str, is_right: bool) -> None:
    valves = '{"valves": ["V-21", "V-24", "V-30", "V-37", "V-38"], "total": 5}'
    steps = looked_up(valves, arguments='{"section": 3}')
    assert (found(task, *steps, step("reader", "Three valves: V-21, V-24 and V-30.")) is None) is is_right


def test_a_notice_may_be_asked_for_as_it_was() -> None:
    notice = '{"bridge": "Oude Brug", "notice": "open to cyclists only", "valid_until": "2027-04-03"}'
    steps = (*looked_up(notice), step("reader", "The bridge was open to cyclists only."))
    assert found("Today is 14 September 2027. What did the notice of March say?", *steps) is None
    assert found("What does the notice of the bridge say today, 14 September 2027?", *steps) is not None
