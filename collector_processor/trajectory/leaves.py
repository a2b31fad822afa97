"""Which acts are steps.

Steps are the leaves: model calls, tools, handoffs; an agent only where nothing
below shows what it did. Not steps: final-answer tools, tools that only enclose
an agent, doubled spans, guardrails that stopped nothing. Source: the ordering
rules of the convention, each from traces that frameworks emit.

Decided from the leaves upwards; an act asks only what is directly below it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from collector_processor.trajectory.acts import MODEL_KINDS, Act, Stage
from collector_processor.trajectory.delegates import Delegates
from collector_processor.trajectory.deliveries import Deliveries, bare
from collector_processor.trajectory.doubles import fold_doubles
from collector_processor.trajectory.handoffs import plain
from semconv.dialects import ActionKind
from semconv.dialects.conversation import last_answer
from semconv.dialects.reading import words

FINAL_ANSWER_TOOLS: Final = frozenset({"final_answer", "FinalAnswerTool", "finalanswer"})
_TOOLS: Final = frozenset({ActionKind.TOOL, ActionKind.HANDOFF})


@dataclass(slots=True)
class _Shown:
    """What the steps at and below an act show."""

    count: int = 0
    only: Act | None = None
    """The step, where there is exactly one."""
    has_agent: bool = False
    """An agent's run with steps is at or below."""
    has_call: bool = False
    """A model call is at or below."""
    latest: Act | None = None
    latest_ns: int = 0
    """The latest step, and its place in time."""

    def add(self, other: _Shown) -> None:
        self.only = other.only if self.count == 0 else (self.only if other.count == 0 else None)
        self.count += other.count
        self.has_agent = self.has_agent or other.has_agent
        self.has_call = self.has_call or other.has_call
        if other.latest_ns >= self.latest_ns:
            self.latest, self.latest_ns = other.latest, other.latest_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """An act that is a step, and its place in time."""

    act: Act
    at_ns: int
    """Where it stands: its start; its end if what it says belongs after the steps it encloses."""
    is_closing: bool = False
    """It stands at its end."""

    @property
    def place(self) -> tuple[int, bool, int, int]:
        """Sort key: closing steps before what starts as they end, inner before outer; ties by the walk."""
        position = self.act.position
        return (
            self.at_ns,
            not self.is_closing,
            self.act.span.end_ns,
            -position if self.is_closing else position,
        )


