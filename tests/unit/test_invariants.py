"""What a workflow always does, and what a run breaks of it: bookings of rooms, good ones and their twins."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Sequence
from typing import Any

import pytest

from analyzer.analyses.analyst import RunAnalyst
from analyzer.history.broken import TENTATIVE, Violation, accusations, violations
from analyzer.history.facts import MAX_BYTES, Facts, collect, key_of, leaves_of, pack, unpack
from analyzer.history.invariants import Kind
from analyzer.history.known_runs import KnownRuns, known_run
from analyzer.history.mining import UNREMARKABLE, Mined, mine
from analyzer.history.spectrum import Said
from analyzer.methods.attribution import Attributor
from semconv.model import Blame, Status, Step, Trajectory
from tests.runs import calling, run, step, tool


def call(name: str, arguments: dict[str, Any], result: Any, agent: str = "clerk") -> list[Step]:
    """Return the model call that requests a tool, and the tool's step."""
    asked = json.dumps(arguments)
    return [calling(agent, (name, asked)), tool(agent, json.dumps(result), name, input=asked)]


def booking(
    number: int, *, without: str = "", book: dict[str, Any] | None = None, **changes: Any
) -> Trajectory:
    """Return a run that books a room: search, quote, book, confirm; the model's steps are the even ones."""
    draw = random.Random(number)
    room, guest = f"R-{number:04}", f"guest{number}@inn.example"
    total, is_full = 80 + number + draw.choice((0.5, 0.25)), number % 4 == 3
    listed = {"rooms": [{"id": room}], "list_price": total + 20}
    status = "waiting" if is_full else "booked"
    steps = {
        "search": call("search", {"city": f"Town {number}"}, listed),
        "weather": call("weather", {"place": str(number)}, {"sunny": True}) if draw.random() < 0.3 else [],
        "quote": call("quote", {"room": room}, {"total": f"{total:.2f} EUR", "is_free": not is_full}),
        "book": call("wait_list", {"room": room}, {"place": number % 7 + 1})
        if is_full
        else call("book", {"room": room, "price": total, "guest": guest} | (book or {}), {"done": True}),
        "confirm": call("confirm", {"to": guest, "status": status}, {"sent": True}),
    } | changes
    kept = [each for name, part in steps.items() if name != without for each in part]
    answer = f"Room {room} in Town {number}: {'wait' if is_full else f'booked for {total}'}."
    task = f"Book a room in Town {number} for {guest}"
    return run(*kept, step("clerk", answer), task=task, output=answer, run_id=f"b{number}")


def known(n: int) -> list[Facts]:
    return [unpack(pack(collect(booking(number)))) for number in range(n)]


def broken(trajectory: Trajectory, mined: Mined) -> Sequence[Violation]:
    return violations(collect(trajectory), mined)


def names(trajectory: Trajectory, found: Violation) -> str | None:
    return trajectory.steps[found.step].target


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *(("20.0", "20"), ("20 EUR", "20.00"), ("ORD-7", "ord 7")),
        *(("€ 1,080.50", "1080.5"), ("1.080,50 EUR", "1080.5")),
    ],
)
def test_values_are_equal_by_meaning(one: str, other: str) -> None:
    assert key_of(one) == key_of(other)


@pytest.mark.parametrize(
    ("one", "other"), [("20", "21"), ("ORD-7", "7"), ("007", "7"), ("-3", "3"), ("1.5", "15")]
)
def test_values_of_different_meaning_differ(one: str, other: str) -> None:
    assert key_of(one) != key_of(other)


def test_elements_of_a_list_are_compared_without_their_index() -> None:
    assert [leaf.path for leaf in leaves_of('{"a": [{"b": 1}, {"b": 2}]}')] == ["a[] count", "a[].b", "a[].b"]


