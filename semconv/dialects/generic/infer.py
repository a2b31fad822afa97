"""Inference of a run's actions from the clues in its spans, where no dialect reads them.

Model calls are spans that count tokens, or hold a conversation and the answer to it. Tools have a name, or a
call's id, that a model requested before. Agents are named by a key or by a span around their calls, or are
distinguished by their system prompts. A tool after whose call another agent speaks is a handoff. Nothing is
inferred without a sign of a model call: an ordinary request is not a run. Pure, and linear in the spans.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from semconv.dialects.generic.clues import Clues, clues_of
from semconv.dialects.generic.speakers import Speakers, bare_name
from semconv.dialects.mapped import FIELDS, KINDS, SpanMapping
from semconv.dialects.reading.action import Action, ActionKind, Key, Surroundings, key_of
from semconv.dialects.reading.agent_names import NO_AGENT, Found, plain
from semconv.dialects.reading.observations import Observation, action_of
from semconv.dialects.reading.tools import transfer_target
from semconv.dialects.reading.values import is_failed, text
from semconv.model import Span, ToolCall
from semconv.record import record, replace

NAME: Final = "generic"

_AROUND: Final = frozenset({ActionKind.AGENT, ActionKind.WORKFLOW, ActionKind.CONTAINER})
_LEAST_SCORE: Final = 3
_LOWEST, _HIGHEST = 0.3, 0.95
"""Confidence with the weakest and with the best evidence for every step."""


@record
class Inferred:
    """Actions inferred for a run, and the evidence for them."""

    actions: Mapping[Key, Action]
    confidence: float
    """0 to 1, from how many kinds of evidence each action has; not calibrated."""
    summary: str
    """One sentence for people: the confidence and the evidence."""
    used: frozenset[str]
    """Names of the attributes that were used."""
    sources: Mapping[Key, Mapping[str, str]]
    """For each action, the attribute that each field was read from, as in a mapping."""

    def unread(self, spans: Iterable[Span]) -> list[str]:
        """Return the names of these spans' attributes that were not used."""
        return sorted({name for span in spans for name in span.attributes} - self.used)


def infer(surroundings: Surroundings, claimed: frozenset[Key]) -> Inferred | None:
    """Return actions of the spans that no dialect has claimed; ``None`` without a sign of a model call."""
    spans = surroundings.walked
    clues = [clues_of(span) for span in spans]
    if not (any(map(_is_sign, clues)) or _are_tools_asked_for(clues)):
        return None
    run = _Run(surroundings, clues)
    actions = {
        key_of(span): action
        for position, span in enumerate(spans)
        if key_of(span) not in claimed and (action := run.action(position)) is not None
    }
    if not any(action.kind in {ActionKind.LLM, ActionKind.AGENT} for action in actions.values()):
        return None
    confidence = run.confidence()
    return Inferred(
        actions=actions,
        confidence=confidence,
        summary=f"no dialect reads this run: inferred with confidence {confidence:.2f} from {run.seen()}",
        used=frozenset().union(*(clue.used for clue in clues)),
        sources={key_of(clue.span): clue.sources for clue in clues if key_of(clue.span) in actions},
    )


def _are_tools_asked_for(clues: Sequence[Clues]) -> bool:
    """Say whether a model's answer requests a tool that some span runs."""
    requests = _ToolRequests([clue for clue in clues if clue.output_messages])
    return any(clue.tools and requests.by(clue) is not None for clue in clues)


def _is_sign(clues: Clues) -> bool:
    """Say whether a span is evidence of a model call: tokens in and out, or a question and its answer."""
    answered = any(message.role == "assistant" for message in clues.output_messages)
    asked = any(message.role in {"user", "system"} for message in clues.input_messages)
    is_agents = clues.kind in {ActionKind.AGENT, ActionKind.LLM}
    return (clues.tokens_in > 0 and clues.tokens_out > 0) or (answered and (asked or is_agents))


