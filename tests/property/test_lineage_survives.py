"""The readers of a run's lineage survive whatever tools return and agents say."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st

from analyzer.lineage.known import Known
from analyzer.lineage.readers import READERS
from analyzer.lineage.slips import wrong_figures
from analyzer.texts.run_view import read
from tests.runs import calling, run, step, tool

ODD = (
    "29.02.2023", "29 February", "2月29日(月)", "SALI, 29.02.2024", "Monday, 18 November 2025", "0000-00-00",
    "31/04/2025", "99:99", "1e400", "NaN", "²", "①", "٣٤٥", "9" * 40, "1.234.567,89", "5 億", "100 trillion",
    "rows 1-8 of 13", "pending approval", "draft", "0.0 g", "1.5 mg/l", "all", "has been sent", "\ud800", "İ",
)  # fmt: skip
KEYS = ("id", "name", "date", "total", "limit", "has_more", "status", "unit", "value", "count", "", "²")
WORDS = ("der Termin ist am", "the lesson is on", "bu toplantı için tarih", "встреча будет", "会議は")  # noqa: RUF001

texts = st.sampled_from(ODD) | st.text(max_size=12)
numbers = st.integers() | st.just(10**400) | st.floats(allow_nan=True, allow_infinity=True)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=12,
)
sentences = st.lists(st.sampled_from(WORDS) | texts | numbers.map(str), max_size=8).map(" ".join)


HUGE = f'[{{"a": {10**400}, "n": "abc"}}, {{"a": 2, "n": "abd"}}, {{"a": 1, "n": "abe"}}]'
LARGE = f"""[
    {{"name": "Site A", "fee": 1, "n": {1.5e308}}}, {{"name": "Site B", "fee": {1.5e308}, "n": {1.5e308}}},
    {{"name": "Site C", "fee": {1.5e308}, "n": 3}}, {{"name": "Site D", "fee": 7, "n": 1}}
]"""
PARTIAL = '[{"n": 118, "name": "Ada Lund"}, {"n": 119, "name": "Bo Berg"}, {"name": "Cy Dahl"}]'


@example(task="List all items", arguments=1, result=HUGE, said="abc and abd are all of the rows.")
@example(task="Mean fee?", arguments=1, result=LARGE, said="The 4 sites have a mean fee of 300.")
@example(task="", arguments=None, result=f"price {','.join(['1', *['111'] * 110])} EUR", said="It is 4 EUR.")
@example(task="", arguments=None, result="", said="2月29日(月)")
@example(task="Close Cy Dahl", arguments=118, result=PARTIAL, said="Done.")
@given(task=sentences, arguments=values, result=values | sentences, said=sentences)
def test_no_reader_fails_on_any_run(task: str, arguments: object, result: object, said: str) -> None:
    asked = json.dumps({"id": arguments}, ensure_ascii=False)
    told = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
    listed = (calling("clerk", ("find", "{}")), tool("clerk", told, "find", input="{}"))
    booked = (calling("clerk", ("book", asked)), tool("clerk", told, "book", input=asked))
    steps = (*listed, *booked, step("clerk", said))
    reading = read(run(*steps, task=task, output=said))
    for reader in READERS:
        list(reader(Known(reading)))
    list(wrong_figures(reading))
