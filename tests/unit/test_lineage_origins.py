"""Values whose origin or unit stands where few look: other languages, exchanged counts, ends of sentences."""

from __future__ import annotations

from analyzer.lineage.clue import ClueKind
from analyzer.lineage.dates import dates_in
from semconv.model import Step
from tests.lineage import found, mistake
from tests.runs import calling, failed_tool, step, tool


def looked_up(name: str, arguments: str, result: str) -> tuple[Step, Step]:
    return calling("reader", (name, arguments)), tool("reader", result, name, input=arguments)


def test_a_limit_at_the_end_of_an_english_sentence_is_no_date() -> None:
    assert dates_in("The swell must stay below 1.2. We sail at noon.") == ()
    assert dates_in("Das Schiff fährt am 1.2. und kommt am 3.2. wieder.") != ()
    failed = failed_tool("reader", "busy", target="swell", input="{}")
    said = step("reader", "The swell is 0.8 m.")
    host = step("host", "You may sail: the swell of 0.8 m is below the limit of 1.2.")
    clue = mistake(
        "May we sail? The swell must stay below 1.2.", calling("reader", ("swell", "{}")), failed, said, host
    )
    assert (clue.step, clue.kind) == (2, ClueKind.INVENTED)


def test_a_count_with_exchanged_digits_is_no_product_of_a_count_with_itself() -> None:
    task, rows = "How many logs has stack 8?", looked_up("stack", '{"no": 8}', "Stack 8: 46 logs")
    heard = step("reader", "Stack 8 has 46 logs.")
    asked = f"{task}\n{heard.output}"
    clue = mistake(task, *rows, heard, step("host", "Stack 8 has 64 logs.", input=asked))
    assert clue.step == 3
    assert "64 logs" in clue.reason
    assert found(task, *rows, heard, step("host", "Stack 8 has 46 logs.", input=asked)) is None
