"""Fields of structured answers that contradict the record that they copy, and those that have a reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from analyzer.lineage.clue import Clue, weigh
from analyzer.lineage.known import Known
from analyzer.lineage.records import contradicting_fields
from analyzer.texts.run_view import read
from semconv.model import Step
from tests.runs import calling, run, step, tool

EVEN = 0.5
PET = {"pet": "Rex", "weight_kg": 31.4, "neutered": True, "last_visit": "2026-02-11", "triage": "high"}
WAGES = [
    {"worker": "Ana Ruiz", "gross": 4210, "boss": "Kim Ode"},
    {"worker": "Bo Lind", "gross": 3890, "boss": "Pia Orr"},
]
ROOM = {"hotel": "Azul", "city": "Porto", "price": 84.5, "stars": 3}
ZULU = "2026-02-11T22:10Z"
BASKET = {"basket": "B-1", "net": 64.0}
SHOW = "Return it as JSON."


def called(name: str, result: Any) -> tuple[Step, Step]:
    return calling("clerk", (name, "{}")), tool("clerk", json.dumps(result), name, input="{}")


def found(task: str, answer: Any, *results: Any, name: str = "chart") -> Clue | None:
    calls = [one for result in results for one in called(name, result)]
    said = answer if isinstance(answer, str) else json.dumps(answer)
    known = Known(read(run(*calls, step("clerk", said), task=task, output=said)))
    return next(contradicting_fields(known), None)


@pytest.mark.parametrize(
    ("given", "answer", "says"),
    [
        pytest.param(PET, PET | {"weight_kg": 13.9}, "gave weight_kg as 13.9", id="a number"),
        pytest.param(PET, PET | {"triage": "low"}, "gave triage as low", id="an enumeration"),
        pytest.param(PET, PET | {"neutered": False}, "gave neutered as false", id="a flag"),
        pytest.param(PET, PET | {"last_visit": "2025-02-11"}, "gave last_visit as 2025-02-11", id="a date"),
        pytest.param(PET, PET | {"last_visit": "TODO"}, "left last_visit at TODO", id="a placeholder"),
        pytest.param(PET, PET | {"weight_kg": None}, "left weight_kg at null", id="nothing"),
        pytest.param(PET, PET | {"weight_kg": 0}, "left weight_kg at 0", id="zero"),
        pytest.param(
            {"data": {"no": "R-1", "guest": {"name": "Iker Sanz"}, "price": {"total_amount": 84.5}}},
            {"reservation": {"no": "R-1", "guestName": "Iker Sanz", "totalAmount": 48.9}},
            "gave totalAmount as 48.9",
            id="in objects, written otherwise",
        ),
        pytest.param(
            WAGES, [WAGES[0] | {"gross": 3890}, WAGES[1]], "gave gross as 3890", id="a number of another"
        ),
        pytest.param(
            WAGES, [WAGES[0] | {"boss": "Pia Orr"}, WAGES[1]], "gave boss as Pia Orr", id="a name of another"
        ),
        pytest.param(BASKET, BASKET | {"vat": 12.8, "total": 78.6}, "gave total as 78.6", id="a total"),
        pytest.param([1], {"count": 3, "names": ["a", "b"]}, "gave count as 3", id="a count"),
        pytest.param([1], {"numOpen": 1, "open": ["a", "b"], "shut": ["c"]}, "gave numOpen as 1", id="lists"),
    ],
)  # fmt: skip
def test_a_field_that_contradicts_its_record_is_the_mistake(given: Any, answer: Any, says: str) -> None:
    for said in (answer, f"```json\n{json.dumps(answer, indent=1)}\n```"):
        clue = found(SHOW, said, given)
        assert clue is not None
        assert clue.reason.startswith(says)
        assert clue.step == 2
        assert weigh([clue]).probability > EVEN


@pytest.mark.parametrize(
    ("task", "given", "answer"),
    [
        pytest.param(SHOW, [PET], PET | {"last_visit": "11 Feb 2026", "weight_kg": 31}, id="rounded"),
        pytest.param(SHOW, [PET], PET | {"weight_kg": 69.2, "weight_in": "lb"}, id="with a field of its own"),
        pytest.param(SHOW, [PET], PET | {"weight_kg": 31400}, id="in another unit"),
        pytest.param(SHOW, [PET, {"scale": 33.2}], PET | {"weight_kg": 33.2}, id="from another result"),
        pytest.param("Update the weight to 33.", [PET], PET | {"weight_kg": 33}, id="as the task says"),
        pytest.param("Triage it, as JSON.", [PET], PET | {"triage": "low"}, id="judged by the agent"),
        pytest.param("Przelicz cenę na dolary, JSON.", [ROOM], ROOM | {"price": 91.37}, id="Polish"),
        pytest.param("Fiyatı dolara çevir, JSON olarak.", [ROOM], ROOM | {"price": 91.37}, id="Turkish"),  # noqa: RUF001 - as typed
        pytest.param("把价格换算成美元，返回JSON。", [ROOM], ROOM | {"price": 91.37}, id="Chinese"),  # noqa: RUF001 - as typed
        pytest.param("Перерахуй ціну в долари, JSON.", [ROOM], ROOM | {"price": 91.37}, id="Ukrainian"),
        pytest.param("Is it urgent?", [PET], PET | {"triage": "low"}, id="asked for a judgement"),
        pytest.param(SHOW, [PET], PET | {"triage": "low", "reason": "It only limps."}, id="with a reason"),
        pytest.param(SHOW, [PET | {"fax": None}], PET | {"fax": "N/A"}, id="nothing was given"),
        pytest.param(SHOW, [PET | {"name": "rain jacket"}], PET | {"name": "Veste de pluie"}, id="French"),
        pytest.param(SHOW, [PET | {"at": ZULU}], PET | {"at": "2026-02-12T00:10+02:00"}, id="a zone"),
        pytest.param(SHOW, [WAGES], [WAGES[0] | {"gross": 4631}, WAGES[1]], id="with a usual rate"),
        pytest.param(SHOW, [WAGES], [{"worker": "Ana Ruiz", "gross": 50520}], id="for a year"),
        pytest.param(SHOW, [BASKET], BASKET | {"vat": 12.8, "owed": 9, "paid": 5, "total": 62.8}, id="parts"),
        pytest.param(SHOW, [BASKET], BASKET | {"vat": 12.8, "tip": 2, "total": 14.8}, id="a total of taxes"),
        pytest.param(SHOW, [{"total": 3}], {"count": 3, "names": ["a", "b"]}, id="a count of more"),
        pytest.param(SHOW, [[1]], {"count": 30, "names": ["a", "b"]}, id="a part of a long list"),
        pytest.param(SHOW, [PET], "Rex weighs 13.9 kg.", id="prose"),
    ],
)  # fmt: skip
def test_a_field_with_a_reason_for_its_value_is_none(task: str, given: list[Any], answer: Any) -> None:
    assert found(task, answer, *given) is None


def test_a_record_has_another_value_after_a_deed() -> None:
    steps = (*called("chart", PET), *called("cancel_visit", {"ok": True}))
    said = json.dumps(PET | {"last_visit": None})
    for calls, is_wrong in ((steps, False), (steps[:2], True)):
        known = Known(read(run(*calls, step("clerk", said), task=SHOW, output=said)))
        assert bool(list(contradicting_fields(known))) is is_wrong
