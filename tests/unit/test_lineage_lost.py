"""Entries that get lost, deeds on another target, and figures for what nobody looked up; with right twins."""

from __future__ import annotations

import json

import pytest

from semconv.model import Step
from tests.lineage import called, found, mistake
from tests.runs import step

SEVEN = (
    "Without memory limits: auth-proxy (2 replicas), batch (1), catalog (4), docs-site (1), imgproxy (3), "
    "etl-loader (2), mailhook (1)."
)
FIVE = "Five run without limits: auth-proxy (2), batch (1), catalog (4), docs-site (1) and imgproxy (3)."


def passed_on(listed: str, answer: str, *between: Step, task: str = "List all of them.") -> str:
    """Return the reason of the mistake in what an agent made of another one's list; empty if none."""
    looked = called("look", "{}", "done")
    clue = found(task, *looked, step("finder", listed), *between, step("writer", answer))
    return clue.reason if clue else ""


@pytest.mark.parametrize(
    ("task", "listed", "answer", "lost"),
    [
        ("List every deployment without limits.", SEVEN, FIVE, "without etl-loader"),
        (
            "Elenca tutti i comuni con il divieto.",
            "Il divieto vale ad Albiano, Castelrosso, Montefosco, Roccabruna e Sant'Elia.",
            "Tre comuni: Albiano, Castelrosso e Montefosco.",
            "without Roccabruna",
        ),
        (
            "Podaj wszystkie produkty.",
            "Brakuje: Cieciorka (28), Daktyle (17), Kakao (15), Siemię (1), Kasza jaglana (25), Olej (10).",
            "Brakuje 4: cieciorka 28, daktyle 17, kakao 15 i siemię 1.",
            "without Kasza jaglana",
        ),
        (
            "Which stores missed it? All of them.",
            "- Pori -19 %\n- Turku -15 %\n- Kotka -14 %\n- Vaasa -12 %\n- Kuopio -11 %",
            "Pori (-19 %), Kotka (-14 %) and Kuopio (-11 %) missed it.",
            "without Turku",
        ),
    ],
)
def test_an_agent_loses_entries_of_a_colleagues_list(task: str, listed: str, answer: str, lost: str) -> None:
    assert passed_on(listed, answer, task=task).endswith(lost)


@pytest.mark.parametrize(
    ("listed", "answer", "between"),
    [
        (SEVEN, FIVE.replace(".", ""), (step("checker", "etl-loader and mailhook were deleted today."),)),
        (SEVEN, f"{FIVE} The other two of 7 got theirs today.", ()),
        (
            "Hotels: Albero (pool, 90), Bosco (pool, 80), Corte (60), Duna (pool, 70), Erba (65).",
            "Three have one: Albero, Bosco and Duna.",
            (),
        ),
        (
            "Stores: Pori (19), Turku (15), Kotka (14), Vaasa (12), Kuopio (11).",
            "Three missed it by more than 13 %: Pori, Turku and Kotka.",
            (),
        ),
        (
            "Venues: Alba (river, parking), Brio (parking), Corte (river), Duna (river, parking).",
            "Two are by the river and have parking: Alba and Duna.",
            (),
        ),
        (
            "Verträge: Berger (31.03.2026), Adler (30.09.2026), Conrad (30.04.2026), Ebert (31.12.2026).",
            "Zwei enden vor dem Juli: Berger und Conrad.",
            (),
        ),
        (
            "Salas: Norte (9:30), Sur (14:00), Este (11:15), Oeste (10:45), Central (16:00).",
            "Tres quedan libres antes de las 12: Norte, Este y Oeste.",
            (),
        ),
        (
            "Impianti: Albano (22 kW), Borgo (12 kW), Cassia (38 kW), Dolo (55 kW), Ello (31 kW).",
            "Tre sono tra 20 e 40 kW: Albano, Cassia ed Ello.",
            (),
        ),
        (
            "Grades: Mara (A), Nils (C), Olga (B), Pavel (D), Quinn (B), Rosa (A).",
            "Four have a B or better: Mara, Olga, Quinn and Rosa.",
            (),
        ),
        (
            "The policy is active, covers water, excludes floods, has no deductible.",
            "All three hold: it is active, covers water and excludes floods.",
            (),
        ),
        (
            "Objects: EUR 18,500, EUR 42,000, EUR 3,500, EUR 64,000.",
            "The three objects are worth 18,500, 42,000 and 3,500.",
            (),
        ),
    ],
    ids=[
        *("told why", "counts all", "a word tells", "a figure tells", "two words tell", "days tell"),
        *("times tell", "between two figures", "grades", "no things", "figures"),
    ],
)
def test_entries_may_be_left_out_for_a_reason(listed: str, answer: str, between: tuple[Step, ...]) -> None:
    assert not passed_on(listed, answer, *between)


