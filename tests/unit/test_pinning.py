"""What a pinned test asserts of a right run: the rules of its workflow's passing runs, without a store."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from analyzer.api.pinning import NO_RULES, NotPinned, Rules, blame_in, read_rules, rules_of, rules_text
from analyzer.experiment.pinned_text import Beside, is_as_written, sealed, short_name
from analyzer.history.facts import Facts, collect, pack, unpack
from analyzer.inquiry.visible import visible
from collector_processor.core.runs import Run
from collector_processor.rebuild.redaction import Redactor, keep
from semconv.dialects import USUAL
from semconv.model import Trace, Trajectory
from semconv.record import replace
from tests.factories import span
from tests.runs import run, step, tool
from tests.unit.test_invariants import booking, known, total_of
from tests.workflows import RULE, reserving

SECRET = "sk-verysecret1234567890abcdef"


def facts_of(made: Callable[[int], Trajectory], n: int = 12) -> list[Facts]:
    return [unpack(pack(collect(made(number)))) for number in range(n)]


def through_a_file(rules: Rules) -> Rules:
    return read_rules(rules_text(rules, keep))


def blamed(trajectory: Trajectory, rules: Rules) -> str | None:
    return blame_in([Run(trace=Trace(spans=(span(1),)), trajectory=trajectory, reader=USUAL)], rules=rules)


def refunding(number: int, *, is_checked: bool = True) -> Trajectory:
    """Return a run that looks an order up, checks it against the policy, and refunds it."""
    order, amount = f"O-{number}", str(20 + number)
    checked = [tool("clerk", '{"allowed": true}', "check_policy", input=json.dumps({"order": order}))]
    return run(
        tool("clerk", json.dumps({"amount": amount}), "get_order", input=json.dumps({"order": order})),
        *(checked if is_checked else []),
        tool("clerk", '{"done": true}', "refund", input=json.dumps({"order": order, "amount": amount})),
        step("clerk", f"Refunded {amount}."),
        task=f"Refund the order {order}",
    )


def termine(nummer: int, *, ist_geprueft: bool = True) -> Trajectory:
    """Return a run in German: a surgery looks an appointment up, checks the insurance, and confirms."""
    termin = f"{8 + nummer % 9}:30 am {1 + nummer % 28}.3."
    geprueft = [tool("Kasse", '{"versichert": "ja"}', "versicherung_prüfen", input=f'{{"fall": {nummer}}}')]
    return run(
        tool("Empfang", json.dumps({"termin": termin}), "termin_suchen", input=f'{{"fall": {nummer}}}'),
        *(geprueft if ist_geprueft else []),
        tool("Empfang", "{}", "termin_bestätigen", input=json.dumps({"termin": termin})),
        step("Empfang", "Ihr Termin steht."),
        task=f"Fall {nummer}: Termin bestätigen",
    )


def skipping(nummer: int) -> Trajectory:
    return termine(nummer, ist_geprueft=False)


@pytest.mark.parametrize(
    ("made", "wrong", "told"),
    [
        (refunding, refunding(99, is_checked=False), "clerk, step 1: in 60 of 60 passing runs"),
        (termine, skipping(99), "Empfang, step 1: in 60 of 60 passing runs"),
        (
            booking,
            booking(98, book={"price": 20 + total_of(98)}),
            "`price` of book equalled `total` of quote",
        ),
    ],
    ids=["a skipped check", "in German", "another price"],
)
def test_a_run_that_breaks_a_rule_is_blamed_and_its_right_twin_is_not(
    made: Callable[[int], Trajectory], wrong: Trajectory, told: str
) -> None:
    rules = through_a_file(rules_of(facts_of(made, 60)))
    assert told in (blamed(wrong, rules) or "")
    assert blamed(wrong, NO_RULES) == ""
    assert blamed(made(98), rules) == ""


def test_new_right_bookings_break_no_rule() -> None:
    rules = through_a_file(rules_of(known(80)))
    assert len(rules.held) > 3
    assert [rules.broken_by(booking(number)) for number in range(1_000, 1_060)] == [()] * 60
    assert rules.broken_by(booking(100, without="quote"))


def test_a_rule_that_a_person_deletes_is_not_asserted() -> None:
    head, *lines = rules_text(rules_of(facts_of(refunding, 60)), keep).splitlines()
    left = [line for line in lines if "check_policy" not in line]
    assert 0 < len(left) < len(lines)
    assert blamed(refunding(99, is_checked=False), read_rules("\n".join([head, *left]))) == ""


def test_below_ten_passing_runs_nothing_is_asserted() -> None:
    assert rules_text(rules_of(facts_of(reserving, 9)), keep) == ""


def test_a_run_of_other_agents_is_not_judged() -> None:
    rules = rules_of(facts_of(reserving))
    other = run(step("poet", "A rose."), step("critic", "Nice."))
    assert blamed(other, rules) is None
    assert blamed(other, NO_RULES) == ""


def test_the_longest_of_a_programs_runs_is_checked_against_the_rules() -> None:
    rules = rules_of(facts_of(reserving))
    aside = run(step("clerk", "Hello."), run_id="aside")
    whole = [
        Run(trace=Trace(spans=(span(1),)), trajectory=one, reader=USUAL) for one in (aside, reserving(9))
    ]
    assert blame_in(whole, rules=rules) == ""


def test_the_file_is_small_plain_and_without_secrets() -> None:
    def paying(number: int) -> Trajectory:
        asked = json.dumps({"seat": f"S-{number}", "mode": SECRET[:40]})
        return run(
            tool("clerk", json.dumps({"seat": f"S-{number}"}), "find"),
            tool("clerk", "{}", "reserve", input=asked),
            step("clerk", "ok"),
        )

    text = rules_text(rules_of(facts_of(paying, 60)), Redactor().redact)
    assert "verysecret" not in text
    assert RULE in text
    assert text.isascii()
    assert len(text) < 6_000


def test_names_that_differ_in_every_run_make_no_large_file() -> None:
    def various(number: int, *, is_checked: bool = True) -> Trajectory:
        done = refunding(number, is_checked=is_checked)
        listed = json.dumps({f"key-{number}-{each}": number * each for each in range(40)})
        extra = tool(f"helper-{number}", listed, "list_offers", input="{}")
        return replace(done, steps=run(extra, *done.steps).steps)

    text = rules_text(rules_of(facts_of(various, 300)), keep)
    assert len(text) < 60_000
    assert "helper" not in text
    rules = read_rules(text)
    assert "check_policy" in (blamed(various(999, is_checked=False), rules) or "")
    assert blamed(various(998), rules) == ""


def test_a_hostile_name_is_one_plain_line_in_the_file_and_in_the_blame() -> None:
    hostile = "check\u202e\n{evil}"

    def evil(number: int, *, is_checked: bool = True) -> Trajectory:
        done = refunding(number, is_checked=is_checked)
        steps = (replace(one, target=hostile) if one.target == "check_policy" else one for one in done.steps)
        return replace(done, steps=tuple(steps))

    text = rules_text(rules_of(facts_of(evil, 60)), keep)
    assert text.isascii()
    assert all(json.loads(line) for line in text.splitlines())
    said = blamed(evil(99, is_checked=False), read_rules(text)) or ""
    assert "{evil}" in said
    assert said == visible(said)
    assert "\n" not in said


HEAD = '{"runs": 12, "agents": ["clerk"], "familiar": []}'


@pytest.mark.parametrize(
    "text",
    [
        "", "[", "7", "[]", "null", '"runs"', "{}", "[" * 100_000,
        '{"runs": 1, "agents": "clerk", "familiar": []}',
        f"{HEAD}\n7", f"{HEAD}\n[]", f"{HEAD}\n{{}}", f'{HEAD}\n{{"kind": "eval", "support": 9, "lone": 0}}',
        f'{HEAD}\n{{"kind": "times", "tool": 7, "support": 9, "lone": 0}}',
        f'{HEAD}\n{{"kind": "stands", "values": "task", "support": 9, "lone": 0}}',
        f'{HEAD}\n{{"kind": "times", "low": 1{"0" * 400}, "support": 9, "lone": 0}}',
        f'{HEAD}\n{{"kind": "times", "support": "many", "lone": 0}}',
        f'{HEAD}\n{{"kind": "times", "tool": "find", "high": -5, "support": 9, "lone": 0}}',
        f'{HEAD}\n{{"kind": "happens", "tool": "find", "where": "seat", "support": 9, "lone": 0}}',
        f'{HEAD}\n{{"kind": "{"k" * 9_999}", "support": 9, "lone": 0}}',
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused_by_its_line(text: str) -> None:
    with pytest.raises(NotPinned, match=r"expected (a line|lines) as `blamespan pin` writes") as refused:
        read_rules(text)
    assert len(str(refused.value)) < 300


def test_a_file_may_be_saved_by_other_editors_and_its_damage_is_named_by_its_own_line() -> None:
    rules = rules_of(facts_of(refunding, 60))
    text = rules_text(rules, keep)
    assert read_rules("\ufeff" + text.replace("\n", "\r\n\r\n")) == read_rules(text)
    with pytest.raises(NotPinned, match="line 5: "):
        read_rules(f"{HEAD}\n\n\n\n7")


def test_an_agent_named_like_a_secret_is_not_written() -> None:
    rules = rules_of(facts_of(refunding, 60))
    named = replace(rules, agents=frozenset({"clerk", f"agent {SECRET}"}))
    assert "verysecret" not in rules_text(named, Redactor().redact)


def test_odd_numbers_in_a_file_break_nothing_else() -> None:
    odd = ['{"kind": "times", "tool": "find", "low": NaN, "high": 1e999, "support": -5, "lone": -7}']
    odd += ['{"kind": "happens", "tool": "x", "support": 12, "lone": 99999}']
    assert read_rules("\n".join([HEAD, *odd])).broken_by(reserving(1)) == ()


def test_a_test_is_as_written_until_it_or_a_file_of_it_is_edited() -> None:
    files = Beside(tape=b"{}\n", rules=b'{"a": 1}\n')
    others = [*files.files("x").values()]
    text = sealed("def test_x() -> None:\n    pass\n", others)
    assert is_as_written(text, others)
    assert is_as_written(text, [one.replace(b"\n", b"\r\n") for one in others]), "as Git may check it out"
    assert not is_as_written(text.replace("pass", "..."), others)
    assert not is_as_written(f"{text}\n", others)
    assert not is_as_written(text.partition("\n#")[0], others)
    assert not is_as_written("", others)
    assert not is_as_written(f"{text}{text}", others)
    for place in range(3):
        changed = [b"[]\n" if number == place else one for number, one in enumerate(others)]
        assert not is_as_written(text, changed)
    assert not is_as_written(text, [b"{}\n", b'{"a": 1}\n', b""]), "another file"


def test_ids_that_begin_alike_get_names_of_their_own() -> None:
    assert short_name("0af7651916cd43dd8448eb211c80319c") == "0af7651916cd"
    alike = {short_name(f"conversation-2026-11-30-{number}") for number in range(100)}
    assert len(alike) == 100
    for odd in ("../../etc/passwd", "", "ü" * 50, "\udc80", '"""', "a\nb"):
        assert short_name(odd).isidentifier() or short_name(odd)[0].isdigit()
        assert short_name(odd).isascii()
