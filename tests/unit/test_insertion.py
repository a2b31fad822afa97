from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from collector_processor.journal.segments import insert_batches, insert_statement

LIGHT, HEAVY = 10, 20_000


@given(st.lists(st.sampled_from([LIGHT, HEAVY]), max_size=200))
def test_rows_stay_in_order_and_few_different_statements_insert_them(sizes: list[int]) -> None:
    rows = [(seq, Random(seq).randbytes(size)) for seq, size in enumerate(sizes)]
    groups = list(insert_batches(rows))
    assert [row for group in groups for row in group] == rows
    assert {len(group) for group in groups} <= {1, 2, 4, 8, 16, 32}
    assert all(len(group) == 1 for group in groups if any(len(body) == HEAVY for _, body in group))


def test_rows_without_a_body_go_many_together() -> None:
    assert [len(group) for group in insert_batches([(1, 0)] * 70)] == [32, 32, 4, 2]


def test_a_statement_is_the_same_for_as_many_rows() -> None:
    assert insert_statement("body", 3, 2) == "INSERT INTO body VALUES (?, ?, ?), (?, ?, ?)"
    assert insert_statement("body", 3, 2) is insert_statement("body", 3, 2)
