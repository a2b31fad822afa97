"""Answers in a language that nobody asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from analyzer.methods.suspicion import suspect
from analyzer.signals.suspicion import ClueKind, clues
from analyzer.texts.run_view import read
from analyzer.texts.wordings import ANY_LANGUAGE, speaks_of, tables
from semconv.model import Step, StepKind, Trajectory
from tests.runs import hearing, run, step, tool

HIVES = tool("beekeeper", '{"hives": 14, "queens": 13}', target="count_hives")
TASK = {
    "cs": "Kolik úlů je na zahradě a kolik z nich má královnu?",
    "de": "Wie viele Bienenstöcke stehen im Garten, und wie viele haben eine Königin?",
    "en": "How many hives are there in the garden, and how many of them have a queen?",
    "es": "¿Cuántas colmenas hay en el jardín y cuántas de ellas tienen una reina?",
    "fr": "Combien de ruches y a-t-il dans le jardin, et combien ont une reine ?",
    "ru": "Сколько ульев стоит в саду, и у скольких из них есть матка?",  # noqa: RUF001 - Russian
    "zh": "花园里有多少个蜂箱?其中有多少个已经有蜂王了?",
}
ANSWER = {
    "cs": "Na zahradě je 14 úlů a 13 z nich má královnu, jak jsem už napsal.",
    "de": "Im Garten stehen 14 Bienenstöcke, und 13 von ihnen haben eine Königin.",
    "en": "There are 14 hives in the garden, and 13 of them have a queen.",
    "es": "En el jardín hay 14 colmenas, y 13 de ellas tienen una reina.",
    "fr": "Il y a 14 ruches dans le jardin, et 13 d'entre elles ont une reine.",
    "ru": "В саду стоит 14 ульев, и у 13 из них есть матка.",  # noqa: RUF001 - Russian
    "zh": "花园里有14个蜂箱,其中13个已经有蜂王了。",
}


def asked(task: str, answer: str, instructions: str = "") -> Trajectory:
    return run(HIVES, step("beekeeper", answer, instructions=instructions), task=task, output=answer)


def reasons(trajectory: Trajectory) -> list[str]:
    kind = ClueKind.OTHER_LANGUAGE
    return [clue.reason for clue in clues(read(trajectory)) if clue.kind is kind]


@pytest.mark.parametrize("answer", ANSWER)
@pytest.mark.parametrize("task", TASK)
def test_an_answer_is_in_the_language_of_its_task(task: str, answer: str) -> None:
    names = {code: table.name for code, table in tables().items()}
    told = f"answered in {names[answer]} although the task is in {names[task]}"
    assert reasons(asked(TASK[task], ANSWER[answer])) == ([] if task == answer else [told])


@pytest.mark.parametrize(
    ("task", "answer", "expected"),
    [
        ("es", "There are 14 hives in the Estação yard.", "answered in English"),
        ("de", "Morgen brauchen 7c, 9a, 8a und 6d Futter. Brandt versorgt 7c und 9a, Ott 8a und 6d.", ""),
        ("en", "May work on 1 June: T. Okoye, J. Brandt, D. Ek and L. Moreno.", ""),
    ],
)
def test_names_and_initials_are_in_no_language(task: str, answer: str, expected: str) -> None:
    found = reasons(asked(TASK[task], answer))
    assert bool(found) is bool(expected)
    assert all(expected in one for one in found)


def test_the_step_that_changed_the_language_is_suspected() -> None:
    writer = hearing(step("writer", ANSWER["en"]), ("user", ANSWER["de"]))
    trajectory = run(HIVES, step("beekeeper", ANSWER["de"]), writer, task=TASK["de"], output=ANSWER["en"])
    blame = suspect(trajectory, 0.4752)
    assert blame is not None
    assert (blame.agent, blame.step, blame.mode) == ("writer", 2, "off_task")
    assert blame.confidence == pytest.approx(0.65, abs=0.01)


def test_naming_the_language_of_the_task_asks_for_no_other() -> None:
    assert len(reasons(asked(f"{TASK['de']} Antworte auf Deutsch.", ANSWER["en"]))) == 1


BOX = json.dumps({"text": ANSWER["en"], "note": "It is as it was before, and all of it is well."})


PERSON = step("guest", "And please tell me what I have to do with them.", StepKind.HUMAN)
NOTES = tool("beekeeper", f"Notes: {ANSWER['en']}")
DUTCH = "In de tuin staan 14 bijenkasten, en 13 daarvan hebben een koningin."
SWAHILI = "Katika bustani kuna mizinga 14 ya nyuki, na yote isipokuwa mmoja ina malkia wake."
CODE = (
    "for hive in hives:\n    if hive.queen is not None and hive.is_there():\n"
    "        print('There is a queen in this one, and it is well.')"
)
FENCE = "```python\n# This is where all of the hives are.\n```"


def told_in_english(*before: Step) -> Trajectory:
    return run(*before, step("beekeeper", ANSWER["en"]), task=TASK["de"], output=ANSWER["en"])


RIGHT = {
    "named": asked(f"{TASK['de']} Bitte auf Englisch.", ANSWER["en"]),
    "instructions in Dutch": asked(TASK["en"], DUTCH, "Antwoord gasten altijd in het Nederlands."),
    "named in English": asked(f"{TASK['en']} Reply in German.", ANSWER["de"]),
    "translation": asked(f"请翻译:{TASK['zh']}", ANSWER["en"]),
    "translation from German": asked(f"Übersetze: {TASK['de']}", TASK["en"]),
    "translation from French": asked(f"Traduis cette phrase : {TASK['fr']}", TASK["ru"]),
    "instructions": asked(TASK["en"], ANSWER["de"], "Answer every guest in German."),
    "any": asked(TASK["en"], ANSWER["fr"], "Answer in the guest's own language."),
    "a desk": asked(TASK["en"], ANSWER["de"], "Du bist im Garten und hilfst den Gästen."),
    "a person went on in it": told_in_english(PERSON, HIVES),
    "a few words": asked(TASK["de"], "14 hives, 13 queens."),
    "one word": asked(TASK["zh"], "OK"),
    "names": asked(TASK["zh"], "Ann Lee, Bo Hart, Cy Dunn, Di Frost, Ed Gale."),
    "a short task": asked("Hives?", ANSWER["de"]),
    "code": asked(TASK["de"], CODE),
    "fence": asked(TASK["de"], FENCE),
    "texts of data": asked(TASK["de"], BOX),
    "a quotation": asked(TASK["de"], f"“{ANSWER['en']}”"),
    "a sentence of a result": told_in_english(NOTES),
    "two languages": asked(TASK["de"], f"{ANSWER['de']} {ANSWER['en']}"),
    "a task in two languages": asked(f"{TASK['de']} {TASK['en']}", ANSWER["en"]),
    "a language without a table": asked(TASK["en"], SWAHILI),
}


@pytest.mark.parametrize("trajectory", RIGHT.values(), ids=RIGHT)
def test_other_languages_may_be_right(trajectory: Trajectory) -> None:
    assert reasons(trajectory) == []


LETTER = """Liebe Imkerei, wir haben in diesem Jahr keinen Honig von euch bekommen, und das ist sehr schade.

