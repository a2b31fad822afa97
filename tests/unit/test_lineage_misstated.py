"""Ids, dates and times of a record that an answer gives with a slip, and those that it may work out."""

from __future__ import annotations

import pytest

from analyzer.lineage.clue import ClueKind
from tests.lineage import called, found, mistake
from tests.runs import step

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
