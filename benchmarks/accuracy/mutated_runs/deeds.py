"""Faults of deeds, and of what agents pass on: other arguments, a refusal, no call, another figure. Pure.

What could still be right is left out by these rules:

- a deed is a call whose tool's name says that it changes something;
- an argument counts only if the task or an earlier result gives it; what the call returns repeats it;
- a deed that is refused or never made counts only if a value of its arguments or of its result stands in the
  answer, and no other call has the same tool;
- a figure that is passed on wrongly was returned to its agent, and no later agent was given it by a call.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date, timedelta
from typing import Any, Final, TypeAlias

from analyzer.lineage.deeds import acts_of
from analyzer.texts.tool_names import deed_of, looks_up
from analyzer.texts.vocabulary import denies
from benchmarks.accuracy.mutated_runs.seen import (
    Run,
    Seen,
    is_figure,
    key_of,
    numbers_in,
    text_of,
    with_digits_exchanged,
    with_other_digit,
)
from semconv.record import record

_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_CODE: Final = re.compile(r"(?=.*[A-Za-z])(?=.*\d\d)[\w-]{4,20}")
_RECIPIENT: Final = re.compile(r"[^\s@]+@[^\s@]+|[^\W\d_a-z][^\W\d_]+(?: [^\W\d_a-z][^\W\d_]+){0,3}")
_STATUS: Final = re.compile(
    r"(?:status|state|estado|estatus|stato|statut|stav|durum|статус|状态|状態)$", re.IGNORECASE
)
_REFUSALS: Final[Mapping[str, tuple[str, str]]] = {
    "en": ("rejected", "not permitted"),
    "de": ("abgelehnt", "nicht erlaubt"),
    "fr": ("refusé", "non autorisé"),
    "es": ("rechazado", "no permitido"),
    "it": ("rifiutato", "non consentito"),
    "pt": ("recusado", "não permitido"),
    "nl": ("geweigerd", "niet toegestaan"),
    "pl": ("odrzucono", "niedozwolone"),
    "ja": ("拒否", "許可されていません"),
    "zh": ("已拒绝", "不允许"),
    "ru": ("отклонено", "не разрешено"),
    "sv": ("avvisad", "inte tillåtet"),
    "tr": ("reddedildi", "izin verilmiyor"),
    "ko": ("거부됨", "허용되지 않음"),
}


@record
class Mutant:
    """A run with one fault, and where it is."""

    run: Run
    agent: str
    step: int
    """Its place in ``steps``."""


DeedFault: TypeAlias = Callable[[Seen, random.Random], Mutant | None]


def other_amount(seen: Seen, coin: random.Random) -> Mutant | None:
    """Return the run with one digit of an amount of a deed changed."""
    return _with_argument(seen, coin, _other_amounts)


def other_day(seen: Seen, coin: random.Random) -> Mutant | None:
    """Return the run with a date of a deed some days off."""
    return _with_argument(seen, coin, _other_days)


def other_recipient(seen: Seen, coin: random.Random) -> Mutant | None:
    """Return the run with a name or an address of a deed that is another one of the run."""
    return _with_argument(seen, coin, _other_recipients)


def other_target(seen: Seen, coin: random.Random) -> Mutant | None:
    """Return the run with one digit of an id of a deed changed."""
    return _with_argument(seen, coin, _other_targets)


def refused_deed(seen: Seen, coin: random.Random) -> Mutant | None:
    """Return the run with a refusal as a deed's result, which the answer does not report."""
    place = _claimed(seen, coin)
    if place is None:
        return None
    step = seen.steps[place]
    old, new = text_of(step["result"]), _refusal(step["result"], seen.run["language"])
    steps: list[dict[str, Any]] = [_heard(one, old, text_of(new)) for one in seen.steps]
    steps[place] = {**steps[place], "result": new}
    return _blamed_for_claim(seen, steps, place)


def unmade_deed(seen: Seen, coin: random.Random) -> Mutant | None:
    """Return the run without the call of a deed, which the answer still reports."""
    place = _claimed(seen, coin)
    if place is None:
        return None
    step = seen.steps[place]
    call = step.get("call_id") or None
    steps = [_without(one, call, text_of(step["result"])) for one in seen.steps]
    asked = [at for at in range(place) if _asks(seen.steps[at], call)]
    gone = {place, *(at for at in asked if not steps[at].get("said") and not steps[at].get("calls"))}
    kept = [one for at, one in enumerate(steps) if at not in gone]
    return _blamed_for_claim(seen, kept, place + 1 - len(gone)) if asked else None


def misheard_figure(seen: Seen, coin: random.Random) -> Mutant | None:
    """Return the run with a figure that an agent passes on wrongly, and that all later ones repeat."""
    places = [*_relayed(seen)]
    if not places:
        return None
    place, literal = coin.choice(places)
    new = next(
        (one for one in _shuffled(_other_digits(literal), coin) if key_of(one) not in seen.every), None
    )
    if new is None:
        return None
    steps = [_said(one, literal, new) if at >= place else one for at, one in enumerate(seen.steps)]
    output = replaced(seen.answer, literal, new)
    return Mutant(
        run={**seen.run, "steps": steps, "output": output}, agent=seen.steps[place]["agent"], step=place
    )