def test_days_are_ordered_over_the_end_of_a_year() -> None:
    listed = "Runs: Alfa (20.12.2026), Beta (31.12.2026), Gamma (01.01.2027), Delta (02.01.2027)."
    answer = "Two of this year: Alfa and Beta."
    assert not passed_on(listed, answer, task="List all of this year.")


def test_nobody_loses_entries_where_some_were_asked_for() -> None:
    assert not passed_on(SEVEN, FIVE.replace("Five run", "These run"), task="Name some of them.")
    assert not passed_on(SEVEN, FIVE, task="Name five of them.")


LEAVERS = (
    "naam;einddatum;pas\nBakker, T.;2026-11-02;40511\nde Wit, L.;2026-11-06;40518\n"
    "Jansen, P.;2026-11-15;40527\nKok, M.;2026-11-20;40533\nVisser, R.;2026-11-30;40540"
)
LATE = json.dumps(
    {
        "count": 5,
        "items": [
            {"id": f"SH-{n}", "days": d}
            for n, d in zip((6104, 6119, 6121, 6127, 6140), (2, 1, 6, 4, 3), strict=True)
        ],
    }
)


@pytest.mark.parametrize(
    ("task", "arguments", "result", "answer", "lost"),
    [
        (
            "Blokkeer de passen van iedereen die in november 2026 wegging.",
            '{"van": "2026-11-01"}',
            LEAVERS,
            "Geblokkeerd: Bakker, Jansen en Visser.",
            "without de wit",
        ),
        (
            "أعطني كل الشحنات المتأخرة للعميل 3071",
            '{"customer": 3071}',
            LATE,
            "أربع شحنات: SH-6104 وSH-6119 وSH-6121 وSH-6140.",
            "without sh-6127",
        ),
        (
            "Renew all certificates that expire before 2027.",
            '{"before": "2027"}',
            "name   expires\nshop    2026-12-19\nvault   2026-12-27\nmail    2026-12-29\nwiki    2026-12-31",
            "Renewed all: shop, mail and wiki.",
            "without vault",
        ),
    ],
)
def test_entries_between_those_that_are_named_are_left_out(
    task: str, arguments: str, result: str, answer: str, lost: str
) -> None:
    clue = mistake(task, *called("find", arguments, result), step("porter", answer))
    assert clue.reason.endswith(lost)


@pytest.mark.parametrize(
    ("task", "arguments", "answer"),
    [
        ("Welke drie pasjes zijn van november 2026?", '{"van": "2026"}', "Bakker, Jansen en Visser."),
        ("Wie ging in de tweede helft van november 2026, allemaal?", '{"van": "2026"}', "Kok en Visser."),
        ("Geef alle namen met een r.", '{"sort": "naam"}', "Bakker, Visser en niemand anders."),
    ],
)
def test_a_result_may_hold_more_than_was_asked_for(task: str, arguments: str, answer: str) -> None:
    assert not found(task, *called("find", arguments, LEAVERS), step("porter", answer))


ROOMS = json.dumps(
    [
        {"room": room, "seats": seats}
        for room, seats in zip(("Alpha", "Beta", "Gamma", "Delta"), (10, 20, 30, 40), strict=True)
    ]
)


def test_an_entry_that_was_looked_at_alone_may_be_left_out() -> None:
    listed, answer = called("rooms", '{"floor": 2}', ROOMS), step("desk", "Free: Alpha, Gamma and Delta.")
    looked = called("is_free", '{"room": "Beta"}', '{"free": false}')
    task = "List every room on floor 2 that is free."
    assert found(task, *listed, *looked, answer) is None
    assert mistake(task, *listed, answer).reason.endswith("without beta")


