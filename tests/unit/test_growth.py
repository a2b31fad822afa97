"""Ordering takes the same number of operations per span for any number of spans."""

from __future__ import annotations

from functools import partial

import pytest

from collector_processor.rebuild.repair import repair
from collector_processor.trajectory import order
from semconv.model import Span, Trace
from tests.big_traces import SHAPES, flat_history, history
from tests.operations import operations


def cost(spans: list[Span]) -> int:
    return operations(lambda: order(repair(Trace(spans=tuple(spans)))))


SMALLER = {"history": partial(history, heard=20), "flat_history": partial(flat_history, heard=20)}
"""Few spans, because counting operations is slow."""


@pytest.mark.parametrize("shape", SHAPES)
def test_twice_the_spans_are_twice_the_work(shape: str) -> None:
    make = SMALLER.get(shape, SHAPES[shape])
    once, twice = cost(make(100)), cost(make(200))
    assert once > 100 * 100  # the counter counts
    assert twice < 2.2 * once