def replaced(text: str, old: str, new: str) -> str:
    """Return a text with all places of a word changed; what only contains it is another word."""
    return re.sub(rf"(?<![\w.,])(?=\S){re.escape(old)}(?!\d|[.,]\d)", lambda _: new, text)


def _relayed(seen: Seen) -> Iterator[tuple[int, str]]:
    for place, step in enumerate(seen.steps[: max(seen.answered, 0)]):
        later = seen.steps[place + 1 :]
        if (
            step["kind"] != "llm"
            or not step.get("said")
            or step["agent"] == seen.steps[seen.answered]["agent"]
        ):
            continue
        given = {token.key for one in later for text in _given(one) for token in numbers_in(text)}
        before = {
            token.key
            for one in seen.steps[:place]
            if one["kind"] == "llm"
            for token in numbers_in(one["said"])
        }
        answer = {token.literal for token in numbers_in(seen.answer)}
        for token in numbers_in(step["said"]):
            is_new = token.key in seen.returned and token.key not in given | before
            if is_figure(token) and is_new and token.literal in answer:
                yield place, token.literal


def _given(step: Mapping[str, Any]) -> Iterator[str]:
    """Yield what calls returned, and what they were asked, as a step shows it."""
    yield text_of(step.get("result", ""))
    yield text_of(step.get("arguments", {}))
    yield from (text_of(call["arguments"]) for call in step.get("calls", []))
    yield from (text_of(one["text"]) for one in step.get("heard", []) if one["role"] == "tool")