class _Run:
    """Classifies the spans of one run: calls first, then requested tools, then the spans around them."""

    def __init__(self, surroundings: Surroundings, clues: Sequence[Clues]) -> None:
        self._surroundings: Final = surroundings
        self._clues: Final = clues
        self._parents: Final = surroundings.parents
        self._evidence: Final[Counter[str]] = Counter()
        self._strengths: Final[list[float]] = []
        self._calls: Final = self._find_calls()
        self._call_keys: Final = frozenset(key_of(clues[at].span) for at in self._calls)
        self._below: Final = self._calls_below()
        self._starts: Final = sorted((clues[at].span.start_ns, clues[at].span.end_ns) for at in self._calls)
        self._asked: Final = _ToolRequests(clues)
        self._kinds: Final = [self._kind(position) for position in range(len(clues))]
        self._drop_repeated_handoffs()
        self._speakers: Final = Speakers(surroundings, clues, self._kinds)

    def _find_calls(self) -> frozenset[int]:
        """Return the positions of model calls: the innermost of nested spans, and those marked as calls."""
        likely = {position for position, clues in enumerate(self._clues) if _score(clues) >= _LEAST_SCORE}
        if any(self._clues[position].output_messages for position in likely):
            likely = {position for position in likely if _is_answered(self._clues[position])}
        around: set[int] = set()
        for position in likely:
            above = self._parents[position]
            while above >= 0 and above not in around:
                around.add(above)
                above = self._parents[above]
        found = frozenset(
            position
            for position in likely
            if position not in around or self._clues[position].kind is ActionKind.LLM
        )
        return found or self._answers()

    def _answers(self) -> frozenset[int]:
        """Return the spans that first show an answer, where neither calls nor agents have spans."""
        if any(clues.kind is ActionKind.AGENT for clues in self._clues):
            return frozenset()
        found: set[int] = set()
        shown: set[object] = set()
        for position, clues in enumerate(self._clues):
            output_messages = tuple(
                message for message in clues.output_messages if message.role == "assistant"
            )
            if output_messages and self._parents[position] >= 0 and output_messages not in shown:
                shown.add(output_messages)
                found.add(position)
        return frozenset(found)

    def _calls_below(self) -> list[int]:
        """Return for each span how many model calls are below it."""
        below = [0] * len(self._clues)
        for position in range(len(below) - 1, -1, -1):
            above = self._parents[position]
            if above >= 0:
                below[above] += below[position] + (position in self._calls)
        return below

    def _kind(self, position: int) -> ActionKind | None:
        clues = self._clues[position]
        if position in self._calls:
            return ActionKind.LLM
        stated = clues.kind
        if stated in _STATED:
            return self._stated_kind(position, stated)
        if clues.target and not self._below[position] and stated in {None, ActionKind.CONTAINER}:
            return ActionKind.HANDOFF
        if self._asked.by(clues):
            return ActionKind.AGENT if self._encloses_at_once(position) else ActionKind.TOOL
        if stated is ActionKind.LLM or not self._below[position]:
            return ActionKind.CONTAINER if stated is not None or clues.agents else None
        return ActionKind.WORKFLOW if self._parents[position] < 0 else ActionKind.CONTAINER

    def _stated_kind(self, position: int, stated: ActionKind | None) -> ActionKind | None:
        if stated is ActionKind.TOOL and self._is_part_of_tool(position):
            return ActionKind.CONTAINER
        if stated is ActionKind.AGENT and self._is_transfer(position):
            return ActionKind.HANDOFF
        return stated

    def _drop_repeated_handoffs(self) -> None:
        """Turn handoffs that repeat a transfer's target before any further model call into containers."""
        order = sorted(range(len(self._clues)), key=lambda at: (self._clues[at].span.start_ns, at))
        targets: set[str] = set()
        for at in order:
            clues, kind = self._clues[at], self._kinds[at]
            if kind is ActionKind.LLM:
                targets.clear()
            elif kind is ActionKind.TOOL and (call := self._asked.by(clues)) is not None:
                targets.add(plain(transfer_target(call.name, call.arguments) or ""))
            elif kind is ActionKind.HANDOFF and clues.target:
                if plain(clues.target) in targets:
                    self._kinds[at] = ActionKind.CONTAINER
                targets.add(plain(clues.target))

    def _is_transfer(self, position: int) -> bool:
        """Say whether an agent's span only records that a model requested a transfer to that agent."""
        clues = self._clues[position]
        if clues.got or self._surroundings.children(clues.span) or self._calls_during(clues.span):
            return False
        return self._asked.is_transfer_to([*(name for name, _ in clues.agents), bare_name(clues.span.name)])

    def _calls_during(self, span: Span) -> bool:
        """Say whether a model call runs within the span's time."""
        at = bisect_left(self._starts, (span.start_ns,))
        return at < len(self._starts) and self._starts[at][1] <= span.end_ns

    def _is_part_of_tool(self, position: int) -> bool:
        """Say whether a span is a stage of the tool around it: waiting for permission, running."""
        above, clues = self._parents[position], self._clues[position]
        return (
            above >= 0
            and self._clues[above].kind is ActionKind.TOOL
            and not clues.tools
            and self._asked.by(clues) is None
        )

    def _encloses_at_once(self, position: int) -> bool:
        """Say whether model calls are below a span with no other span around them in between."""
        if not self._below[position]:
            return False
        children = self._surroundings.children(self._clues[position].span)
        return any(key_of(child) in self._call_keys for child in children)

    def action(self, position: int) -> Action | None:
        """Return a span's action; ``None`` for plumbing."""
        kind, clues = self._kinds[position], self._clues[position]
        if kind is None:
            return None
        agent = self._speakers.agent(position)
        if kind is ActionKind.AGENT and _only_runs_tools(clues):
            return Action(dialect=NAME, kind=kind, pseudo_agent=True)
        self._note(kind, clues)
        read = {ActionKind.LLM: _call, ActionKind.TOOL: self._tool, ActionKind.HANDOFF: _handoff}.get(kind)
        return self._around(position, kind, agent) if read is None else read(clues, agent)

    def _around(self, position: int, kind: ActionKind, agent: Found) -> Action:
        clues = self._clues[position]
        seen = Observation(
            dialect=NAME,
            kind=kind,
            agent=agent,
            given=_request_in(clues),
            got=_answer_in(clues),
            instructions=clues.instructions,
        )
        action = action_of(clues.span, seen)
        if kind is not ActionKind.AGENT or self._below[position]:
            return action
        return replace(
            action,
            input_messages=clues.input_messages,
            output_messages=clues.output_messages,
            has_calls_beside=self._calls_during(clues.span),
        )

    def _tool(self, clues: Clues, agent: Found) -> Action:
        call = self._asked.by(clues)
        name = call.name if call else next(iter(clues.tools), "") or bare_name(clues.span.name)
        seen = Observation(
            dialect=NAME,
            kind=ActionKind.TOOL,
            agent=agent,
            given=clues.given if clues.given is not None else (call.arguments if call else None),
            got=clues.got,
            tool=name,
            call_id=next(iter(clues.ids & self._asked.ids), ""),
        )
        return action_of(clues.span, seen)

    def _note(self, kind: ActionKind, clues: Clues) -> None:
        """Record the evidence for an action."""
        if kind is ActionKind.LLM:
            self._evidence["model call"] += 1
            shown = (
                clues.has_tokens
                + bool(clues.input_messages)
                + bool(clues.output_messages)
                + (clues.kind is kind)
            )
            self._strengths.append(
                min(1.0, shown / 3) * (1.0 if self._speakers.is_known(clues.span) else 0.6)
            )
        elif kind is ActionKind.TOOL:
            self._evidence["tool call"] += 1
            self._strengths.append(1.0 if self._asked.by(clues) else 0.5)
        elif kind is ActionKind.HANDOFF:
            self._evidence["handoff"] += 1
            self._strengths.append(1.0 if clues.target else 0.5)

    def confidence(self) -> float:
        """Return the mean strength of the evidence, between the lowest and the highest."""
        mean = sum(self._strengths) / len(self._strengths) if self._strengths else 0.0
        return _LOWEST + (_HIGHEST - _LOWEST) * mean

    def seen(self) -> str:
        """Return the evidence as text."""
        counts = [f"{count} {what}{'s' * (count != 1)}" for what, count in self._evidence.items()]
        tokens = any(self._clues[position].has_tokens for position in self._calls)
        texts = any(self._clues[position].output_messages for position in self._calls)
        shown = [what for what, is_there in (("token counts", tokens), ("messages", texts)) if is_there]
        return f"{', '.join(counts) or 'agents only'} ({', '.join((*shown, self._speakers.described()))})"


