from __future__ import annotations

import pytest

from collector_processor.journal.segment_accounts import RowIndex
from collector_processor.otlp import NO_TENANT, TraceKey
from tests.otlp_requests import trace_name

KEYS = [TraceKey(NO_TENANT, trace_name(number)) for number in range(1, 4)]


@pytest.mark.parametrize("count", range(1, len(KEYS) + 1))
def test_a_row_is_there_until_its_last_trace_is_struck_out(count: int) -> None:
    index = RowIndex()
    for key in (*KEYS[:count], *KEYS[:count]):
        index.add(7, key)
    for left in range(count, 0, -1):
        assert set(index.at(7)) == set(KEYS[:left])
        index.discard(7, KEYS[left - 1])
    assert not index
    assert not index.at(7)


def test_a_trace_that_is_not_in_a_row_is_struck_out_of_nothing() -> None:
    index = RowIndex()
    index.add(7, KEYS[0])
    index.discard(7, KEYS[1])
    index.discard(8, KEYS[0])
    assert list(index.at(7)) == KEYS[:1]


def test_rows_stay_in_the_order_in_which_they_came() -> None:
    index = RowIndex()
    for seq in (3, 1, 2):
        index.add(seq, KEYS[0])
    index.add(3, KEYS[1])
    assert list(index) == [3, 1, 2]
