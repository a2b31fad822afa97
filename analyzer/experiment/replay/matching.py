"""Matching of requests with recorded calls: exactly, or with volatile parts masked. Pure.

A tape for a program that was changed (``Matching.CONVERSATION``) also matches by the conversation alone, if
nothing else does: instructions may differ too. Definitions of tools, the model and parameters are never
compared. If agents with different instructions were asked the same, the request's own
instructions tell whose call it is, if half of their words are still those of one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto
from itertools import chain, product
from typing import Final

from analyzer.experiment.replay.canonical import (
    CALL,
    SPOKEN_RESULTS,
    SYSTEM,
    Difference,
    Key,
    Utterance,
    canonical,
    first_difference,
    key_of,
    masked,
)
from analyzer.experiment.replay.tape import CallKind, Matching, RecordedCall
from collector_processor.rebuild.redaction import count_replaced
from semconv.dialects.reading.action import Message
from semconv.record import record

NOTHING: Final[frozenset[str]] = frozenset()


class Match(Enum):
    """Ways in which a request equals a recorded call."""

    EXACT = auto()
    MASKED = auto()
    """Equal except for results of tools, times and random ids."""
    REWORDED = auto()
    """Equal except for instructions."""
    REWORDED_MASKED = auto()
    """Both."""


_REWORDED: Final = frozenset({Match.REWORDED, Match.REWORDED_MASKED})
_MASKED: Final = frozenset({Match.MASKED, Match.REWORDED_MASKED})
MATCHES: Final = {
    Matching.REQUEST: (Match.EXACT, Match.MASKED),
    Matching.CONVERSATION: (Match.EXACT, Match.MASKED, Match.REWORDED, Match.REWORDED_MASKED),
}
_VERSION: Final = re.compile(r"-(?:\d{4}-?\d{2}-?\d{2}|latest)$")
_LEAST_ALIKE: Final = 0.5
"""Least share of words that instructions have in common with those of their own agent."""


@record
class Matched:
    """A recorded call that a request equals."""

    call: RecordedCall
    match: Match

    def ran_beside(self, end_ns: int) -> bool:
        """Say whether the call began before ``end_ns`` and has all its messages, for an exact comparison."""
        return self.call.start_ns < end_ns and not omitted_in(self.call)

    def differs(self, spoken: Spoken, model: str) -> tuple[str, ...]:
        """Return what of a request is visibly not as recorded, among what conversations leave out.

        Instructions whose secrets were removed cannot be compared, and could not be sent again either.
        """
        instructions = Spoken(self.call.messages, self.call.kind).instructions()
        is_whole = self.call.has_system and not count_replaced(instructions)
        found = {
            "instructions": is_whole and instructions != spoken.instructions(),
            "model": bool(self.call.answer.model) and not _is_same_model(self.call.answer.model, model),
        }
        return tuple(name for name, is_other in found.items() if is_other)


class Spoken:
    """A request or recorded call, whose keys are computed on first use: a live call needs only one."""

    def __init__(self, messages: tuple[Message, ...], kind: CallKind) -> None:
        self.messages: Final = messages
        self.kind: Final = kind
        self._forms: Final[dict[frozenset[str], tuple[Utterance, ...]]] = {}
        self._keys: Final[dict[tuple[Match, frozenset[str]], Key]] = {}

    def key(self, match: Match = Match.EXACT, omitted: frozenset[str] = NOTHING) -> Key:
        """Return the key for comparison, without the roles in ``omitted``."""
        key = self._keys.get((match, omitted))
        if key is None:
            form = self.form(omitted | {SYSTEM} if match in _REWORDED else omitted)
            shown = masked(form) if match in _MASKED else form
            kind = Utterance(role="kind", text=self.kind.value)
            key = self._keys[match, omitted] = key_of((kind, *shown))
        return key

    def prepare(self, matches: Iterable[Match], omissions: Iterable[frozenset[str]]) -> None:
        """Compute every key that ``Waiting.find`` may need, on another thread than the event loop's."""
        for match, omitted in product(matches, (NOTHING, *omissions)):
            self.key(match, omitted)

    def instructions(self) -> str:
        """Return the system messages, without times and random ids."""
        return "\n".join(each.text for each in masked(self.form(NOTHING)) if each.role == SYSTEM)

    def form(self, omitted: frozenset[str]) -> tuple[Utterance, ...]:
        """Return the canonical form, without the roles in ``omitted``."""
        if omitted not in self._forms:
            self._forms[omitted] = canonical(self.messages, omitted)
        return self._forms[omitted]


def omitted_in(call: RecordedCall) -> frozenset[str]:
    """Return the roles that the instrumentation left out of a recorded call."""
    lacking = {SYSTEM: not call.has_system, CALL: not call.has_calls}
    return frozenset(role for role, is_lacking in lacking.items() if is_lacking)


def _omissions(call: RecordedCall) -> tuple[frozenset[str], ...]:
    """Return the sets of roles to leave out; results without calls may have been sent as user messages."""
    omitted = omitted_in(call)
    return (omitted, omitted | {SPOKEN_RESULTS}) if CALL in omitted else (omitted,)