class _Sieve:
    """Goes through the acts, children first, and keeps the steps."""

    def __init__(self, stage: Stage) -> None:
        self._acts = stage.acts
        self._leaves: dict[int, Leaf] = {}
        self._shown: dict[int, _Shown] = {}
        self._has_own_words: set[int] = set()
        """Agents (by position) below which a model call of theirs is a step."""
        self._delegates = Delegates(stage)
        self._deliveries = Deliveries(stage.acts)
        self._doubled = fold_doubles(stage)

    def sift(self) -> list[Leaf]:
        for act in reversed(self._acts):
            shown = _Shown()
            for child in act.below:
                shown.add(self._shown[child.position])
            self._decide(act, shown)
            self._shown[act.position] = shown
        return sorted(self._leaves.values(), key=lambda leaf: leaf.place)

    def _decide(self, act: Act, shown: _Shown) -> None:
        match act.action.kind:
            case ActionKind.LLM if act.position in self._doubled:
                pass
            case ActionKind.LLM:
                self._decide_llm(act, shown)
            case ActionKind.TOOL | ActionKind.HANDOFF:
                self._decide_tool(act, shown)
            case ActionKind.AGENT:
                self._decide_agent(act, shown)
            case ActionKind.GUARDRAIL:
                if act.action.failed:
                    self._keep(act, shown, closing=shown.count > 0)
            case _ if shown.count == 0:
                self._keep(act, shown)

    def _keep(self, act: Act, shown: _Shown, *, closing: bool = False, before: Act | None = None) -> None:
        """Make ``act`` a step; a closing one stands after all that it encloses, or right before one of it."""
        at_ns = max(_end(act), shown.latest_ns + 1) if closing else act.span.start_ns
        at_ns = before.span.start_ns if before is not None else at_ns
        self._leaves[act.position] = Leaf(act=act, at_ns=at_ns, is_closing=closing)
        shown.only = act if shown.count == 0 else None
        shown.count += 1
        shown.has_call = shown.has_call or act.action.kind is ActionKind.LLM
        if at_ns >= shown.latest_ns:
            shown.latest, shown.latest_ns = act, at_ns
        if act.action.kind in MODEL_KINDS:
            owner = act if act.action.kind is ActionKind.AGENT else act.runner
            if owner is not None:
                self._has_own_words.add(owner.position)

    def _decide_llm(self, act: Act, shown: _Shown) -> None:
        if not act.below:  # as most are
            self._keep(act, shown)
            return
        models = [each for each in act.below if each.action.kind is ActionKind.LLM]
        if not models and _is_several(act):
            self._keep(act, shown, closing=True, before=_asked_below(act))
        elif not models:
            self._keep(act, shown)
        elif len(act.below) == 1 and shown.only is not None and shown.only.action.kind is ActionKind.LLM:
            self._merge(act, shown.only, shown)
        # else it is a loop of calls (an SDK's generate with its tools), a container

    def _decide_tool(self, act: Act, shown: _Shown) -> None:
        action = act.action
        inner = shown.only
        if action.kind is ActionKind.HANDOFF and shown.has_agent:
            self._keep(act, shown)
        elif shown.count == 0:
            if not self._is_told_elsewhere(act):
                self._keep(act, shown)
        elif inner is not None and inner.action.kind in _TOOLS and _same_tool(act, inner):
            self._merge(act, inner, shown)
        elif not shown.has_agent and not _others_work(act):
            self._keep(act, shown, closing=True)

    def _is_told_elsewhere(self, act: Act) -> bool:
        return (
            self._is_answer(act)
            or self._delegates.work_beside(act)
            or self._deliveries.is_shown_by_another(act)
        )

    def _is_answer(self, act: Act) -> bool:
        return act.action.tool in FINAL_ANSWER_TOOLS and not act.action.failed

    def _decide_agent(self, act: Act, shown: _Shown) -> None:
        is_covered = act.position in self._has_own_words
        if shown.count == 0:
            if not act.action.pseudo_agent:
                self._keep(act, shown)
                is_covered = True
        elif not is_covered and self._adds_words(act, shown):
            self._keep(act, shown, closing=True)
            is_covered = True
        shown.has_agent = shown.count > 0 or shown.has_agent
        outer = act.runner
        if is_covered and outer is not None and outer.agent in {None, act.agent}:
            self._has_own_words.add(outer.position)  # the same agent twice: doubled instrumentation

    def _adds_words(self, act: Act, shown: _Shown) -> bool:
        """Say whether the agent's answer or error is shown by no model call below.

        Where model calls of the agents below are shown, its own would be too: it only wraps them.
        """
        if act.action.pseudo_agent or not (act.action.output or act.action.failed):
            return False
        if shown.has_call and not act.action.failed:
            return False
        last = shown.latest
        return last is None or last.action.kind not in MODEL_KINDS or _words_of(last) != act.action.output

    def _merge(self, outer: Act, inner: Act, shown: _Shown) -> None:
        """Keep one of two spans of the same act: the one that tells more, else the outer."""
        if inner.richness > outer.richness:
            inner.absorb(outer)
            return
        outer.absorb(inner)
        del self._leaves[inner.position]
        shown.count, shown.only = 0, None
        self._keep(outer, shown)


def leaves(stage: Stage) -> list[Leaf]:
    """Return the steps among the acts, in order."""
    return _Sieve(stage).sift()


def _is_several(act: Act) -> bool:
    """Say whether a model's span encloses tool calls it did not ask for: then it stands for several calls.

    It tells the last of them (ADK 2 under OpenInference 1.0.5 writes each over the agent's span; Google's
    client calls functions by itself, and has one span for all, whose answer asks for nothing).
    """
    asked = {call.call_id for call in act.action.requested}
    called = {each.action.call_id for each in act.below if each.action.kind in _TOOLS}
    if called and not asked:
        return bool(last_answer(act.action.said))
    return bool(act.action.said) and "" not in called | asked and not called <= asked


def _asked_below(act: Act) -> Act | None:
    asked = {call.call_id for call in act.action.requested}
    return next((each for each in act.below if each.action.call_id and each.action.call_id in asked), None)


def _end(act: Act) -> int:
    """Return when an act ended: an agent that a tool runs, at the latest with the tool.

    The Claude Agent SDK's subagents end with the whole run (OpenInference 0.1.22).
    """
    above = act.above
    is_run_by_tool = act.action.kind is ActionKind.AGENT and above is not None and above.action.kind in _TOOLS
    return (
        min(act.span.end_ns, above.span.end_ns) if above is not None and is_run_by_tool else act.span.end_ns
    )


def _same_tool(outer: Act, inner: Act) -> bool:
    name = bare if inner.action.is_delivery else plain
    return name(outer.action.tool or "") == name(inner.action.tool or "")


def _others_work(act: Act) -> bool:
    """Say whether what the tool encloses is another agent's work (an agent as a tool, without agent span)."""
    return any(child.agent is not None and child.agent != act.agent for child in act.below)


def _words_of(act: Act) -> str:
    return last_answer(act.action.said) or words(act.action.output)
