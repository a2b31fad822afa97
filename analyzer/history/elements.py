"""Elements of a run: small facts about its steps whose frequency differs between passing and failing runs.

An element is judged relative to its *site*, the coarser fact without which it cannot occur: a tool call
by its agent, a transition by the action before it. That is the context of *Increase* in cooperative bug
isolation (Liblit, Naik, Zheng, Aiken & Jordan, PLDI 2005): a rare branch in a rare function is no evidence.

Elements are stored as three bytes of a digest, without names: only elements of the run in question are ever
shown, and that run has the names. Two of 500 different elements of a workflow have equal digests with a
probability of 1 to 6 %, depending on how many are of the same kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Final

from semconv.model import Step, StepKind, Trajectory
from semconv.record import record

MAX_ELEMENTS: Final = 80
"""Elements kept of a run, 241 bytes; of longer runs agents and actions, then the others in order."""
MAX_STEPS: Final = 2_000
"""Steps of a run that are read."""
_BYTES: Final = 3
_MANY: Final = frozenset({4, 8, 16})
"""Counts of an action that make an element: agents that alternate in a loop reach them."""
_MOST_IN_A_ROW: Final = 4
_CLASS_CHARS: Final = 400
"""Characters of an output by which it is classified."""
_LONGEST_NAME: Final = 80
_MOST_CALLS: Final = 16
"""Calls of one step that are read."""
_NUMBER: Final = re.compile(r"[\s$€£+-]*\d[\d.,]*\s*%?[\s.]*")
CUT: Final = "cut"
"""Key of an element of runs that have more elements than are kept."""
AGENT: Final = "G"
"""First letter of the keys of agents."""
ACTION: Final = "A"
"""First letter of the keys of actions."""
END: Final = "E"
"""First letter of the keys of the ends of runs."""
_ERROR: Final = "error"
COARSE: Final = (AGENT, ACTION)
"""First letters of the keys of agents and actions, which are kept before all others."""
_LETTERS: Final = "GATRLPE"
"""First letters of all keys."""
_KIND_BITS: Final = 7
_RANKS: Final = {letter: rank for rank, letter in enumerate(COARSE)}
RUN: Final = "run"
"""The site of everything that any run may contain."""


@record
class Element:
    """A fact about a run, the step that shows it, and its site."""

    key: str
    site: str
    step: int
    text: str
    """The fact as prose, after the agent's name."""
    pattern: str = ""
    """Key of the same fact about any action, with ``{0}`` in the action's place; empty if there is none."""

    def relatives(self, actions: Iterable[str]) -> list[tuple[str, str]]:
        """Return the keys and the sites of the same fact about these actions, given by their keys."""
        if not self.pattern:
            return []
        return [(self.pattern.format(action.removeprefix(f"{ACTION}|")), action) for action in actions]


def elements_of(trajectory: Trajectory) -> tuple[Element, ...]:
    """Return a run's elements, each at the first step that shows it.

    A failed call that was repeated with success counts as one call: retries go along with failures without
    causing them.
    """
    found: dict[str, Element] = {}
    for element in _all(_without_retries(trajectory.steps[:MAX_STEPS])):
        found.setdefault(element.key, element)
    return tuple(found.values())


def digest_of(key: str) -> bytes:
    """Return the stored form of an element's key: 21 bits of a digest, and three for its first letter."""
    *first, last = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=_BYTES).digest()
    return bytes((*first, last & ~_KIND_BITS | (_LETTERS.find(key[0]) + 1)))


def kind_of(digest: bytes) -> int:
    """Return the kind of an element, from its digest."""
    return digest[-1] & _KIND_BITS


def pack(elements: Sequence[Element]) -> bytes:
    """Return the number of a run's agents and the digests of its elements, agents and actions first."""
    ordered = sorted(elements, key=lambda element: _RANKS.get(element.key[0], len(_RANKS)))
    digests = list(dict.fromkeys(digest_of(element.key) for element in ordered))
    if len(digests) > MAX_ELEMENTS:
        digests = [*digests[: MAX_ELEMENTS - 1], digest_of(CUT)]
    agents = sum(element.key[0] == AGENT for element in elements)
    return bytes([min(agents, len(digests), MAX_ELEMENTS)]) + b"".join(digests)