class TapeIndex:
    """The recorded calls of a tape by their keys; built once, and shared by all trials of the tape."""

    def __init__(self, calls: Sequence[RecordedCall], matching: Matching = Matching.REQUEST) -> None:
        """Compute the keys of each call."""
        self.matches: Final = MATCHES[matching]
        self.calls: Final = {call.index: call for call in calls}
        self.omissions: Final = tuple(dict.fromkeys(chain.from_iterable(map(_omissions, calls))))
        self._by_key: Final[dict[tuple[Match, frozenset[str], Key], list[int]]] = {}
        for call in calls:
            spoken = Spoken(call.messages, call.kind)
            for match, omitted in product(self.matches, _omissions(call)):
                found = self._by_key.setdefault((match, omitted, spoken.key(match, omitted)), [])
                found.append(call.index)

    def equal(self, match: Match, omitted: frozenset[str], key: Key) -> Sequence[int]:
        """Return the calls with this key, in recorded order."""
        return self._by_key.get((match, omitted, key), ())


class Waiting:
    """The recorded calls that were not requested yet."""

    def __init__(self, index: TapeIndex) -> None:
        self._index: Final = index
        self._left: Final = set(index.calls)
        self._begin: Final[dict[tuple[Match, frozenset[str], Key], int]] = {}
        """For each key, the place of its first call that may be left: a run may repeat one call often."""

    def __contains__(self, index: int) -> bool:
        return index in self._left

    def find(self, spoken: Spoken, matches: Iterable[Match] | None = None) -> Matched | None:
        """Return the first waiting call that a request equals; exact matches come first.

        Args:
            spoken: the request.
            matches: ways to compare; by default all that the tape allows.
        """
        for match in self._index.matches if matches is None else matches:
            if found := list(self._equal(spoken, match)):
                index = self._of_same_agent(spoken, match) if match in _REWORDED else min(found)
                return None if index is None else Matched(call=self._index.calls[index], match=match)
        return None

    def _of_same_agent(self, spoken: Spoken, match: Match) -> int | None:
        """Return the first waiting call with this conversation whose instructions are most alike.

        ``None`` if several agents were asked the same, and the request's instructions are like none's.
        """
        firsts: dict[str, int] = {}
        for index in sorted(self._all_equal(spoken, match)):
            call = self._index.calls[index]
            firsts.setdefault(Spoken(call.messages, call.kind).instructions(), index)
        if len(firsts) == 1:
            return next(iter(firsts.values()))
        said = spoken.instructions()
        alike = sorted(((_alike(said, other), -index) for other, index in firsts.items()), reverse=True)
        is_clear = alike[0][0] >= _LEAST_ALIKE and alike[0][0] > alike[1][0]
        return -alike[0][1] if is_clear else None

    def _all_equal(self, spoken: Spoken, match: Match) -> set[int]:
        keys = ((omitted, spoken.key(match, omitted)) for omitted in self._index.omissions)
        found = (self._index.equal(match, omitted, key) for omitted, key in keys)
        return self._left.intersection(chain.from_iterable(found))

    def _equal(self, spoken: Spoken, match: Match) -> Iterator[int]:
        for omitted in self._index.omissions:
            key = spoken.key(match, omitted)
            known, place = self._index.equal(match, omitted, key), (match, omitted, key)
            at = self._begin.get(place, 0)
            while at < len(known) and known[at] not in self._left:
                at += 1
            if known:
                self._begin[place] = at
            yield from known[at : at + 1]

    def take(self, index: int) -> None:
        """Remove a call that was requested."""
        self._left.remove(index)

    @property
    def matches(self) -> tuple[Match, ...]:
        """The ways to compare a request with a call."""
        return self._index.matches

    @property
    def omissions(self) -> tuple[frozenset[str], ...]:
        """The roles that a comparison may leave out."""
        return self._index.omissions

    def unmatched(self, spoken: Spoken) -> Unmatched:
        """Return a request that equals no waiting call, with those calls."""
        waiting = (call for index, call in self._index.calls.items() if index in self._left)
        return Unmatched(spoken=spoken, left=tuple(call for call in waiting if call.kind is spoken.kind))


@record
class Unmatched:
    """A request that equals none of the recorded calls that were left."""

    spoken: Spoken
    left: tuple[RecordedCall, ...]

    def difference(self) -> Difference:
        """Return its difference from the call with the longest common beginning; reads all these calls."""
        omitted = frozenset[str]().union(*(_omissions(call)[-1] for call in self.left))
        recorded = {call.index: canonical(call.messages, omitted) for call in self.left}
        return first_difference(recorded, self.spoken.form(omitted))


def _alike(one: str, other: str) -> float:
    """Return the share of words that two texts have in common."""
    mine, theirs = set(one.split()), set(other.split())
    return len(mine & theirs) / (len(mine | theirs) or 1)


def _is_same_model(one: str, other: str) -> bool:
    """Say whether two names may mean one model: providers answer with the date of its version added."""
    mine, theirs = (_VERSION.sub("", name.rpartition("/")[2]) for name in (one, other))
    return mine == theirs
