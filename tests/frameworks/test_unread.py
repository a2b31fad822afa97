"""With all dialects switched off, inference still reads most of every recording.

In-distribution: the rules were written for these recordings. The bound is the minimum that is promised.
"""

from __future__ import annotations

import pytest

from benchmarks.dialects.unread import OFF, WHAT, cases, measured, read
from semconv.dialects import USUAL

LEAST = 0.8
CASES = tuple(case for case in cases() if case.group != "captures")


@pytest.mark.parametrize("renames", [False, True], ids=["as recorded", "in no known namespace"])
def test_most_steps_agents_and_their_order_are_right(*, renames: bool) -> None:
    shares = [measured(case, read(case, OFF, renames=renames)) for case in CASES]
    means = {what: sum(getattr(share, what) for share in shares) / len(shares) for what in WHAT[:3]}
    assert {what: mean for what, mean in means.items() if mean < LEAST} == {}


def test_the_measure_tells_right_from_wrong() -> None:
    case = CASES[0]
    assert measured(case, read(case, USUAL)).is_exact
    assert measured(case, []).agents == 0