def test_an_argument_that_always_equals_a_result_is_named_with_both_values() -> None:
    wrong = booking(100, book={"price": 200.5})
    found = broken(wrong, mine(known(40)))
    assert names(wrong, found[0]) == "book"
    always = "in 30 of 30 passing runs `price` of book equalled `total` of quote"
    assert found[0].text.startswith(f"{always}; here 200.5, not")
    for right in (f"{total_of(100)}", f"{total_of(100):.2f} EUR", total_of(100)):
        assert not broken(booking(100, book={"price": right}), mine(known(40)))


def total_of(number: int) -> float:
    quoted = next(one.output for one in booking(number).steps if one.target == "quote")
    return float(json.loads(quoted)["total"].removesuffix(" EUR"))


def test_for_a_skipped_check_the_call_without_it_is_blamed() -> None:
    wrong = booking(100, without="quote")
    found = broken(wrong, mine(known(40)))
    assert names(wrong, found[0]) == "book"
    texts = [one.text for one in found if one.step == found[0].step]
    assert any("here without it" in text or "here not" in text for text in texts)


def test_for_an_early_end_the_last_call_is_blamed() -> None:
    wrong = booking(100, without="confirm", book={})
    assert names(wrong, broken(wrong, mine(known(40)))[0]) == "book"


def test_of_a_repeated_call_the_second_is_blamed() -> None:
    twice = call("confirm", {"to": "guest100@inn.example", "status": "booked"}, {"sent": True})
    wrong = booking(100, again=twice)
    found = broken(wrong, mine(known(40)))[0]
    assert found.step == wrong.steps[-2].index
    assert "confirm was called once; here 2" in found.text


def test_conditions_on_results_are_found() -> None:
    mined = mine(known(60))
    full = call("quote", {"room": "R-0100"}, {"total": f"{total_of(100)} EUR", "is_free": False})
    wrong = booking(100, quote=full)
    texts = [one.text for one in broken(wrong, mined)]
    assert any("where `is_free` of quote was false, book was not called" in text for text in texts)
    waiting = call("confirm", {"to": "guest100@inn.example", "status": "waiting"}, {"sent": True})
    status = booking(100, confirm=waiting)
    found = broken(status, mined)[0]
    assert names(status, found) == "confirm"
    assert "`status` of confirm was `booked`; here waiting" in found.text


def test_unrelated_calls_may_come_anywhere() -> None:
    mined = mine(known(40))
    aside = call("weather", {"place": "100"}, {"sunny": False})
    first = booking(100)
    moved = run(*aside, *first.steps, task=first.task, output=first.output)
    assert not accusations(collect(moved), mined)


def test_below_ten_runs_nothing_is_known() -> None:
    assert not broken(booking(100, without="quote"), mine(known(9)))


@pytest.mark.parametrize("n", [10, 20, 40])
def test_few_runs_let_only_structure_accuse(n: int) -> None:
    mined = mine(known(n))
    structured = {Kind.STANDS, Kind.NEEDS, Kind.AMONG}
    assert structured <= mined.accusing if n == 40 else structured == mined.accusing
    assert {Kind.WORDS, Kind.LENGTH, Kind.RANGE, Kind.KNOWN}.isdisjoint(mined.accusing)
    assert mined.limit <= 0.02


def test_with_many_runs_the_bound_is_measured_instead_of_assumed() -> None:
    mined = mine(known(200))
    assert len(mined.accusing) > 8
    assert mined.limit <= 0.02
    accused = [number for number in range(300, 500) if accusations(collect(booking(number)), mined)]
    assert len(accused) <= 4


def test_one_known_exception_keeps_its_kind_of_invariant_from_accusing() -> None:
    exception = collect(booking(100, book={"price": 999.75}))
    wrong = collect(booking(101, book={"price": 888.25}))
    assert accusations(wrong, mine(known(40)))
    mined = mine([*known(39), exception])
    assert not [one for one in accusations(wrong, mined) if one.held.invariant.kind == "stands"]


def test_a_value_from_a_source_that_no_known_run_used_is_not_accused() -> None:
    discount = call("discount", {"code": "AB12"}, {"price": 71.25})
    taken = booking(100, weather=discount, book={"price": 71.25})
    mined = mine(known(40))
    assert not [one for one in accusations(collect(taken), mined) if one.held.invariant.kind == "stands"]
    assert accusations(collect(booking(100, book={"price": 71.25})), mined)