CLOSING = json.dumps(
    [
        {"call": call, "closes": day}
        for call, day in zip(
            ("Alder", "Birch", "Cedar", "Dogwood"),
            ("2026-11-20", "2027-01-18", "2026-12-10", "2027-03-10"),
            strict=True,
        )
    ]
)


def test_all_entries_are_named_to_compare_them_with_a_limit() -> None:
    looked, task = called("calls", "{}", CLOSING), "Which calls close before 31 December 2026?"
    compared = "Of the four calls, Alder and Cedar close in time; Birch and Dogwood are open longer."
    assert found(task, *looked, step("desk", compared)) is None
    for wrong in (
        "Three close in time: Alder, Birch and Cedar.",
        "All four do: Alder (2 %), Birch (3 %), Cedar and Dogwood.",
    ):
        assert mistake(task, *looked, step("desk", wrong)).reason.startswith("chose Birch")


FABRICS = json.dumps(
    [{"name": "Wool velour", "eur_price": 42.0}, {"name": "Cotton twill", "eur_price": 34.5}]
)


@pytest.mark.parametrize(
    "task",
    ["Find a fabric, nothing above 35 EUR.", "Suche uns einen Stoff für die Umhänge, nichts über 35 EUR."],
)
def test_nothing_above_a_price_sets_the_most(task: str) -> None:
    looked = called("fabrics", "{}", FABRICS)
    assert found(task, *looked, step("desk", "Take Cotton twill.")) is None
    assert mistake(task, *looked, step("desk", "Take Wool velour.")).reason.startswith("chose Wool velour")


RENTS = "nama | per tahun\nKos Melati | Rp30.000.000\nKos Dahlia | Rp34.800.000\nKos Teratai | Rp38.400.000"


def test_an_amount_with_its_currency_may_be_why_an_entry_is_left_out() -> None:
    looked, task = called("kos", "{}", RENTS), "Carikan semua kos yang paling mahal Rp3.000.000 per bulan."
    answer = "Dua kos: Kos Melati (Rp30.000.000 setahun) dan Kos Dahlia (Rp34.800.000 setahun)."
    assert found(task, *looked, step("desk", answer)) is None


def on(host: str, command: str, result: str = "ok") -> tuple[Step, Step]:
    return called("ssh", json.dumps({"host": host, "cmd": command}), result)


POOL = "web-eu-11  up\nweb-eu-12  down\nweb-eu-20  up\nweb-eu-21  up"
RESTART = "sudo systemctl restart nginx"


@pytest.mark.parametrize(
    ("task", "calls", "answer", "reason"),
    [
        (
            "web-eu-12 is down. Restart nginx there.",
            [called("lb_pool", '{"pool": "web"}', POOL), on("web-eu-21", RESTART)],
            "nginx on web-eu-12 runs again.",
            "called ssh for web-eu-21, where the task names web-eu-12",
        ),
        (
            "El nodo app-07 tiene errores. Sácalo del balanceo.",
            [called("lbctl", '{"cmd": "drain --node app-17"}', "draining app-17")],
            "El nodo app-07 ya no recibe tráfico.",
            "called lbctl for app-17, where the task names app-07",
        ),
        (
            "Pousse le correctif sur release/5.4.",
            [called("git", '{"args": "push origin release/4.5"}', "ok")],
            "Le correctif est sur release/5.4.",
            "called git for release/4.5, where the task names release/5.4",
        ),
    ],
)
def test_a_deed_is_done_on_a_sibling(
    task: str, calls: list[tuple[Step, Step]], answer: str, reason: str
) -> None:
    clue = mistake(task, *(one for call in calls for one in call), step("porter", answer))
    assert clue.reason == reason


