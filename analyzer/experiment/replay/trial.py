"""Trial: decides the answer to each request of one rerun. Pure; no clock, no socket.

A trial begins on the tape: a request gets the recorded answer of the call that it equals (``matching``),
equal calls in recorded order. A request that equals no call makes the trial invalid: it is never silently
sent to the live model.

The tape ends with one *changed* call. Requests that begin after its answer are live, even if they equal a
recorded call: the recorded answer belongs to a different history. One exception keeps parallel branches
intact. A rerun is faster than the recording, so a call that ran beside the changed one may be requested only
after it. Such a call, which began before the changed one ended, is still served if it is exactly equal: its
request cannot depend on the change.

An SDK marks the repetition of a failed request (``x-stainless-retry-count``); a client that disconnected
before the end of an answer repeats the request without a mark. Both get the same answer again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Final, TypeAlias

from analyzer.experiment.replay.canonical import Difference, Key
from analyzer.experiment.replay.matching import (
    Match,
    Matched,
    Spoken,
    TapeIndex,
    Unmatched,
    Waiting,
)
from analyzer.experiment.replay.tape import Answer, CallKind, RecordedTool, Tape
from analyzer.experiment.replay.trial_tools import RunTool, ToolRules, Tools
from semconv.dialects.reading.action import Message
from semconv.record import record, replace


@record
class Edit:
    """Change to the request of a changed call before it goes to the live model."""

    hint: str = ""
    """Text added at the end as a user message."""
    model: str = ""
    system: str = ""
    """Text that replaces the system messages."""


@record
class Change:
    """The one changed call of a trial, at which the tape ends."""

    call: int
    """Index into ``Tape.calls``."""
    answer: Answer | None = None
    """The answer served instead: the recorded one in a control, a replacement in a treatment. ``None`` asks
    the live model again."""
    edit: Edit = field(default_factory=Edit)
    """Only if ``answer`` is ``None``."""


@record
class Request:
    """One request of the rerun, read from the wire."""

    messages: tuple[Message, ...]
    kind: CallKind = CallKind.CHAT
    model: str = ""
    retry: int = 0
    """``x-stainless-retry-count``; 0 for a first attempt."""
    tools: tuple[str, ...] = ()
    """Names of the functions that the model may call."""
    transfers: frozenset[str] = frozenset()
    """Those named like a handoff that take no arguments but a handoff's."""
    provider_tools: tuple[str, ...] = ()
    """Tools that the provider itself would run."""
    spoken: Spoken | None = None
    """The messages with their keys, if these were computed before."""


@record
class Serve:
    """Answer from the tape, or with the changed answer."""

    serial: int
    call: int
    answer: Answer


@record
class Live:
    """Pass the request on to the live model."""

    serial: int
    edit: Edit = field(default_factory=Edit)


@record
class Refuse:
    """Refuse the request: the trial is invalid."""

    reason: str


Decision: TypeAlias = Serve | Live | Refuse


@record
class TrialReport:
    """Report on a trial."""

    calls: int
    """Calls of the tape to be requested up to and including the change; all of them without a change."""
    served: int
    """Calls answered from the tape, including the changed one; each counted once."""
    masked: int
    """Calls served although volatile parts, or with ``Matching.CONVERSATION`` instructions, differ."""
    live: int
    """Requests passed on to the live model, including repetitions."""
    live_embeddings: int = 0
    """Live requests for embeddings that the tape does not hold; they may come before the change."""
    missing: tuple[int, ...] = ()
    """Indices of calls that were never requested: they bypass the gateway, or the workflow took another
    path."""
    tools_served: int = 0
    tools_missing: tuple[str, ...] = ()
    """Tools with a recorded execution whose result was never requested: they really ran, or the workflow took
    another path."""
    undeclared: Mapping[str, int] = field(default_factory=dict)
    """Tools offered to the model that would really run if a live answer called them, and are not declared
    read-only; with the index of the last recorded call that offered them."""
    differs: tuple[str, ...] = ()
    """What of the changed call's own request is visibly not as recorded: ``instructions``, ``model``."""
    changed: bool = False
    """The changed call was reached and answered."""
    invalid: str = ""
    """Reason why the trial is invalid; empty if it is valid."""
    first_difference: Difference | None = None
    live_failures: Mapping[str, int] = field(default_factory=dict)
    """Live calls that the upstream did not answer properly, by reason."""


CLIENT_GONE: Final = "client_gone"
"""Failure name for an answer that the client did not wait for."""


_NOT_ANNOUNCED: Final = (
    "the workflow's tools would really run: it has to answer a trial inside `with rerun(environment)` of"
    " semconv.instrument"
)


@record
class _Exchange:
    """One request and its decision."""

    key: Key
    decision: Serve | Live
    is_change: bool = False
    is_embedding: bool = False


