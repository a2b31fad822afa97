from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.signals.wording import GIVE_UP, HEDGE, MADE_UP, Wording


@pytest.mark.parametrize(
    "wording", [pytest.param(each, id=each.signal) for each in (MADE_UP, HEDGE, GIVE_UP)]
)
@given(data=st.data())
def test_whatever_a_pattern_finds_has_one_of_its_stems(wording: Wording, data: st.DataObject) -> None:
    text = data.draw(st.from_regex(wording.pattern))
    assert wording.find(text) is not None


@pytest.mark.parametrize("text", ["s\u0130mulated", "fabr\u0131cated", "a\u017f\u017fuming"])
def test_letters_that_are_others_in_another_case_hide_nothing(text: str) -> None:
    assert MADE_UP.find(text) is not None
