"""Faults put into good runs, one a run; the rest of the run stays as it was."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final

from benchmarks.accuracy.suspicion.story import FACT, Called, Event, Said, Story

_DIGITS: Final = "0123456789"


@dataclass(frozen=True, slots=True, kw_only=True)
class Faulted:
    """A run with one fault."""

    story: Story
    fault: str
    agent: str
    text: str = ""
    """Text of the faulty step; empty if its mistake is not a text."""


def altered_figure(story: Story, chance: random.Random) -> Faulted | None:
    """Make one figure of a tool's result wrong in the answer, and wherever an agent states it before."""
    return _altered(story, chance, "altered figure", computed=False)


def wrong_sum(story: Story, chance: random.Random) -> Faulted | None:
    """Make one result of the agent's own arithmetic wrong."""
    return _altered(story, chance, "wrong sum", computed=True)


def ignored_error(story: Story, chance: random.Random) -> Faulted | None:
    """Make the call behind the answer fail; the agent answers as if it had succeeded."""
    keys = [place for place, event in enumerate(story.events) if isinstance(event, Called) and event.is_key]
    if not keys:
        return None
    place = chance.choice(keys)
    call = story.events[place]
    assert isinstance(call, Called)
    error = chance.choice(
        ["HTTP 503 Service Unavailable", "TimeoutError: no answer after 30 s", "ConnectionError: refused", ""]
    )
    empty = chance.choice(["[]", "No results found.", ""])
    failed = replace(call, result="" if error else empty, error=error)
    events = [*story.events[:place], failed, *story.events[place + 1 :]]
    # No other call returns the same.
    events = [
        one for one in events if one is failed or not (isinstance(one, Called) and one.result == call.result)
    ]
    return Faulted(story=replace(story, events=events), fault="ignored error", agent=call.agent)


def loop(story: Story, chance: random.Random) -> Faulted | None:
    """Make the agent repeat a call with the same result, and then answer without the remaining work."""
    places = [p for p, event in enumerate(story.events) if isinstance(event, Called) and event.result]
    if not places:
        return None
    place = places[0]
    call = story.events[place]
    last = story.events[-1]
    times = chance.randint(3, 9)
    vague = chance.choice(
        [
            "I have looked into this and summarised what is known.",
            "That is all the information there is.",
            "Done.",
        ]
    )
    events = [*story.events[:place], *[call] * times, Said(agent=last.agent, text=vague)]
    return Faulted(story=replace(story, events=events), fault="loop", agent=call.agent)


_CLAIMS: Final = (
    " According to the {year} {name} report, {share} % of comparable cases cost {amount} more.",
    " Source: https://www.{site}.com/reports/{year}/{code}.",
    ' As {name} stated, "the figure has risen to {amount} since the last audit of the plant".',
    " The case is filed under {code}-{amount}.",
    " Industry data from {name} puts the average at {amount} units.",
    " {name} confirmed a refund of ${amount}.{cents} on the account.",
)


def unsourced_claim(story: Story, chance: random.Random) -> Faulted | None:
    """Add a claim to the answer that occurs nowhere in the run."""
    last = story.events[-1]
    assert isinstance(last, Said)
    claim = chance.choice(_CLAIMS).format(
        year=chance.randint(2015, 2024),
        name=chance.choice(["Meridian", "Oakfield Institute", "Brandt & Lowe", "Norvik", "Castellan"]),
        share=chance.randint(13, 88),
        amount=chance.randint(1_013, 98_771),
        site=chance.choice(["meridian-data", "oakfield", "brandtlowe"]),
        code=chance.choice(["QX", "MRD", "K", "ZT"]) + str(chance.randint(100, 999)),
        cents=chance.randint(10, 99),
    )
    said = replace(last, text=last.text + claim)
    events: list[Event] = [*story.events[:-1], said]
    return Faulted(
        story=replace(story, events=events), fault="unsourced claim", agent=last.agent, text=said.text
    )


def ignored_constraint(story: Story, _chance: random.Random) -> Faulted | None:
    """Make the answer break a demand of the task."""
    last = story.events[-1]
    if story.constraint is None or not isinstance(last, Said):
        return None
    said = replace(last, text=story.constraint.broken(last.text))
    events: list[Event] = [*story.events[:-1], said]
    return Faulted(
        story=replace(story, events=events), fault="ignored constraint", agent=last.agent, text=said.text
    )


FAULTS: Final = (altered_figure, wrong_sum, ignored_error, loop, unsourced_claim, ignored_constraint)


def _altered(story: Story, chance: random.Random, fault: str, *, computed: bool) -> Faulted | None:
    last = story.events[-1]
    assert isinstance(last, Said)
    facts = [found[2] for found in FACT.finditer(last.text) if bool(found[1]) is computed]
    facts = [fact for fact in facts if sum(char.isdigit() for char in fact) > 1]
    if not facts:
        return None
    fact = chance.choice(facts)
    wrong = _slipped(fact, chance)
    mark, changed = ("⟦=" if computed else "⟦") + fact + "⟧", ("⟦=" if computed else "⟦") + wrong + "⟧"
    events: list[Event] = []
    agent = text = ""
    for event in story.events:
        if isinstance(event, Said) and mark in event.text:
            event = replace(event, text=event.text.replace(mark, changed))  # noqa: PLW2901
            agent, text = agent or event.agent, text or event.text
        events.append(event)
    return Faulted(story=replace(story, events=events), fault=fault, agent=agent, text=text)


def _slipped(fact: str, chance: random.Random) -> str:
    """Return a figure with a slip: digits swapped, one wrong, or another number of the same length."""
    places = [place for place, char in enumerate(fact) if char in _DIGITS]
    while True:
        chars = list(fact)
        match chance.randrange(3):
            case 0:
                at = chance.randrange(len(places) - 1)
                one, other = places[at], places[at + 1]
                chars[one], chars[other] = chars[other], chars[one]
            case 1:
                chars[chance.choice(places[: max(1, len(places) - 1)])] = chance.choice(_DIGITS)
            case _:
                for place in places:
                    chars[place] = chance.choice(_DIGITS)
        slipped = "".join(chars)
        if slipped != fact and slipped[places[0]] != "0" and _digits(slipped) != _digits(fact):
            return slipped


def _digits(text: str) -> str:
    return "".join(char for char in text if char in _DIGITS).strip("0")
