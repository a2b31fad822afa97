"""What a run breaks of what its workflow always does, ranked and in words. Pure.

The earliest of the strong ones is taken for the fault: what comes after it are its consequences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from analyzer.history.facts import ANSWER, TASK, TURN, Argument, Call, Facts
from analyzer.history.invariants import CALLED, NOT_CALLED, Broken, Held, Invariant, Kind, Run, check
from analyzer.history.mining import NO_TOOL, Mined
from semconv.record import record, replace

LEAST_EVIDENCE: Final = 1.0
"""Log-odds below which what a run breaks says nothing: a limit that every fourth good run might exceed."""
TENTATIVE: Final = 3.0
"""Log-odds of what is tentative: of good runs that break nothing else, 1 to 6 % break it
(``python -m benchmarks.accuracy.invariants``)."""
_STRONG: Final = 0.8
"""Share of the strongest evidence from which an earlier one is taken for the fault."""


@record
class Violation:
    """An invariant that a run breaks."""

    held: Held
    broken: Broken
    evidence: float
    """Log-odds that the run is no other good run."""
    text: str
    """What known runs did and what this one does, without a full stop."""

    @property
    def step(self) -> int:
        """The step that breaks it."""
        return self.broken.step


def violations(facts: Facts, mined: Mined) -> tuple[Violation, ...]:
    """Return what a run breaks, the supposed fault first."""
    found = _violations(facts, mined, mined.held)
    found = found or [replace(one, evidence=TENTATIVE) for one in _violations(facts, mined, mined.tentative)]
    least = _STRONG * max((violation.evidence for violation in found), default=0.0)
    first = min((violation.step for violation in found if violation.evidence >= least), default=0)
    return tuple(sorted(found, key=lambda one: (one.step != first, -one.evidence, one.step)))


def accusations(facts: Facts, mined: Mined) -> tuple[Violation, ...]:
    """Return what a run breaks of the invariants that may accuse it, the strongest first."""
    found = _violations(facts, mined, [one for one in mined.held if mined.accuses(one)])
    return tuple(sorted(found, key=lambda violation: (-violation.evidence, violation.step)))


def _violations(facts: Facts, mined: Mined, held: Iterable[Held]) -> list[Violation]:
    run = Run(facts)
    found = [(one, broken) for one in held if isinstance(broken := check(one.invariant, run), Broken)]
    missing = {one.invariant.tool for one, _ in found if one.invariant.kind is Kind.HAPPENS}
    return [
        Violation(
            held=one,
            broken=broken,
            evidence=mined.evidence(one),
            text=f"in {one.support} of {one.support + one.broken} {mined.basis} runs"
            f" {rule(one.invariant)}; {seen(one.invariant, broken, facts)}",
        )
        for one, broken in found
        if mined.evidence(one) >= LEAST_EVIDENCE and not _lacks_its_tool(one.invariant, missing)
    ]


def _lacks_its_tool(invariant: Invariant, missing: set[str]) -> bool:
    """Return whether an order is broken only because one of its tools is not called at all."""
    return {Kind.AFTER: invariant.other, Kind.LEADS: invariant.tool}.get(invariant.kind) in missing


MOST_TOLD: Final = 20
"""Invariants of a workflow that are listed."""
_READING: Final = (
    Kind.STANDS,
    Kind.AMONG,
    Kind.NEEDS,
    Kind.WHEN,
    Kind.WHEN_NOT,
    Kind.EQUALS,
    Kind.HAPPENS,
    Kind.AFTER,
    Kind.LEADS,
    Kind.CONSTANT,
    Kind.TIMES,
    Kind.SOURCED,
    Kind.CONTAINS,
    Kind.LANGUAGE,
    Kind.LENGTH,
    Kind.RANGE,
)
"""Kinds that people read, in this order; the others only explain."""
_ORDERS: Final = frozenset({Kind.AFTER, Kind.NEEDS})
_NAME: Final = 60
_SHOWN: Final = 3


def tool_in_words(tool: str) -> str:
    """Return a tool's name as the subject of a sentence; an agent's turn and the answer have none."""
    if tool == ANSWER:
        return "the answer"
    return f"the agent {tool[1:_NAME]}" if tool.startswith(TURN) else tool[:_NAME]


def source_in_words(source: str) -> str:
    """Return where a value stood, in words."""
    if source == TASK:
        return "a value in the task"
    tool, path, *is_argument = source.split("\t")
    if not path:
        return f"the {'argument' if is_argument else 'result'} of {tool[:_NAME]}"
    return f"`{path[:_NAME]}` {'given to' if is_argument else 'of'} {tool[:_NAME]}"


def rule(invariant: Invariant) -> str:
    """Return what known runs did, as a clause in the past tense."""
    return f"{_condition(invariant)}{_RULES[invariant.kind](invariant)}"


def _condition(invariant: Invariant) -> str:
    if not invariant.where:
        return ""
    if invariant.value in {CALLED, NOT_CALLED}:
        return f"where {tool_in_words(invariant.where)} was {invariant.value} before, "
    return f"where {source_in_words(invariant.where)} was {invariant.value}, "


def _argument(invariant: Invariant) -> str:
    if invariant.tool == ANSWER:
        return f"`{invariant.path[:_NAME]}` of the answer" if invariant.path else "the answer"
    return (
        f"`{invariant.path[:_NAME]}` of {invariant.tool[:_NAME]}"
        if invariant.path
        else f"the argument of {invariant.tool[:_NAME]}"
    )


def _either(invariant: Invariant) -> str:
    tools = [tool_in_words(tool) for tool in (invariant.tool, invariant.other) if tool != NO_TOOL]
    return " or ".join(tools)


def _verb(invariant: Invariant) -> str:
    return (
        "was given"
        if invariant.tool == ANSWER
        else "took part"
        if invariant.tool.startswith(TURN)
        else "was called"
    )


def _listed(values: frozenset[str], show: Callable[[str], str] = "`{}`".format) -> str:
    shown = [show(value) for value in sorted(values)[:_SHOWN]]
    return " or ".join([*shown, "another"] if len(values) > _SHOWN else shown)


def _nearest(sources: frozenset[str]) -> str:
    """Return the source to name of several that all hold: a result, else the task, else an argument."""
    return min(sources, key=lambda one: (one.endswith("\t"), one == TASK, one))


def _limits(invariant: Invariant, unit: str = "") -> str:
    low, high = f"{invariant.low:g}", f"{invariant.high:g}"
    return f"{low}{unit}" if low == high else f"{low} to {high}{unit}"


_RULES: Final[Mapping[Kind, Callable[[Invariant], str]]] = {
    Kind.STANDS: lambda one: f"{_argument(one)} equalled {source_in_words(_nearest(one.values))}",
    Kind.AMONG: lambda one: f"{_argument(one)} equalled {_listed(one.values, source_in_words)}",
    Kind.EQUALS: lambda invariant: f"{_argument(invariant)} equalled {source_in_words(invariant.other)}",
    Kind.NEEDS: lambda one: (
        f"{tool_in_words(one.tool)} was called after {tool_in_words(one.other)}, whose result gives its"
        f" `{one.path[:_NAME]}`"
    ),
    Kind.HAPPENS: lambda invariant: f"{_either(invariant)} {_verb(invariant)}",
    Kind.AFTER: lambda one: f"{tool_in_words(one.tool)} came only after {tool_in_words(one.other)}",
    Kind.LEADS: lambda one: f"{tool_in_words(one.tool)} came after {tool_in_words(one.other)}",
    Kind.WHEN: lambda invariant: f"{_either(invariant)} {_verb(invariant)}",
    Kind.WHEN_NOT: lambda invariant: f"{tool_in_words(invariant.tool)} was not called",
    Kind.CARRIES: lambda invariant: f"{tool_in_words(invariant.tool)} was given `{invariant.path[:_NAME]}`",
    Kind.CALLER: lambda one: f"{tool_in_words(one.tool)} was called by {_listed(one.values, str)}",
    Kind.TIMES: lambda one: f"{tool_in_words(one.tool)} was called {_limits(one)} times".replace(
        " 1 times", " once"
    ),
    Kind.KNOWN: lambda _: "only known tools were called",
    Kind.CONSTANT: lambda invariant: f"{_argument(invariant)} was {_listed(invariant.values)}",
    Kind.SUCCEEDS: lambda invariant: f"no call of {tool_in_words(invariant.tool)} failed",
    Kind.CONTAINS: lambda invariant: f"{_argument(invariant)} stated {source_in_words(invariant.other)}",
    Kind.SOURCED: lambda invariant: (
        f"{_argument(invariant)} had at most {invariant.high:g} numbers that nothing before it states"
    ),
    Kind.LANGUAGE: lambda invariant: f"{_argument(invariant)} was in {_listed(invariant.values)}",
    Kind.WORDS: lambda one: f"{_argument(one)} had at most {one.high:g} words that no other run used",
    Kind.FORMAT: lambda invariant: f"{_argument(invariant)} was written like {_listed(invariant.values)}",
    Kind.LENGTH: lambda invariant: f"{_argument(invariant)} had {_limits(invariant, ' words')}",
    Kind.RANGE: lambda invariant: f"{_argument(invariant)} was {_limits(invariant)}",
}


def seen(invariant: Invariant, broken: Broken, facts: Facts) -> str:
    """Return what the run in question does instead."""
    call, argument = broken.call, broken.argument
    if argument is not None and invariant.kind not in {Kind.SOURCED, Kind.WORDS}:
        return _instead(invariant, argument, facts)
    match invariant.kind:
        case Kind.NEEDS | Kind.AFTER | Kind.CARRIES:
            is_later = (
                any(each.tool == invariant.other for each in facts.calls)
                and invariant.kind is not Kind.CARRIES
            )
            return "here before it" if is_later else "here without it"
        case Kind.TIMES:
            return f"here {broken.count}"
        case Kind.KNOWN | Kind.CALLER if call is not None:
            return f"here {'also' if invariant.kind is Kind.KNOWN else 'by'} {_caller(invariant, call)}"
        case Kind.WHEN_NOT | Kind.SUCCEEDS:
            return "here it was" if invariant.kind is Kind.WHEN_NOT else "here one did"
        case _:
            return "here more" if argument is not None else "here not"


def _caller(invariant: Invariant, call: Call) -> str:
    return tool_in_words(call.tool) if invariant.kind is Kind.KNOWN else call.agent[:_NAME]


def _instead(invariant: Invariant, argument: Argument, facts: Facts) -> str:
    """Return the argument as it is, and what it should be if that is known."""
    if invariant.kind is Kind.LENGTH:
        return f"here {argument.length}"
    if invariant.kind is Kind.LANGUAGE:
        return f"here in `{argument.language}`"
    nearest = _nearest(invariant.values) if invariant.kind is Kind.STANDS else invariant.other
    sources = invariant.values if invariant.kind is Kind.AMONG else frozenset({nearest})
    known = [facts.values[each] for each in sorted(sources) if each != TASK and facts.values.get(each)]
    if invariant.kind is Kind.CONTAINS:
        return f"here not ({known[0]})" if known else "here not"
    expected = f", not {' or '.join(known[:_SHOWN])}" if known else ""
    return f"here {argument.literal}{expected}"


def told(mined: Mined, most: int = MOST_TOLD) -> list[Held]:
    """Return the invariants worth reading: those that no other one implies, the structured ones first."""
    own = {(one.invariant.kind, one.invariant.tool, one.invariant.path) for one in mined.held}
    before = {
        (one.invariant.other, one.invariant.tool) for one in mined.held if one.invariant.kind in _ORDERS
    }
    found = [
        one
        for one in mined.held
        if one.invariant.kind in _READING and not _is_implied(one.invariant, own, before)
    ]
    return sorted(found, key=lambda one: (_READING.index(one.invariant.kind), -one.support))[:most]


def _is_implied(invariant: Invariant, own: set[tuple[Kind, str, str]], before: set[tuple[str, str]]) -> bool:
    match invariant.kind:
        case Kind.AFTER:
            between = {tool for first, tool in before if first == invariant.other}
            is_chained = any((tool, invariant.tool) in before for tool in between)
            return is_chained or any(kind is Kind.NEEDS and tool == invariant.tool for kind, tool, _ in own)
        case Kind.LEADS:
            return (Kind.HAPPENS, invariant.tool, "") in own
        case Kind.EQUALS:
            return any((kind, invariant.tool, invariant.path) in own for kind in (Kind.STANDS, Kind.AMONG))
        case _:
            return False