_STATED: Final = frozenset(
    {ActionKind.TOOL, ActionKind.HANDOFF, ActionKind.AGENT}
    | {ActionKind.WORKFLOW, ActionKind.SETUP, ActionKind.GUARDRAIL, ActionKind.EVALUATION}
)
"""Kinds for which a stated value is enough evidence; ``chain`` and ``llm`` are stated too loosely."""


def _is_answered(clues: Clues) -> bool:
    return bool(clues.output_messages) or clues.has_tokens or is_failed(clues.span)


def _only_runs_tools(clues: Clues) -> bool:
    """Say whether a span marked as an agent only repeats tools' results: a framework's executor."""
    return bool(clues.output_messages) and all(message.role == "tool" for message in clues.output_messages)


def _score(clues: Clues) -> int:
    """Return the strength of the evidence that a span is a model call."""
    if clues.kind is not None and clues.kind is not ActionKind.LLM:
        return 0
    stated = 2 * (clues.kind is ActionKind.LLM)
    failed = is_failed(clues.span) and clues.kind is ActionKind.LLM
    return (
        stated
        + 2 * clues.has_tokens
        + bool(clues.input_messages)
        + bool(clues.output_messages)
        + bool(clues.model)
        + failed
    )


def _call(clues: Clues, agent: Found) -> Action:
    seen = Observation(
        dialect=NAME,
        kind=ActionKind.LLM,
        agent=agent,
        given=None if clues.input_messages else clues.given,
        got=None if clues.output_messages else clues.got,
        input_messages=clues.input_messages,
        output_messages=clues.output_messages,
        instructions=clues.instructions,
    )
    return action_of(clues.span, seen)


