"""Texts made to be slow to read take time in proportion to their length."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import islice, product

import pytest

from analyzer.lineage.after_nothing import is_empty
from analyzer.lineage.arguments import contradicting_arguments
from analyzer.lineage.clue import Clue
from analyzer.lineage.dropped import dropped_entries
from analyzer.lineage.failed_tests import failed_tests
from analyzer.lineage.figures import figures
from analyzer.lineage.known import Known
from analyzer.lineage.misstated import misstated_values
from analyzer.lineage.readers import MOST_CLUES, READERS
from analyzer.lineage.rows import lines_of
from analyzer.lineage.slips import wrong_figures
from analyzer.signals.loops import repeats_of
from analyzer.signals.suspicion import clues
from analyzer.signals.suspicion.admitted import leaves_open
from analyzer.signals.suspicion.ending import Ending
from analyzer.signals.suspicion.other_language import other_language
from analyzer.texts.run_view import read
from collector_processor.trajectory.acts import without_base64
from semconv.dialects.generic.speakers import bare_name
from semconv.dialects.reading.messages import message_of
from semconv.dialects.reading.python_repr import message_fields
from semconv.model import Step, StepKind, Trajectory
from tests.runs import failed_tool, run, step, tool

_LENGTH = 20_000
_MOST_S = 1.0
"""Seconds of CPU, far above what linear time takes and far below what quadratic time took (3 to 14)."""


def _results(number: int) -> object:
    parts = [{"type": "tool_call", "name": "x", "arguments": "{}", "id": "1"}]
    parts += [{"type": "tool_call_response", "id": "1", "response": "r"} for _ in range(number)]
    return message_of({"role": "assistant", "parts": parts})


def _answered(answer: str, result: str = "Rack B draws 3 kW.") -> object:
    found = run(tool("meter", result), step("analyst", answer), task="What does rack B draw?", output=answer)
    return list(clues(read(found)))


def _said_in(answer: str) -> object:
    task = "Say in one line what rack B of the third room draws."
    return list(other_language(read(run(step("analyst", answer), task=task, output=answer))))


def _passed_on(listed: str) -> object:
    answer = "All are Host1x."
    found = run(step("finder", listed), step("writer", answer), task="List every host.", output=answer)
    return list(dropped_entries(Known(read(found))))


def _tested(name: str) -> object:
    call = tool("coder", f"1 failed\n{name}", "bash", input='{"command": "pytest"}')
    found = run(call, step("coder", "All tests pass."), task="Mend it.", output="All tests pass.")
    return list(failed_tests(Known(read(found))))


def _called(path: str) -> object:
    call = tool("clerk", "ok", "delete_file", input=json.dumps({"path": path}))
    found = run(call, step("clerk", "Done."), task="Delete case-1234.", output="Done.")
    return list(contradicting_arguments(Known(read(found))))


@pytest.fixture(scope="module", autouse=True)
def read_tables() -> None:
    """Read the tables of wordings before anything is timed."""
    _answered("It draws 4 kW.")


def _ids(first: str) -> str:
    return " ".join(f"{first}{''.join(letters)}10" for letters in product("abcdefghijklm", repeat=3))


@pytest.mark.parametrize(
    "look",
    [
        pytest.param(lambda: figures("page" + "\n" * _LENGTH + "1000 EUR"), id="lines"),
        pytest.param(lambda: figures("a." * (_LENGTH // 2) + " 7000"), id="mail"),
        pytest.param(lambda: figures("a" * _LENGTH + " 7000"), id="path"),
        pytest.param(lambda: without_base64("a1B" * 20 * _LENGTH + "!"), id="base64 in one line"),
        pytest.param(lambda: without_base64(("a" * 59 + "\n") * _LENGTH), id="base64 in short lines"),
        pytest.param(lambda: without_base64(("a" * 60 + "\n!") * _LENGTH), id="base64 that never ends"),
        pytest.param(lambda: bare_name("agent x" + " step" * (_LENGTH // 5) + "!"), id="affixes"),
        pytest.param(lambda: message_fields("content='x' name='a' " + "tool_calls=[" * 5_000), id="calls"),
        pytest.param(lambda: _results(_LENGTH), id="results"),
        pytest.param(lambda: _answered("A" * 200), id="capitals"),
        pytest.param(lambda: _answered("A-" * (_LENGTH // 2)), id="joined capitals"),
        pytest.param(lambda: _answered(_ids("y"), _ids("z")), id="ids"),
        pytest.param(lambda: is_empty("a" + "\tb" * 30 + "\n1", "{}"), id="wide headings"),
        pytest.param(lambda: _passed_on("Hosts: " + ", ".join(["(a1)"] * (_LENGTH // 6))), id="brackets"),
        pytest.param(lambda: _tested("a_" * (_LENGTH // 2 - 200)), id="name of a test"),
        pytest.param(lambda: _called("file/" + "1-" * (_LENGTH // 2)), id="path of digits"),
        pytest.param(lambda: leaves_open("{" + ':"x y"' * _LENGTH, ["x"], []), id="object that never ends"),
        pytest.param(lambda: _answered(f"It draws 3 kW. {'x' * _LENGTH}"), id="a word without an end"),
        pytest.param(lambda: _said_in("y" * _LENGTH), id="an answer of one word"),
        pytest.param(lambda: lines_of("Which? " + "word " * (2 * _LENGTH)), id="a line after a question"),
        pytest.param(lambda: list(misstated_values(Known(read(_due(600))))), id="times of records"),
    ],
)
def test_a_text_made_to_be_slow_is_read_in_time(look: Callable[[], object]) -> None:
    begun = time.process_time()
    look()
    assert time.process_time() - begun < _MOST_S


@pytest.mark.parametrize("number", ["1,234." + "0" * 400, "1'234." + "1" * 400, "1" + "'111" * 90 + ".5"])
def test_a_number_beyond_what_a_float_holds_is_no_figure(number: str) -> None:
    assert not figures(f"It is {number} kg.")
    answer = f"12 of 48 ({number} %) weigh {number} kg."
    found = run(tool("meter", "48 and 1,243 kg"), step("analyst", answer), task="How much?", output=answer)
    _read_lineage(found)
    assert not list(wrong_figures(read(found)))


def _failing(number: int) -> Trajectory:
    """A run in which every call fails in another way, and as many calls return something."""
    pairs = (
        (
            failed_tool("a", f"no shelf for the book {at} here", "shelf"),
            tool("a", f"floor {at}. " * 40, "plan"),
        )
        for at in range(number)
    )
    return run(*(each for pair in pairs for each in pair), task="Where is it?", output="Upstairs.")


def _copying(number: int) -> Trajectory:
    """A long answer in another language than the task, and as many results as it has sentences."""
    answer = " ".join(f"Das Buch Nummer {at} steht oben im Regal." for at in range(number // 4))
    results = (tool("a", f"shelf {at} has many books and some maps " * 20, "plan") for at in range(number))
    return run(*results, step("a", answer), task="Where do all of these books stand now?", output=answer)


def _repeating(number: int) -> Trajectory:
    """A run in which people say as much as the agent repeats."""
    people = (
        step("user", f"please put the book {at} on its shelf, and then dust it", kind=StepKind.HUMAN)
        for at in range(number)
    )
    words = [step("a", f"I have put the volume {at} where it belongs") for at in range(number)]
    return run(*people, *words, *words, task="Tidy up.", output="Done.")


def _read_lineage(made: Trajectory) -> list[list[Clue]]:
    known = Known(read(made))
    return [list(islice(reader(known), MOST_CLUES)) for reader in READERS]


def _listing(number: int) -> Trajectory:
    """Lists in every result, an id of each list in a call, and an answer with all their numbers."""
    rows = (
        {"id": f"B-{at}", "name": f"Book {at}", "price": 1000 + at, "unit": "EUR"} for at in range(number)
    )
    lists = [json.dumps({"books": [row, row | {"id": f"C-{row['id']}", "price": 7}]}) for row in rows]
    asked = (json.dumps({"id": f"B-{at}", "price": 5}) for at in range(number))
    calls = (tool("a", text, "shelf", input=one) for text, one in zip(lists, asked, strict=True))
    answer = " ".join(f"Book {at} costs {1001 + at} EUR." for at in range(number))
    return run(*calls, step("a", answer), task="What does each book cost, at most 900 EUR?", output=answer)


def _polling(number: int) -> Trajectory:
    """The same sixty entries listed again and again, all of them in each call, all their words asked for."""
    words = " ".join(f"w{at}q{column}" for at in range(60) for column in range(9))
    steps = [each for poll in range(number // 50) for each in _poll(poll)]
    return run(*steps, step("a", "All done."), task=f"Close these: {words} " * 5, output="All done.")


def _poll(poll: int) -> tuple[Step, Step, Step]:
    rows = [
        {"id": f"T-{at}", "seen": poll, **{f"f{column}": f"w{at}q{column}" for column in range(9)}}
        for at in range(60)
    ]
    asked = json.dumps({f"a{at}": f"T-{at}" for at in range(60)})
    listed = tool("a", json.dumps(rows), "tickets", input="{}")
    return listed, step(f"b{poll % 3}", f"Close w{poll}q1."), tool("a", "ok", "close", input=asked)


def _dated(number: int) -> Trajectory:
    """Many dates in an answer, other ones in each of many results, and a look-up without a hit."""
    days = [f"{1 + at % 28} {('May', 'June', 'July')[at % 3]} 2027" for at in range(40)]
    answer = " ".join(f"Monday, {day}." for day in days)
    before = " ".join(days).replace("2027", "2026")
    results = (tool("a", f"{at}: {before}", "plan") for at in range(number // 20))
    return run(*results, tool("a", "[]", "log"), step("a", answer), task="When is it?", output=answer)


def _weighing(number: int) -> Trajectory:
    """One agent that gives new weights again and again."""
    weights = (range(at * 50 + 1000, at * 50 + 1050) for at in range(number // 25))
    said = (step("a", " ".join(f"{weight} kg" for weight in some)) for some in weights)
    end = "It is 1001 kg."
    return run(tool("a", "7 kg", "scale"), *said, step("a", end), task="?", output=end)


def _keyed(number: int) -> Trajectory:
    """Ids that nobody gave, under a key of long lists."""
    rows = json.dumps([{"no": f"X-{at}"} for at in range(200)])
    lists = (tool("a", rows.replace("X", f"X{at}"), "list") for at in range(number // 25))
    calls = (tool("a", "ok", "get", input=json.dumps({"no": f"Y-{at}"})) for at in range(50))
    return run(*lists, *calls, step("a", "Done."), task="?", output="Done.")


def _drafted(number: int) -> Trajectory:
    """Drafts of many tools, of which the answer says that they are sent."""
    draft = '{"status": "draft", "no": 12}'
    drafts = (tool("a", draft, f"put_{at}", input='{"x": 1}') for at in range(number))
    return run(*drafts, step("a", "I have sent it."), task="Send it.", output="I have sent it.")


def _replaced(number: int) -> Trajectory:
    """Lists of sixty entries, twenty of which are marked as replaced, and calls that open each of them."""
    rows = [
        {"id": f"R-{at}", "state": "superseded" if at < 20 else "in force", "fee": 1000 + at}
        for at in range(number)
    ]
    lists = [tool("a", json.dumps(rows[at : at + 60]), "search") for at in range(0, number, 60)]
    opened = [tool("a", f"fee {at}", "open", input=f'{{"id": "R-{at}"}}') for at in range(number // 60)]
    return run(*lists, *opened, step("a", "It is 1012."), task="What is the fee?", output="It is 1012.")


def _entries(number: int) -> list[dict[str, object]]:
    return [
        {"no": at, "size": at % 5, "owner": f"Name {at % 9}", "due": "2026-01-16 18:00"}
        for at in range(number)
    ]


def _listed(number: int) -> list[Step]:
    """Lists of sixty entries that have few names and one time."""
    entries = _entries(number)
    return [tool("a", json.dumps(entries[at : at + 60]), "search") for at in range(0, number, 60)]


def _due(number: int) -> Trajectory:
    """Lists with few names, and an answer that gives another time for each of their entries."""
    days = (
        f"Name {at % 9} is due at {at % 17}:{at % 60:02} on {at % 28 + 1} January." for at in range(number)
    )
    answer = " ".join(days)
    return run(*_listed(number), step("a", answer), task="When are they due?", output=answer)


def _copied(number: int) -> Trajectory:
    """Lists of entries that have most values in common, and an answer in JSON with another value in each."""
    answer = json.dumps([row | {"size": 47} for row in _entries(number)])
    return run(*_listed(number), step("a", answer), task="Return them as JSON.", output=answer)


def _sending(number: int) -> Trajectory:
    """A run in which every tool sends something, by its own name, and none has.

    Both sizes have more tools than there are names in the caches: else the smaller one would be too fast.
    """
    calls = (
        tool("clerk", '{"sent": false}', f"tool_{place}_send", input="{}") for place in range(2 * number)
    )
    return run(*calls, task="Send it all.", output="I have sent all of it.")


def _refunding(number: int) -> Trajectory:
    """A run in which the same refund is made again and again, and used afterwards."""
    made = (tool("clerk", f'{{"id": "rf_{place}"}}', "refund", input='{"o": 1}') for place in range(number))
    used = (tool("clerk", "ok", "get", input=f'{{"id": "rf_{place}"}}') for place in range(number))
    answer = " ".join(f"rf_{place}" for place in range(1, number))
    return run(*made, *used, task="Refund it.", output=f"I have refunded it: {answer}.")


def _commanding(number: int) -> Trajectory:
    """A run of shells whose commands fail, print and test in turn."""
    commands = ("git push && " * 40, "cat x | " * 40, "pytest; " * 40)
    calls = (
        tool(
            "coder",
            f"1 failed\nerror: {at}",
            "bash",
            input=json.dumps({"command": commands[at % 3] + str(at)}),
        )
        for at in range(number)
    )
    return run(*calls, task="Fix issue T-1234.", output="Pushed, all tests pass.")


def _swapping(number: int) -> Trajectory:
    """A run whose answer gives many ids from nowhere, beside many that a tool returned."""
    texts = (
        " ".join(f"AB{10_000 + place}" for place in range(at, at + 10)) for at in range(0, 10 * number, 10)
    )
    answer = " ".join(f"AB{90_000 + place}" for place in range(40))
    return run(*(tool("clerk", text) for text in texts), task="Which?", output=f"They are {answer}.")


@pytest.mark.parametrize(
    ("read_run", "made"),
    [
        pytest.param(_read_lineage, _polling, id="long lists, polled"),
        pytest.param(_read_lineage, _listing, id="lists, calls and numbers"),
        pytest.param(_read_lineage, _dated, id="dates"),
        pytest.param(_read_lineage, _weighing, id="weights of one agent"),
        pytest.param(_read_lineage, _keyed, id="ids that nobody gave"),
        pytest.param(_read_lineage, _drafted, id="drafts"),
        pytest.param(_read_lineage, _replaced, id="replaced versions"),
        pytest.param(_read_lineage, _copied, id="records in an answer"),
        pytest.param(_read_lineage, _sending, id="tools that send"),
        pytest.param(_read_lineage, _refunding, id="refunds made again"),
        pytest.param(_read_lineage, _commanding, id="commands"),
        pytest.param(_read_lineage, _swapping, id="ids from nowhere"),
        pytest.param(lambda made: Ending(made).returned, _failing, id="failures and results"),
        pytest.param(lambda made: list(other_language(read(made))), _copying, id="sentences and results"),
        pytest.param(lambda made: repeats_of(read(made)), _repeating, id="repeated and given words"),
    ],
)
def test_a_run_of_many_texts_is_read_in_time(
    read_run: Callable[[Trajectory], object], made: Callable[[int], Trajectory]
) -> None:
    """Four times the texts take about four times as long, not sixteen times."""

    def once(trajectory: Trajectory) -> float:
        begun = time.process_time()
        read_run(trajectory)
        return time.process_time() - begun

    once(made(50))  # tables and patterns are read
    most = 8 * max(min(once(made(750)) for _ in range(3)), 0.02)
    # A collection of garbage may fall into one of them.
    assert any(once(made(3_000)) < most for _ in range(3))