@pytest.mark.parametrize(
    ("calls", "answer"),
    [
        ([on("web-eu-21", RESTART), on("web-eu-12", RESTART)], "web-eu-12 runs again."),
        ([on("web-eu-21", RESTART)], "web-eu-21 runs in place of web-eu-12."),
        (
            [on("web-eu-12", "status", "traffic of web-eu-12 goes to web-eu-21"), on("web-eu-21", RESTART)],
            "web-eu-12 is served.",
        ),
        (
            [called("find", '{"host": "web-eu-12"}', '{"alias_of": "web-eu-21"}'), on("web-eu-21", RESTART)],
            "web-eu-12 runs.",
        ),
        ([on("web-eu-21", "systemctl status nginx", "active")], "web-eu-12 is still down."),
        (
            [called("open_ticket", '{"title": "nginx", "template": "web-00-7"}', "ok")],
            "I reported web-eu-12.",
        ),
    ],
    ids=["both", "said", "a line leads", "its own result leads", "only looked at", "another shape"],
)
def test_a_deed_on_a_sibling_may_be_meant(calls: list[tuple[Step, Step]], answer: str) -> None:
    steps = [one for call in calls for one in call]
    assert found("web-eu-12 is down. Restart nginx there.", *steps, step("porter", answer)) is None


def test_instructions_may_lead_from_one_sibling_to_another() -> None:
    rule = "The replica of db-main-1 is db-main-2."
    calls = called("restart_db", '{"host": "db-main-2"}', "ok")
    said = step("porter", "The replica of db-main-1 runs again.", instructions=rule)
    assert found("Restart the replica of db-main-1.", *calls, said) is None


def test_a_new_thing_may_have_the_next_number() -> None:
    calls = called("create_correction", '{"number": "FV-2026-032"}', "issued")
    said = step("porter", "Korekta do faktury FV-2026-031 jest wystawiona.")
    assert found("Wystaw korektę do faktury FV-2026-031.", *calls, said) is None
    other = called("create_correction", '{"invoice": "FV-2026-013"}', "issued")
    assert found("Wystaw korektę do faktury FV-2026-031.", *other, said) is not None


def test_an_agent_that_calls_nothing_invents_what_another_one_did_not_find() -> None:
    steps = (
        *called("sh", '{"cmd": "sacct -u kim"}', "JobID|Elapsed|NCPUS|State"),
        step("porter", "No jobs."),
    )
    clue = mistake(
        "How many core hours did kim use?", *steps, step("secretary", "kim used 1,240 core hours.")
    )
    assert clue.reason == "gave 1,240, although sh had returned nothing"


def closed(*permits: str) -> list[Step]:
    return [
        one for permit in permits for one in called("close_permit", json.dumps({"permit": permit}), "closed")
    ]


@pytest.mark.parametrize(
    "task",
    [
        "Close all expired permits, except P-552, which is under appeal.",
        "Schließe die abgelaufenen Ausweise, aber nicht P-552.",
        "Ferme les permis expirés, sauf P-552.",
    ],
)
def test_a_deed_is_done_on_what_the_task_rules_out(task: str) -> None:
    clue = mistake(task, *closed("P-518", "P-552"), step("porter", "Two are closed."))
    assert clue.reason.startswith("called close_permit for P-552, where the task says")


@pytest.mark.parametrize(
    ("task", "steps"),
    [
        ("Close all expired permits, except P-552.", closed("P-518", "P-540")),
        (
            "Close P-518, but do not close P-552: put a note on it.",
            [*closed("P-518"), *called("add_note", '{"permit": "P-552"}', "ok")],
        ),
        ("Do not wait for P-552 to expire, close P-518 and P-552.", closed("P-518", "P-552")),
        ("Close the expired permits, and do not forget P-552.", closed("P-518", "P-552")),
        ("Schließe die abgelaufenen Ausweise, vergiss nicht P-552.", closed("P-518", "P-552")),
        ("Cierra los permisos vencidos y no te olvides de P-552.", closed("P-518", "P-552")),
        ("Ferme non seulement P-552, mais aussi l'autre.", closed("P-518", "P-552")),
        ("Close them all, but do not close P-552 before it has expired.", closed("P-518", "P-552")),
    ],
    ids=[
        *("left alone", "another deed", "asked for as well", "not to be forgotten", "the same in German"),
        *("the same in Spanish", "not only", "not before"),
    ],
)
def test_a_deed_beside_what_the_task_rules_out_is_right(task: str, steps: list[Step]) -> None:
    assert found(task, *steps, step("porter", "Done.")) is None