Könnt ihr uns bitte sagen, wann wieder einer kommt und ob wir noch auf der Liste sind?"""
REPLY = "Estimada clienta, el jardín ya está abierto y las colmenas no se pueden ver hasta el martes."
NOTICE = "Tell the customer that the garden is open and that the hives cannot be seen before Tuesday."


def noticed(*steps: Any, task: str = NOTICE, answer: str = REPLY) -> list[str]:
    return reasons(run(*steps, step("beekeeper", answer), task=task, output=answer))


@pytest.mark.parametrize(
    "task",
    [
        f"Summarize this:\n\n{LETTER}",
        f"Summarize this: {LETTER}",
        f"TL;DR?\n\n{LETTER}",
        f"What do these people want from us, and what should I do about it?\n\n{LETTER}",
        f"{LETTER}\n\nWhat do these people want from us, and what should I do about it?",
        f"\u8bf7\u603b\u7ed3\uff1a{LETTER}",
    ],
)
def test_what_a_task_hands_over_does_not_tell_its_language(task: str) -> None:
    assert noticed(HIVES, task=task, answer=ANSWER["en"]) == []


def test_a_text_between_the_parts_of_a_task_is_not_the_tasks() -> None:
    before, after = (
        "Bitte lies, was die Gäste von uns wollen.",
        "Was sollen wir den Gästen nun sagen, und wann?",
    )
    told = "answered in English although the task is in German"
    assert noticed(HIVES, task=f"{before}\n\n{ANSWER['fr']}\n\n{after}", answer=ANSWER["en"]) == [told]


@pytest.mark.parametrize(
    "steps",
    [
        (tool("beekeeper", '{"name": "Ana", "locale": "es-ES"}'),),
        (tool("beekeeper", "name: Ana\nlang: es"),),
        (tool("beekeeper", '{"name": "Ana", "preferred": "es_MX"}'),),
        (tool("beekeeper", f"Her last letter: {ANSWER['es']}"),),
        (tool("beekeeper", json.dumps({"id": 7, "letter": TASK["es"]})),),
        (hearing(step("desk", "Well."), ("user", f"A guest writes. {TASK['es']}")),),
    ],
)
def test_a_customer_whose_language_the_run_has_shown_is_answered_in_it(steps: tuple[Any, ...]) -> None:
    assert noticed(*steps) == []


def test_a_record_in_the_tasks_own_language_excuses_no_other() -> None:
    told = "answered in Spanish although the task is in English"
    assert noticed(tool("beekeeper", '{"name": "Ann", "locale": "en-GB"}')) == [told]
    assert noticed(tool("beekeeper", f"Her last letter, of 10:30, is this. {ANSWER['en']}")) == [told]


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("Write to our guest in Seville that the garden is open and the hives are not there.", "es"),
        ("Can you draft a note for the guests from Lyon about the hives in the garden?", "fr"),
        ("Please reply to Herr Lang that there are 14 hives in the garden and all of them are well.", "de"),
        (
            "Schreib bitte an Mrs Hart, dass 14 Bienenstöcke im Garten sind und eine Königin nicht da ist.",
            "en",
        ),
        (
            "Rédige un message pour le client de Porto : il y a 14 ruches dans le jardin et tout va bien.",
            "en",
        ),
        ("Напиши гостям, что в саду стоит 14 ульев и что у них всё хорошо.", "en"),  # noqa: RUF001 - Russian
    ],
)
def test_a_text_for_somebody_else_may_be_in_their_language(task: str, answer: str) -> None:
    assert noticed(HIVES, task=task, answer=ANSWER[answer]) == []


def test_every_language_has_words_for_writing() -> None:
    for code, table in tables().items():
        assert code == ANY_LANGUAGE or len((*table.writing_verbs, *table.writing_words)) >= 5, code
        assert code == ANY_LANGUAGE or (table.writing_verbs and table.rewording_words), code


def test_every_language_is_named_in_its_own_and_in_others() -> None:
    known = [table for code, table in tables().items() if code != ANY_LANGUAGE]
    for table in known:
        assert len(table.named) >= 10, table.code
        assert table.language_words, table.code
        assert speaks_of(table.code, f"Please answer in {table.name}.")
    assert not speaks_of("en", "Antworte auf Deutsch.")