def unpack(packed: bytes) -> frozenset[bytes]:
    """Return the digests in a packed run; an incomplete last one is left out."""
    return frozenset(_digests(packed))


def digests_in(packed: bytes) -> list[bytes]:
    """Return the digests in a packed run, agents and actions first."""
    return list(dict.fromkeys(_digests(packed)))


def agents_in(packed: bytes) -> frozenset[bytes]:
    """Return the digests of a packed run's agents."""
    return frozenset(_digests(packed)[: packed[0] if packed else 0])


def _digests(packed: bytes) -> list[bytes]:
    whole = len(packed) - (len(packed) - 1) % _BYTES
    return [packed[at : at + _BYTES] for at in range(1, whole, _BYTES)]


def action_of(step: Step) -> str:
    """Return a step's action without its texts: agent, kind, tool or next agent."""
    return f"{step.agent}|{step.kind}|{step.target or ''}"


def _without_retries(steps: Sequence[Step]) -> list[Step]:
    """Leave out failed steps that are followed by the same call with success."""
    succeeded: set[tuple[str, str]] = set()
    kept: list[Step] = []
    for step in reversed(steps):
        call = (action_of(step), step.input)
        if not step.is_failed:
            succeeded.add(call)
        elif call in succeeded:
            continue
        kept.append(step)
    kept.reverse()
    return kept


def _all(steps: Sequence[Step]) -> Iterator[Element]:
    before, seen, streak = "start", dict[str, int](), list[int]()
    for step in steps:
        action = action_of(step)
        agent, here, what = f"G|{step.agent}", f"A|{action}", _what(step)
        yield Element(key=agent, site=RUN, step=step.index, text="takes part")
        yield Element(key=here, site=agent, step=step.index, text=what)
        site = RUN if before == "start" else f"A|{before}"
        again = "T|{0}>{0}" if action == before else ""
        text = f"{what} at this point"
        yield Element(key=f"T|{before}>{action}", site=site, step=step.index, text=text, pattern=again)
        streak = [*streak[:_MOST_IN_A_ROW], step.index] if action == before else [step.index]
        seen[action] = seen.get(action, 0) + 1
        yield from _repetitions(action, what, seen[action], streak)
        for trait, text in _traits(step):
            yield Element(
                key=f"P|{trait}|{action}",
                site=here,
                step=step.index,
                text=f"{what} {text}",
                pattern="P|error|{0}" if trait == _ERROR else "",
            )
        before = action
    if steps:
        last = steps[-1]
        yield Element(
            key=f"E|{before}", site=f"A|{before}", step=last.index, text=f"{_what(last)}, and the run ends"
        )


def _repetitions(action: str, what: str, count: int, streak: Sequence[int]) -> Iterator[Element]:
    """Yield how often an action has occurred; a loop is shown by its first repetition, wherever noticed."""
    here = f"A|{action}"
    if count in _MANY:
        text, pattern = f"{what} {count} times", f"R|{count}|{{0}}"
        yield Element(key=f"R|{count}|{action}", site=here, step=streak[-1], text=text, pattern=pattern)
    if 1 < len(streak) <= _MOST_IN_A_ROW:
        text, pattern = f"{what} {len(streak)} times in a row", f"L|{len(streak)}|{{0}}"
        yield Element(key=f"L|{len(streak)}|{action}", site=here, step=streak[1], text=text, pattern=pattern)


def _what(step: Step) -> str:
    match step.kind:
        case StepKind.TOOL:
            return f"calls {step.target or 'a tool'}"
        case StepKind.HANDOFF:
            return f"hands over to {step.target or 'another agent'}"
        case StepKind.LLM:
            return "calls the model"
        case _:
            return "acts"


def _traits(step: Step) -> Iterator[tuple[str, str]]:
    if step.is_failed:
        yield _ERROR, "with an error"
    for name in dict.fromkeys(call.name[:_LONGEST_NAME] for call in step.calls[:_MOST_CALLS]):
        yield f"call {name}", f"and requests {name}"
    kind = _class_of(step)
    yield kind, f"with an output of class {kind}"


def _class_of(step: Step) -> str:
    head = step.output[:_CLASS_CHARS].strip()
    if not head:
        return "empty"
    if head[0] in "{[":
        return "json"
    if step.calls and head.startswith(f"call {step.calls[0].name}("):
        return "call"
    if _NUMBER.fullmatch(head):
        return "number"
    return "text"