def _handoff(clues: Clues, agent: Found) -> Action:
    name = clues.span.name
    target = (
        clues.target
        or transfer_target(name, clues.given)
        or (agent.name if clues.kind is ActionKind.AGENT else None)
    )
    agent = NO_AGENT if clues.kind is ActionKind.AGENT else agent
    action = action_of(clues.span, Observation(dialect=NAME, kind=ActionKind.HANDOFF, agent=agent))
    return replace(action, tool=None, target=target or None)


def _request_in(clues: Clues) -> object:
    if clues.given is not None:
        return clues.given
    return next((message.text for message in clues.input_messages if message.role == "user"), None)


def _answer_in(clues: Clues) -> object:
    if clues.got is not None:
        return clues.got
    return next((message.text for message in reversed(clues.output_messages) if message.text), None)


class _ToolRequests:
    """The tool calls that models requested, by name and by id."""

    def __init__(self, calls: Sequence[Clues]) -> None:
        self._names: dict[str, ToolCall] = {}
        self._ids: dict[str, ToolCall] = {}
        for clues in calls:
            for message in (*clues.output_messages, *clues.input_messages):
                for call in message.calls:
                    if call.name:
                        self._names.setdefault(call.name, call)
                    if call.call_id:
                        self._ids.setdefault(call.call_id, call)
        targets = (transfer_target(call.name, call.arguments) for call in self._names.values())
        self._transfers: Final = frozenset(plain(target) for target in targets if target)
        self.ids: Final = frozenset(self._ids)

    def is_transfer_to(self, names: Sequence[str]) -> bool:
        """Say whether a model requested a transfer to an agent with one of these names."""
        return not self._transfers.isdisjoint(plain(name) for name in names)

    def by(self, clues: Clues) -> ToolCall | None:
        """Return the requested call that a span executes; ``None`` if no model requested it."""
        for each in clues.ids:
            if each in self._ids:
                return self._ids[each]
        own = clues.span.name
        for name in (*clues.tools, *clues.names, own, bare_name(own), *own.replace(":", " ").split()):
            if name in self._names:
                return self._names[name]
        return None


# --- mappings ---
#
# Proposal of a mapping for a run that was read by inference; the user corrects it.


_MODEL_FIELDS: Final = {"input_messages": "input", "output_messages": "output"}


def propose(inferred: Inferred, spans: Sequence[Span], name: str) -> SpanMapping:
    """Return the mapping with which a dialect would read the inferred actions.

    The field of an attribute is the one that most spans read from it. Kinds go by the attribute that states
    them on most spans; spans that have none, by their names.
    """
    read = [span for span in spans if key_of(span) in inferred.actions]
    votes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    stating: Counter[str] = Counter()
    for span in read:
        sources = inferred.sources.get(key_of(span), {})
        stating.update([sources["kind"]] if "kind" in sources else [])
        is_call = inferred.actions[key_of(span)].kind is ActionKind.LLM
        for field, attribute in _fields(sources, is_call=is_call).items():
            votes[attribute][field] += 1
    attribute = max(stating, key=lambda key: (stating[key], key), default="")
    kinds = _majority([(text(span.attributes, attribute) or "", _kind(inferred, span)) for span in read])
    kinds.pop("", None)
    others = [span for span in read if not attribute or not text(span.attributes, attribute)]
    return SpanMapping(
        name=name,
        scopes=tuple(sorted({span.scope.name for span in read} - {""})),
        kind_attribute=attribute if kinds else "",
        kinds=kinds,
        names=_majority([(span.name, _kind(inferred, span)) for span in others if span.name]),
        fields={key: count.most_common(1)[0][0] for key, count in sorted(votes.items()) if key != attribute},
    )


def _fields(sources: Mapping[str, str], *, is_call: bool) -> Mapping[str, str]:
    found = {field: key for field, key in sources.items() if field in FIELDS}
    if is_call:  # its messages are the input, not the longest other text
        found |= {_MODEL_FIELDS[field]: key for field, key in sources.items() if field in _MODEL_FIELDS}
    return found


def _kind(inferred: Inferred, span: Span) -> ActionKind:
    action = inferred.actions[key_of(span)]
    kind = action.kind
    if kind is ActionKind.HANDOFF and action.tool:
        return ActionKind.TOOL  # its name tells that it hands over
    return kind if kind.value in KINDS else ActionKind.CONTAINER


def _majority(pairs: Sequence[tuple[str, ActionKind]]) -> dict[str, ActionKind]:
    votes: defaultdict[str, Counter[ActionKind]] = defaultdict(Counter)
    for key, kind in pairs:
        votes[key[:200]][kind] += 1
    return {key: count.most_common(1)[0][0] for key, count in sorted(votes.items())}
