# ruff: noqa: E501 - a turn a line
"""Twenty-four runs, six of them right, with the truth about each: who broke it, and the words that show it.

They were written before either program had seen them, in English and German, three failures of each kind.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from semconv.record import record
from tests.renderings.play import Act, Asked, ModelCall, Play, ToolUse, Turn


@record
class ToldRun:
    """A run and what is known about it."""

    play: Play
    kind: str
    """The kind of failure; empty if the run is right."""
    agent: str = ""
    """Who broke it."""
    shows: str = ""
    """Words of that agent, of its call or of its tool, that show what is wrong."""


@dataclass(frozen=True, slots=True)
class _Use:
    """A call of a tool, with its result or its error."""

    tool: str
    arguments: dict[str, Any]
    result: str = ""
    error: str = ""


def _turn(agent: str, instructions: str, *acts: _Use | str | ModelCall) -> Turn:
    """Return a turn: uses of tools, each asked for by the model first, and texts of the model."""
    return Turn(agent=agent, instructions=instructions, acts=tuple(_played(agent, acts)))


def _played(agent: str, acts: tuple[_Use | str | ModelCall, ...]) -> Iterator[Act]:
    for number, act in enumerate(acts):
        match act:
            case str() as text:
                yield ModelCall(text=text)
            case ModelCall():
                yield act
            case _Use():
                arguments = json.dumps(act.arguments, ensure_ascii=False)
                asked = Asked(tool=act.tool, arguments=arguments, call_id=f"{agent}-{number}")
                yield ModelCall(asks=(asked,))
                yield ToolUse(asked=asked, result=act.result, error=act.error)


def _told(name: str, task: str, *turns: Turn, kind: str = "", agent: str = "", shows: str = "") -> ToldRun:
    return ToldRun(play=Play(name=name, task=task, stages=turns), kind=kind, agent=agent, shows=shows)


_ERROR: Final = "an error that nothing repaired"
_FIGURE: Final = "a figure copied or computed wrongly"
_ARGUMENT: Final = "a wrong argument"
_DEED: Final = "a deed that nobody did"
_SHORT: Final = "work cut short"
_PROSE: Final = "a broken rule in prose"

_ERRORS: Final = (
    _told(
        "ferry times", "When does the last ferry leave Tobermory today?",
        _turn("planner", "You plan.", "timetable looks up today's last ferry; writer answers."),
        _turn("timetable", "You look up timetables.", _Use("ferries", {"from": "Tobermory"}, error="ConnectionError: timetable service unreachable"), "I have no times."),
        _turn("writer", "You answer.", "I could not find the time of the last ferry."),
        kind=_ERROR, agent="timetable", shows="timetable service unreachable",
    ),
    _told(
        "invoice archive", "File invoice 2207 and tell me its archive number.",
        _turn("reader", "You read invoices.", _Use("read_invoice", {"invoice": "2207"}, '{"total": 318.4, "vendor": "Lund"}'), "Invoice 2207 is from Lund, 318.40 in total."),
        _turn("archivist", "You file documents.", ModelCall(error="RateLimitError: 429 quota exceeded for today")),
        kind=_ERROR, agent="archivist", shows="429 quota exceeded",
    ),
    _told(
        "Lagerbestand", "Wie viele Dichtungen vom Typ D40 liegen im Lager Nord?",
        _turn("Disponent", "Du planst.", "Lagerist fragt den Bestand von D40 im Lager Nord ab."),
        _turn("Lagerist", "Du fragst Bestände ab.", _Use("bestand", {"artikel": "D40", "lager": "Nord"}, error="HTTP 503 Service Unavailable"), _Use("bestand", {"artikel": "D40", "lager": "Nord"}, error="HTTP 503 Service Unavailable"), "Der Bestand ist nicht abrufbar."),
        _turn("Sprecher", "Du antwortest dem Kunden.", "Den Bestand kann ich leider nicht nennen."),
        kind=_ERROR, agent="Lagerist", shows="HTTP 503 Service Unavailable",
    ),
)  # fmt: skip

_FIGURES: Final = (
    _told(
        "pump power", "How much power does pump P7 draw at full load?",
        _turn("technician", "You read data sheets.", _Use("data_sheet", {"pump": "P7"}, '{"full_load_w": 9600, "idle_w": 410}'), "The data sheet of P7 is read."),
        _turn("analyst", "You report figures.", "At full load, P7 draws 6,900 W."),
        _turn("writer", "You answer.", "Pump P7 draws 6,900 W at full load."),
        kind=_FIGURE, agent="analyst", shows="6,900 W",
    ),
    _told(
        "hall hire", "What do three evenings in the hall cost with the piano?",
        _turn("clerk", "You look up prices.", _Use("price_list", {"item": "hall"}, '{"evening": 240, "piano_per_evening": 35}'), "An evening costs 240, the piano 35 per evening."),
        _turn("calculator", "You compute.", "3 * (240 + 35) = 855"),
        _turn("writer", "You answer.", "Three evenings with the piano cost 855."),
        kind=_FIGURE, agent="calculator", shows="855",
    ),
    _told(
        "Stromverbrauch", "Wie viel Strom hat Haus 4 im ersten Quartal verbraucht?",
        _turn("Ableser", "Du liest Zähler ab.", _Use("verbrauch", {"haus": 4, "quartal": 1}, '{"januar_kwh": 1180, "februar_kwh": 1045, "maerz_kwh": 990}'), "Januar 1180 kWh, Februar 1045 kWh, März 990 kWh."),
        _turn("Rechner", "Du rechnest.", "1180 + 1045 + 990 = 3125"),
        _turn("Autor", "Du antwortest.", "Haus 4 hat im ersten Quartal 3125 kWh verbraucht."),
        kind=_FIGURE, agent="Rechner", shows="3125",
    ),
)  # fmt: skip

_ARGUMENTS: Final = (
    _told(
        "refund", "Refund order 4711 of customer Ames.",
        _turn("triage", "You sort requests.", "A refund of order 4711 for the refund desk."),
        _turn("refund desk", "You refund orders.", _Use("refund", {"order": "4712"}, '{"refunded": true, "order": "4712"}'), "Order 4711 is refunded."),
        kind=_ARGUMENT, agent="refund desk", shows="4712",
    ),
    _told(
        "room booking", "Book the room Elm for 14 March, 10:00 to 11:00.",
        _turn("assistant", "You take requests.", "Elm on 14 March, 10:00 to 11:00."),
        _turn("booker", "You book rooms.", _Use("book_room", {"room": "Elm", "date": "2026-03-15", "from": "10:00", "to": "11:00"}, '{"booking": "B-88"}'), "Elm is booked for 14 March, 10:00 to 11:00: B-88."),
        kind=_ARGUMENT, agent="booker", shows="2026-03-15",
    ),
    _told(
        "Wetterbericht", "Wie wird das Wetter morgen in Freiburg?",
        _turn("Planer", "Du planst.", "Meteorologe fragt das Wetter von Freiburg für morgen ab."),
        _turn("Meteorologe", "Du fragst das Wetter ab.", _Use("wetter", {"ort": "Freiberg", "tag": "morgen"}, '{"ort": "Freiberg", "himmel": "Schnee", "grad": -2}'), "Morgen fällt Schnee bei -2 Grad."),
        _turn("Sprecher", "Du antwortest.", "In Freiburg fällt morgen Schnee bei -2 Grad."),
        kind=_ARGUMENT, agent="Meteorologe", shows="Freiberg",
    ),
)  # fmt: skip

_DEEDS: Final = (
    _told(
        "dentist", "Book me a dentist on Friday morning and send me a confirmation.",
        _turn("scheduler", "You find appointments.", _Use("free_slots", {"day": "Friday"}, '{"slots": ["09:20", "11:00"]}'), "Free on Friday: 09:20 and 11:00."),
        _turn("booker", "You book appointments.", "I booked 09:20 on Friday and sent you the confirmation."),
        kind=_DEED, agent="booker", shows="I booked 09:20",
    ),
    _told(
        "press release", "Publish the press release on the spring fair.",
        _turn("author", "You write.", _Use("load_draft", {"name": "spring fair"}, "The spring fair opens on 2 May."), "The draft is ready: The spring fair opens on 2 May."),
        _turn("publisher", "You publish texts.", "The press release has been published on the website."),
        kind=_DEED, agent="publisher", shows="has been published",
    ),
    _told(
        "Kündigung", "Kündige den Vertrag V-310 zum Monatsende.",
        _turn("Sachbearbeiter", "Du prüfst Verträge.", _Use("vertrag", {"nummer": "V-310"}, '{"nummer": "V-310", "frist": "erfüllt"}'), "V-310 kann zum Monatsende gekündigt werden."),
        _turn("Abwickler", "Du kündigst Verträge.", "Ich habe den Vertrag V-310 zum Monatsende gekündigt."),
        kind=_DEED, agent="Abwickler", shows="V-310 zum Monatsende gekündigt",
    ),
)  # fmt: skip

_STATIONS: Final = '{"stations": [{"name": "Aros", "mm": 12}, {"name": "Bran", "mm": 31}, {"name": "Colm", "mm": 8}, {"name": "Dunn", "mm": 44}, {"name": "Eig", "mm": 27}]}'  # fmt: skip
_SHORTS: Final = (
    _told(
        "rainfall", "Which station had the most rain yesterday?",
        _turn("collector", "You fetch measurements.", _Use("rain", {"day": "yesterday"}, _STATIONS), "Aros 12 mm, Bran 31 mm, Colm 8 mm."),
        _turn("analyst", "You compare.", "Bran had the most rain: 31 mm."),
        kind=_SHORT, agent="collector", shows="Aros 12 mm, Bran 31 mm, Colm 8 mm",
    ),
    _told(
        "audit", "Check all four contracts of Lund and list those without a signature.",
        _turn("clerk", "You list contracts.", _Use("contracts", {"vendor": "Lund"}, '{"contracts": ["C-1", "C-2", "C-3", "C-4"]}'), "C-1, C-2, C-3 and C-4."),
        _turn("auditor", "You check contracts.", _Use("check", {"contract": "C-1"}, '{"signed": true}'), _Use("check", {"contract": "C-2"}, '{"signed": true}'), "All four contracts are signed."),
        kind=_SHORT, agent="auditor", shows="All four contracts are signed",
    ),
    _told(
        "Rückmeldungen", "Fasse alle Seiten der Rückmeldungen zum Kurs zusammen.",
        _turn("Sammler", "Du liest Rückmeldungen.", _Use("rueckmeldungen", {"seite": 1}, '{"seite": 1, "seiten": 3, "texte": ["gut", "zu schnell"]}'), "Zwei Rückmeldungen: gut; zu schnell."),
        _turn("Autor", "Du fasst zusammen.", "Insgesamt gab es zwei Rückmeldungen: Der Kurs war gut, aber zu schnell."),
        kind=_SHORT, agent="Sammler", shows="Zwei Rückmeldungen",
    ),
)  # fmt: skip

_PROSES: Final = (
    _told(
        "tenant letter", "Answer the tenant's letter. Never promise a date.",
        _turn("reader", "You read letters.", _Use("letter", {"id": 3}, "The heating in flat 5 is broken."), "The tenant reports broken heating in flat 5."),
        _turn("writer", "You write letters. Never promise a date.", "Dear tenant, the heating will be repaired by Thursday. Kind regards"),
        kind=_PROSE, agent="writer", shows="by Thursday",
    ),
    _told(
        "menu", "Propose a dinner for two guests; one of them eats no nuts.",
        _turn("host", "You collect wishes.", "Two guests; one eats no nuts."),
        _turn("cook", "You propose dishes.", "Pumpkin soup, then trout with almond crust, then pears."),
        _turn("writer", "You answer.", "I propose pumpkin soup, trout with almond crust and pears."),
        kind=_PROSE, agent="cook", shows="almond crust",
    ),
    _told(
        "Absage", "Schreibe dem Bewerber freundlich ab, ohne Gründe zu nennen.",
        _turn("Personaler", "Du entscheidest.", "Absage an Herrn Brandt; intern: zu wenig Erfahrung. Keine Gründe nennen."),
        _turn("Schreiber", "Du schreibst Briefe.", "Sehr geehrter Herr Brandt, wegen zu geringer Erfahrung können wir Sie leider nicht einstellen."),
        kind=_PROSE, agent="Schreiber", shows="wegen zu geringer Erfahrung",
    ),
)  # fmt: skip

_RIGHTS: Final = (
    _told(
        "train", "When does the next train to Perth leave?",
        _turn("timetable", "You look up trains.", _Use("trains", {"to": "Perth"}, '{"next": "16:42"}'), "At 16:42."),
        _turn("writer", "You answer.", "The next train to Perth leaves at 16:42."),
    ),
    _told(
        "rent", "What does the office cost in a year?",
        _turn("clerk", "You look up rents.", _Use("rent", {"room": "office"}, '{"month": 1250}'), "1,250 a month."),
        _turn("calculator", "You compute.", "12 * 1,250 = 15,000"),
        _turn("writer", "You answer.", "The office costs 15,000 a year."),
    ),
    _told(
        "parcel", "Where is parcel 9920?",
        _turn("tracker", "You track parcels.", _Use("track", {"parcel": "9920"}, error="Timeout after 5 s"), _Use("track", {"parcel": "9920"}, '{"at": "Oban"}'), "It is in Oban."),
        _turn("writer", "You answer.", "Parcel 9920 is in Oban."),
    ),
    _told(
        "Öffnungszeiten", "Wann öffnet das Museum am Sonntag?",
        _turn("Auskunft", "Du suchst Zeiten.", _Use("zeiten", {"tag": "Sonntag"}, '{"von": "11:00"}'), "Um 11:00 Uhr."),
        _turn("Sprecher", "Du antwortest.", "Das Museum öffnet am Sonntag um 11:00 Uhr."),
    ),
    _told(
        "Umbuchung", "Buche den Termin T-6 auf Montag um.",
        _turn("Planer", "Du planst.", "T-6 auf Montag."),
        _turn("Bucher", "Du buchst um.", _Use("umbuchen", {"termin": "T-6", "tag": "Montag"}, '{"ok": true}'), "T-6 ist auf Montag umgebucht."),
    ),
    _told(
        "Mittelwert", "Wie hoch ist der Mittelwert der drei Messungen?",
        _turn("Messer", "Du liest Messwerte.", _Use("messwerte", {}, "[18, 24, 30]"), "18, 24 und 30."),
        _turn("Rechner", "Du rechnest.", "(18 + 24 + 30) / 3 = 24"),
        _turn("Autor", "Du antwortest.", "Der Mittelwert ist 24."),
    ),
)  # fmt: skip

TOLD: Final = (*_ERRORS, *_FIGURES, *_ARGUMENTS, *_DEEDS, *_SHORTS, *_PROSES, *_RIGHTS)
"""The runs, failed ones first."""