def test_tentative_invariants_explain_a_failure_that_breaks_nothing_else_and_accuse_nobody() -> None:
    told = call("confirm", {"to": "guest103@inn.example", "status": "booked"}, {"sent": True})
    wrong, mined = booking(103, confirm=told), mine(known(12))
    found = broken(wrong, mined)
    assert names(wrong, found[0]) == "confirm"
    assert found[0].text.startswith("in 3 of 3 passing runs where ")
    assert {one.evidence for one in found} == {TENTATIVE}
    assert not accusations(collect(wrong), mined)
    paid = booking(
        103, confirm=told, quote=call("quote", {"room": "R-0001"}, {"total": "1", "is_free": False})
    )
    stronger = broken(paid, mined)
    assert names(paid, stronger[0]) == "quote"
    assert TENTATIVE not in {one.evidence for one in stronger}
    assert not mine(known(80)).tentative


def test_runs_without_any_statement_explain_and_do_not_accuse() -> None:
    mined = mine(known(40), UNREMARKABLE)
    wrong = collect(booking(100, book={"price": 200.5}))
    assert "unremarkable runs" in violations(wrong, mined)[0].text
    assert not accusations(wrong, mined)


def test_a_packed_run_is_small_and_holds_no_text() -> None:
    secret = "Marker Halvorsen, born in Oslo, lives behind the old harbour with three cats and a boat"
    noted = call("note", {"text": secret, "mail": "halvorsen@inn.example"}, {"text": secret})
    odd = booking(100, weather=noted)
    packed = pack(collect(odd))
    assert "alvorsen" not in repr(unpack(packed))
    assert len(packed) <= MAX_BYTES
    calls = (call(f"tool{number}", {"a": f"x{number}" * 9}, {"b": number}) for number in range(900))
    long = run(*itertools.chain(*calls))
    facts = unpack(pack(collect(long)))
    assert facts.is_cut
    assert len(pack(collect(long))) <= MAX_BYTES


@pytest.mark.parametrize(
    "text", ["[" * 5000, '{"a":' * 500 + "1" + "}" * 500, "9" * 20_000, "\ud800", "1.,'" * 5000]
)
def test_hostile_arguments_and_results_are_read(text: str) -> None:
    odd = booking(100, weather=[tool("clerk", text, "odd", input=text)])
    assert unpack(pack(collect(odd))).calls


def test_a_run_of_many_long_calls_takes_no_longer_than_its_text() -> None:
    rows = {f"k{number}": f"some words of a text that is long enough {number}" for number in range(48)}
    steps = [one for _ in range(300) for one in call("put", rows, rows)]
    started = time.process_time()
    assert collect(run(*steps)).is_cut
    assert time.process_time() - started < 5


def past(n: int, said: Said = Said.PASSED) -> KnownRuns:
    return KnownRuns.of(known_run(booking(number), said) for number in range(n))


async def test_history_explains_a_failed_run_by_what_it_broke() -> None:
    wrong = booking(100, book={"price": 200.5})
    found = (await Attributor(method="history", past=past(40))(wrong)).verdict
    assert isinstance(found, Blame)
    assert wrong.steps[found.step].target == "book"
    assert "30 of 30 passing runs" in found.reason
    assert [one.quote for one in found.evidence] == ["200.5"]


async def test_a_run_that_reported_nothing_is_suspected_by_what_it_broke() -> None:
    analyst = RunAnalyst(attributor=Attributor(past=past(40)))
    found = (await analyst.analyse(booking(100, book={"price": 200.5}))).attribution
    assert (found.status, found.method) == (Status.SUSPECTED, "history")
    good = (await analyst.analyse(booking(100))).attribution
    assert good.status is Status.NO_FAILURE
    silent = RunAnalyst(attributor=Attributor(past=past(40)), least_suspicion=None)
    assert (await silent.analyse(booking(100, book={"price": 200.5}))).attribution.status is Status.NO_FAILURE
