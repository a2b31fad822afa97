"""Values of records and of deeds that an agent gives with a slip, and those that it may know or work out."""

from __future__ import annotations

import pytest

from analyzer.lineage.clue import ClueKind
from analyzer.signals.suspicion.unsourced import unsourced
from analyzer.texts.run_view import read
from tests.lineage import called, found, mistake
from tests.runs import run, step

_ORDER = '{"id": "RX-9021", "ready": "2026-01-16 18:00", "doctor": "Dr Sowa", "shelf": "K-31"}'
_RETURNED = called("order_prescription", '{"card": "C-7741"}', _ORDER)


@pytest.mark.parametrize(
    ("answer", "stated"),
    [
        ("Order RX-9021 is ready on 14 January at 18:00.", "14 January"),
        ("Order RX-9021 is ready on 16 January at 19:00.", "19:00"),
        ("Order RX-9021 is ready on 16 January at 18:40.", "18:40"),
        ("For card C-7741 it is ready at 19:00.", "19:00"),
        ("Order RX-9721 is ready on 16 January at 18:00.", "RX-9721"),
        ("RX-9021 lies on shelf K-37.", "K-37"),
    ],
)
def test_a_value_nearly_that_of_its_record_is_a_slip(answer: str, stated: str) -> None:
    clue = mistake("When is my prescription ready?", *_RETURNED, step("host", answer))
    assert clue.kind is ClueKind.CHANGED
    assert f" {stated}, where order_prescription" in clue.reason
    assert clue.step == 2


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param("RX-9021 is ready on 16 January at 6 pm.", id="as returned"),
        pytest.param("RX-9021 is ready on 16 January at 18:00; come by 17 January.", id="the next day"),
        pytest.param("RX-9021 is ready on 16 January; come within 5 days, by 21 January.", id="days later"),
        pytest.param("RX-9021 is ready at 18:00, so come at 19:00.", id="beside the right one"),
        pytest.param("RX-9021 takes 40 minutes more: come at 18:40.", id="minutes later"),
        pytest.param("RX-9021 is ready at 19:00 CET.", id="another zone"),
        pytest.param("It should be ready on 14 January at 19:00.", id="no record named"),
        pytest.param("The next order will be RX-9022.", id="the next id"),
        pytest.param("RX-9021 is on shelf K-31, not on K-37.", id="beside the right id"),
    ],
)
def test_what_may_be_worked_out_or_known_is_no_slip(answer: str) -> None:
    assert found("When is my prescription ready?", *_RETURNED, step("host", answer)) is None


@pytest.mark.parametrize(
    ("returned", "said"), [("18:52:11Z", "18:52"), ("17:58", "18:00"), ("18 h", "18:00")]
)
def test_a_time_with_seconds_a_rounded_one_and_a_full_hour_are_given(returned: str, said: str) -> None:
    rows = called(
        "restart", '{"host": "redis-1"}', f'{{"host": "redis-1", "since": "{returned}", "seen": "18:41"}}'
    )
    assert found("Restart redis-1.", *rows, step("host", f"redis-1 runs since {said}.")) is None


@pytest.mark.parametrize(
    ("arguments", "answer", "is_slip"),
    [
        ('{"code": "CT-07", "metres": 27}', "25 metres are ordered.", True),
        ('{"code": "CT-07", "metres": 52}', "Ordered: 25 metres.", True),
        ('{"code": "CT-07", "metres": 25}', "25 metres are ordered.", False),
        ('{"code": "CT-07", "metres": 27}', "25 metres are wanted; I ordered 27 for the hem.", False),
        ('{"code": "CT-07", "metres": 27}', "The fabric is ordered.", False),
        ('{"code": "CT-07", "metres": 75}', "Three times 25 metres are ordered.", False),
        ('{"note": "roll of 27 m"}', "25 metres are ordered.", False),
    ],
)
def test_a_deed_takes_another_number_than_the_answer_reports(
    arguments: str, answer: str, *, is_slip: bool
) -> None:
    rows = called("order_fabric", arguments, '{"order": "FB-07"}')
    clue = found("Order 25 metres of cotton twill for each of the 3 capes.", *rows, step("buyer", answer))
    assert (clue is not None) is is_slip
    assert clue is None or (clue.kind, clue.step) == (ClueKind.CHANGED, 0)


@pytest.mark.parametrize(
    ("answer", "ids"),
    [
        ("I booked room 4 for you (BK-41).", ["BK-41"]),
        ("会議室を予約しました。予約番号はBK-4107です。", ["BK-4107"]),
        ("I booked room 4 for you (RM-4).", []),
        ("I sent the plan, encrypted with AES-256.", []),
        ("Room 4 has the projector XR-150.", []),
    ],
)
def test_the_number_of_a_deed_that_nothing_gives(answer: str, ids: list[str]) -> None:
    steps = called("rooms", '{"day": "2026-05-04"}', '{"free": ["RM-4"]}')
    clues = unsourced(read(run(*steps, step("host", answer), task="Book a room.", output=answer)))
    assert [clue.reason.split()[3].rstrip(",") for clue in clues] == ids