def _said(step: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    heard = [
        one if one["role"] == "tool" else {**one, "text": replaced(one.get("text", ""), old, new)}
        for one in step.get("heard", [])
    ]
    said = {"said": replaced(step["said"], old, new)} if step.get("said") else {}
    return {**step, **({"heard": heard} if heard else {}), **said}


def _deeds(seen: Seen) -> Iterator[int]:
    for place, step in enumerate(seen.steps):
        if step["kind"] == "tool" and not step.get("error") and step.get("call_id"):
            tool = step["tool"]
            if (deed_of(tool) or acts_of(tool)) and not looks_up(tool):
                yield place


def _with_argument(
    seen: Seen, coin: random.Random, others: Callable[[Seen, int, Any], Iterator[Any]]
) -> Mutant | None:
    """Return the run with one argument of a deed changed."""
    found = [
        (place, key, value, new)
        for place in _deeds(seen)
        for key, value in seen.steps[place]["arguments"].items()
        for new in others(seen, place, value)
    ]
    if not found:
        return None
    place, key, value, new = coin.choice(found)
    call = seen.steps[place]["call_id"]
    asked = [at for at in range(place) if _asks(seen.steps[at], call)]
    if len(asked) != 1:
        return None
    result = text_of(seen.steps[place].get("result", ""))
    echo = replaced(result, str(value), str(new))
    steps = [_heard(_called(one, call, key, new), result, echo) for one in seen.steps]
    step = steps[place]
    is_text = isinstance(step.get("result"), str)
    steps[place] = {
        **step,
        "arguments": {**step["arguments"], key: new},
        "result": echo if is_text else json.loads(echo),
    }
    return Mutant(run={**seen.run, "steps": steps}, agent=steps[asked[0]]["agent"], step=asked[0])


def _called(step: Mapping[str, Any], call: str, key: str, new: Any) -> dict[str, Any]:
    def changed(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            {**one, "arguments": {**one["arguments"], key: new}} if one.get("id") == call else one
            for one in calls
        ]

    heard = [
        {**one, "calls": changed(one["calls"])} if one.get("calls") else one for one in step.get("heard", [])
    ]
    return {
        **step,
        **({"heard": heard} if heard else {}),
        **({"calls": changed(step["calls"])} if step.get("calls") else {}),
    }


def _asks(step: Mapping[str, Any], call: str | None) -> bool:
    return step["kind"] == "llm" and any(one.get("id") == call for one in step.get("calls", []))


def _before(seen: Seen, place: int) -> str:
    """Return what was given before a call: the task, results, and what people said."""
    steps = seen.steps[:place]
    results = [text_of(step.get("result", "")) for step in steps if step["kind"] == "tool"]
    people = [
        text_of(one["text"])
        for step in steps
        for one in step.get("heard", [])
        if one["role"] == "user" and not one.get("name")
    ]
    return "\n".join([seen.task, *people, *results])


def _other_amounts(seen: Seen, place: int, value: Any) -> Iterator[Any]:
    if isinstance(value, bool) or not isinstance(value, int | float) or key_of(str(value)) == "0":
        return
    given = {token.key for token in numbers_in(_before(seen, place))}
    if key_of(str(value)) in given and sum(map(str.isdigit, str(value))) > 1:
        for new in _other_digits(str(value)):
            if key_of(new) not in seen.every:
                yield type(value)(new)


def _other_days(seen: Seen, place: int, value: Any) -> Iterator[Any]:
    if isinstance(value, str) and _DATE.fullmatch(value) and value in _before(seen, place):
        for days in (1, 2, 7, -1, -3, 10):
            new = (date.fromisoformat(value) + timedelta(days=days)).isoformat()
            if new not in seen.whole:
                yield new


def _other_recipients(seen: Seen, place: int, value: Any) -> Iterator[Any]:
    if not isinstance(value, str) or not _RECIPIENT.fullmatch(value) or value not in _before(seen, place):
        return
    for rows in seen.tables:
        keys = {key for row in rows for key, one in row.items() if one == value}
        for new in (row.get(key) for row in rows for key in keys):
            if isinstance(new, str) and new != value and _RECIPIENT.fullmatch(new) and new not in seen.task:
                yield new


def _other_targets(seen: Seen, place: int, value: Any) -> Iterator[Any]:
    if isinstance(value, str) and _CODE.fullmatch(value) and value in _before(seen, place):
        yield from (new for new in with_other_digit(value) if new not in seen.whole)


def _other_digits(literal: str) -> Iterator[str]:
    yield from with_other_digit(literal)
    yield from with_digits_exchanged(literal)


def _shuffled(values: Iterator[str], coin: random.Random) -> list[str]:
    found = list(values)
    coin.shuffle(found)
    return found


def _claimed(seen: Seen, coin: random.Random) -> int | None:
    """Return the place of a deed that the answer reports; ``None`` if there is none."""
    tools = [step["tool"] for step in seen.steps if step["kind"] == "tool"]
    found = [
        place
        for place in _deeds(seen)
        if tools.count(seen.steps[place]["tool"]) == 1 and seen.answered > place and _is_reported(seen, place)
    ]
    return coin.choice(found) if found and not denies(seen.answer) else None


def _is_reported(seen: Seen, place: int) -> bool:
    step = seen.steps[place]
    texts = (*step["arguments"].values(), *re.findall(r"[\w-]{4,}", text_of(step.get("result", ""))))
    words = [str(one) for one in texts if not isinstance(one, bool) and len(str(one)) >= len("1234")]
    return any(word in seen.answer for word in words)


def _refusal(result: Any, language: str) -> Any:
    """Return a refusal with the keys of a result, and its words in the run's language."""
    state, reason = _REFUSALS.get(language, _REFUSALS["en"])
    if isinstance(result, str):
        try:
            parsed = json.loads(result)
        except ValueError:
            return f"{state}: {reason}"
        return json.dumps(_refusal(parsed, language), ensure_ascii=False)
    row = result if isinstance(result, dict) else {}
    fields: dict[str, Any] = {
        key: False if value is True else state if _STATUS.search(key) else None for key, value in row.items()
    }
    return (
        {**fields, "message": reason}
        if False in fields.values() or state in fields.values()
        else {
            "status": state,
            "message": reason,
        }
    )


def _heard(step: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    if old == new or not step.get("heard"):
        return dict(step)
    heard = [
        {**one, "text": new} if one["role"] == "tool" and text_of(one["text"]) == old else one
        for one in step["heard"]
    ]
    return {**step, "heard": heard}


def _without(step: Mapping[str, Any], call: str | None, result: str) -> dict[str, Any]:
    """Return a step that neither asks for a call nor hears of it."""

    def kept(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [one for one in calls if one.get("id") != call]

    heard = [
        {**one, **({"calls": kept(one["calls"])} if one.get("calls") else {})}
        for one in step.get("heard", [])
        if not (one["role"] == "tool" and text_of(one["text"]) == result)
    ]
    heard = [one for one in heard if one.get("text") or one.get("calls")]
    changed = dict(step)
    if "heard" in step:
        changed["heard"] = heard
    if step.get("calls"):
        changed["calls"] = kept(step["calls"])
    return changed


def _blamed_for_claim(seen: Seen, steps: list[dict[str, Any]], place: int) -> Mutant | None:
    """Return the run blamed on the first step after a place that says something."""
    said = [at for at in range(place, len(steps)) if steps[at]["kind"] == "llm" and steps[at].get("said")]
    return (
        Mutant(run={**seen.run, "steps": steps}, agent=steps[said[0]]["agent"], step=said[0])
        if said
        else None
    )


DEED_FAULTS: Final[Mapping[str, DeedFault]] = {
    "another amount in a deed": other_amount,
    "another day in a deed": other_day,
    "another recipient of a deed": other_recipient,
    "one digit of an id in a deed changed": other_target,
    "a refused deed reported as done": refused_deed,
    "a deed reported that was never made": unmade_deed,
    "a figure passed on wrongly": misheard_figure,
}