class Trial:
    """One rerun against one tape."""

    def __init__(
        self,
        tape: Tape,
        change: Change | None = None,
        rules: ToolRules | None = None,
        index: TapeIndex | None = None,
    ) -> None:
        """Prepare a trial.

        Args:
            tape: the recorded run.
            change: where the tape ends; ``None`` for the fidelity trial, in which no chat is ever live.
            rules: rules for its tools; those that do not ask the gateway are refused unless declared here.
            index: the tape's index, if it was built before: other trials may have the same tape.

        Raises:
            IndexError: the tape has no such call.
        """
        self._tape: Final = tape
        self._change: Final = change
        self._changed_call: Final = None if change is None else tape.calls[change.call]
        self.tools: Final = Tools(tape, rules or ToolRules())
        self._waiting: Final = Waiting(index or TapeIndex(tape.calls, tape.matching))
        self.omissions: Final = self._waiting.omissions
        self.matches: Final = self._waiting.matches
        self._exchanges: Final[list[_Exchange]] = []
        """Exchanges by serial number."""
        self._latest: Final[dict[Key, _Exchange]] = {}
        self._again: Final[dict[Key, _Exchange]] = {}
        """Exchanges that were not delivered; an equal request gets the same decision again."""
        self._is_changed = False
        self._differs: tuple[str, ...] = ()
        self._masked = 0
        self._undeclared: Final[dict[str, int]] = {}
        self._invalid = ""
        self._unmatched: Unmatched | None = None
        self._difference: Difference | None = None
        self._failures: Final[Counter[str]] = Counter()

    def ask(self, request: Request) -> Decision:
        """Decide on a request."""
        if not self.tools.is_announced:
            self.invalidate(_NOT_ANNOUNCED)
        if self._invalid:
            return Refuse(reason=self._invalid)
        spoken = _spoken(request)
        key = spoken.key()
        if (repeated := self._repeated(request, key)) is not None:
            return self._give(repeated)
        if self._is_changed:
            return self._after_change(request, spoken)
        found = self._waiting.find(spoken)
        if found is not None:
            return self._on_tape(request, key, found)
        if request.kind is CallKind.EMBEDDINGS and not self._holds_embeddings():
            return self._give(_Exchange(key=key, decision=Live(serial=0), is_embedding=True))
        self._unmatched = self._waiting.unmatched(spoken)
        return self._reject("a request before the changed call equals no recorded call that is left")

    def answering(self, serial: int) -> None:
        """Record that the first byte of an answer (not an error) is about to be sent.

        From then on the workflow may react to a changed answer: clients do not wait for the end of a stream's
        connection, so its last byte would be too late.
        """
        if self._exchanges[serial].is_change:
            self._is_changed = True

    def failed(self, serial: int, failure: str) -> None:
        """Record that an answer was not fully delivered; an equal request gets the same decision again.

        Args:
            serial: serial number of the decision.
            failure: ``CLIENT_GONE`` for an answer that the client did not wait for; for a live call the
            upstream's failure, even if the client received it as a proper error.
        """
        exchange = self._exchanges[serial]
        self._again[exchange.key] = exchange
        if isinstance(exchange.decision, Live):
            self._failures[failure] += 1

    def compare(self) -> None:
        """Find the first difference of the request that made the trial invalid, if one did.

        Reads the whole tape, and changes nothing else: it may run on another thread.
        """
        if self._unmatched is not None and self._difference is None:
            self._difference = self._unmatched.difference()

    def announce(self) -> None:
        """Record that the workflow's decorated tools know about the trial."""
        self.tools.is_announced = True

    def use_tool(
        self, name: str, arguments: str, *, may_play: bool = True, also: Iterable[str] = ()
    ) -> RecordedTool | RunTool | Refuse:
        """Return the recorded result of a tool's execution, each execution once, in recorded order.

        Args:
            name: the tool's name.
            arguments: as ``canonical_json`` writes them: long ones take long, so not on the event loop.
            may_play: False for code that cannot be prevented from running, so that a result is useless.
            also: other names under which it may have been recorded.
        """
        if self._invalid:
            return Refuse(reason=self._invalid)
        found = self.tools.use((name, *also), arguments) if may_play else self.tools.run((name,))
        return found or self._reject(
            f"no result of the tool `{name}` for these arguments is left on the tape; it would really run:"
            f" --allow-tool {name}, if it only reads"
        )

    def use_http_tool(
        self, tools: Iterable[str], is_asked: Callable[[RecordedTool], bool]
    ) -> RecordedTool | Refuse:
        """Return the recorded result of the execution in a request over HTTP.

        Args:
            tools: the tools called at the request's address.
            is_asked: returns whether a recorded execution equals the request.
        """
        if self._invalid:
            return Refuse(reason=self._invalid)
        names = sorted(tools)
        return self.tools.use_over_http(names, is_asked) or self._reject(
            f"a request over HTTP is no recorded execution that is left of {', '.join(map(_quoted, names))},"
            " or may be one of several tools"
        )

    def invalidate(self, reason: str) -> None:
        """Make the trial invalid for a reason outside it; the first reason counts."""
        self._invalid = self._invalid or reason

    def report(self) -> TrialReport:
        """Return the report so far."""
        self.compare()
        wanted = self._wanted()
        given = [exchange.decision for exchange in self._exchanges]
        return TrialReport(
            calls=len(wanted),
            served=len({decision.call for decision in given if isinstance(decision, Serve)}),
            masked=self._masked,
            live=sum(isinstance(decision, Live) for decision in given),
            live_embeddings=sum(exchange.is_embedding for exchange in self._exchanges),
            missing=tuple(index for index in wanted if index in self._waiting),
            tools_served=self.tools.served,
            tools_missing=self.tools.missing(),
            undeclared=dict(self._undeclared),
            differs=self._differs,
            changed=self._is_changed,
            invalid=self._invalid,
            first_difference=self._difference,
            live_failures=dict(self._failures),
        )

    def _wanted(self) -> list[int]:
        if self._changed_call is None:
            return [call.index for call in self._tape.calls]
        return [call.index for call in (*self._tape.before(self._changed_call.index), self._changed_call)]

    def _repeated(self, request: Request, key: Key) -> _Exchange | None:
        exchange = self._again.pop(key, None)
        if request.retry and key in self._latest:
            return self._latest[key]
        # After the change, an equal request without a retry mark may be a new one: it goes live.
        is_over = exchange is not None and self._is_changed and not exchange.is_change
        return None if is_over else exchange

    def _on_tape(self, request: Request, key: Key, found: Matched) -> Decision:
        is_change = self._change is not None and found.call.index == self._change.call
        if is_change and (missing := self._unasked()):
            return self._reject(
                f"{missing} of the recorded calls before the changed one never arrived: they bypass the"
                " gateway, or the workflow took another path"
            )
        if unsafe := self.tools.runs_elsewhere(found.call.answer):
            return self._reject(unsafe)
        self._waiting.take(found.call.index)
        self._undeclared.update(dict.fromkeys(self._dangerous(request), found.call.index))
        self._masked += found.match is not Match.EXACT
        if is_change:
            self._differs = found.differs(_spoken(request), request.model)
            return self._at_change(request, key)
        served = Serve(serial=0, call=found.call.index, answer=found.call.answer)
        return self._give(_Exchange(key=key, decision=served))

    def _at_change(self, request: Request, key: Key) -> Decision:
        change = self._change
        assert change is not None
        if change.answer is None:
            return self._live(
                request, _Exchange(key=key, decision=Live(serial=0, edit=change.edit), is_change=True)
            )
        served = Serve(serial=0, call=change.call, answer=change.answer)
        return self._give(_Exchange(key=key, decision=served, is_change=True))

    def _after_change(self, request: Request, spoken: Spoken) -> Decision:
        changed = self._changed_call
        assert changed is not None
        found = self._waiting.find(spoken, (Match.EXACT,))
        if found is not None and found.ran_beside(changed.end_ns):
            return self._on_tape(request, spoken.key(), found)
        return self._live(request, _Exchange(key=spoken.key(), decision=Live(serial=0)))

    def _live(self, request: Request, exchange: _Exchange) -> Decision:
        dangerous = self._dangerous(request)
        if dangerous:
            return self._reject(
                f"the live model may call `{dangerous[0]}`, which would really run:"
                f" --allow-tool {dangerous[0]}, if it only reads or hands over"
            )
        return self._give(exchange)

    def _give(self, exchange: _Exchange) -> Decision:
        given = replace(exchange, decision=replace(exchange.decision, serial=len(self._exchanges)))
        self._exchanges.append(given)
        self._latest[given.key] = given
        return given.decision

    def _reject(self, reason: str) -> Refuse:
        self.invalidate(reason)
        return Refuse(reason=reason)

    def _unasked(self) -> int:
        """Count the calls that had ended before the changed one began and were not requested."""
        return sum(index in self._waiting for index in self._wanted()[:-1])

    def _holds_embeddings(self) -> bool:
        return any(call.kind is CallKind.EMBEDDINGS for call in self._tape.calls)

    def _dangerous(self, request: Request) -> list[str]:
        """Return the tools that would really run if a live answer called them."""
        return self.tools.dangerous(request.provider_tools, request.tools, request.transfers)


def _quoted(name: str) -> str:
    return f"`{name}`"


def _spoken(request: Request) -> Spoken:
    return request.spoken or Spoken(request.messages, request.kind)
