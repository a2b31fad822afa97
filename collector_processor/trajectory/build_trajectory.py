"""Trajectory of a run whose steps are known: each step's texts, kind and relations, and the run's outline.

The outline is the run's task, answer, outcome and root, and whether its spans are complete. Frameworks put
these in different places, or leave them out; each is searched for from the top of the run down to its first
and last steps.

Turns of one conversation are runs of one agent that follow each other, side by side under a session's or a
server's span. A turn that ends in an error failed its user, whatever the next turn does, unless a later turn
answers the same request: then it was retried. Different agents that follow each other are no turns: they are
one run, in which another may make up for the failed one. Pure, and linear in the spans.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, takewhile
from operator import attrgetter
from typing import Final

from collector_processor.trajectory.acts import AGENT, HANDOFF, LLM, MODEL_KINDS, TOOL, Act, Ordering
from collector_processor.trajectory.agents import Settled, agents_of, settle
from collector_processor.trajectory.endings import (
    failed_evaluations,
    heads_of_end,
    stated_outcome,
    stop_of_run,
    words_of_stop,
)
from collector_processor.trajectory.relations import causes_of
from collector_processor.trajectory.step_texts import (
    NewInput,
    NewMessages,
    in_head,
    output_text,
    shortened,
)
from semconv.dialects import Action, ActionKind, Message
from semconv.dialects.reading.messages import body_of, last_answer, last_request
from semconv.dialects.reading.tools import Lists, listing_tools, tools_in
from semconv.dialects.reading.values import error_of
from semconv.markers import ATTRIBUTE_PREFIXES, SCOPE_PREFIXES
from semconv.model import (
    UNKNOWN_AGENT,
    AgentSource,
    Completion,
    ContentState,
    Span,
    SpanStatus,
    Step,
    StepKind,
    Stop,
    ToolCall,
    Trace,
    Trajectory,
)
from semconv.record import record, replace

_WHOLE: Final = frozenset({Completion.ROOT_ENDED, Completion.IDLE, Completion.RECORDED})
"""Completions after which no more of the run is expected."""


@record
class Ending:
    """Status of the run's root at its end."""

    root: Span | None
    status: SpanStatus = SpanStatus.UNSET
    error: str = ""
    """Set even if the root says OK but something below ended the run, or a turn of it, in error."""
    stop: Stop | None = None
    """Why the run ended early on purpose; ``error`` then says so in the framework's words."""
    failed_turn: tuple[int, int] | None = None
    """Indices of the first and the last step of the turn that the error ended, if the run went on."""


def task_of(ordering: Ordering, steps: Sequence[Act]) -> str:
    """Return the run's task: from its top, else its first model call, else any agent."""
    return next(filter(None, _tasks(ordering, steps)), "")


def _tasks(ordering: Ordering, steps: Sequence[Act]) -> Iterator[str]:
    for _, action in ordering.tops:
        yield action.task
    first = next((act for act in steps if act.action.kind is LLM), None)
    if first is not None:
        yield last_request(first.action.input_messages) or first.action.input
    for action in filter(None, ordering.actions):
        yield action.task
    yield from (act.action.input for act in steps[:1] if act.action.tool is None)


def output_of(ordering: Ordering, steps: Sequence[Act]) -> str:
    """Return the run's answer: from the top span that ended last, else the last model call's words.

    Empty if the run's last step failed; text from before a top span's failure is not an answer.
    """
    tops = sorted(ordering.tops, key=lambda top: (top[0].end_ns, top[0].span_id))
    unfailed = takewhile(lambda top: not (top[1].failed or top[1].stop), reversed(tops))
    stated = next((action.answer for _, action in unfailed if action.answer), "")
    if stated or not steps or steps[-1].action.failed or steps[-1].action.stop:
        return stated
    for act in reversed(steps):
        output = last_answer(act.action.output_messages) or (
            act.action.output if not act.action.output_messages else ""
        )
        if output and act.action.kind in MODEL_KINDS:
            return output
    return ""


def ending_of(ordering: Ordering, steps: Sequence[Act]) -> Ending:
    """Return the root's status, and the error that ended the run, wherever it is recorded.

    openai-agents' root says OK after HTTP 500 and MaxTurnsExceeded; the agent below has the error.
    An error counts as the end if no step begins after the failed span ended. In a conversation of several
    turns, the error of each counts. A run that waited also ended as the part that resumed it.
    """
    turns = turns_of(ordering, steps)
    top = next(iter(ordering.tops), None)
    root = _root_of(ordering, top[0] if top else (steps[0].span if steps else None))
    if root is None:
        return Ending(root=None)
    heads = [root] if turns or top is None or top[0] is root else [root, top[0]]
    if Stop.WAITING in ordering.stops.values():
        heads.extend(ordering.spans[position] for position in heads_of_end(ordering, steps))
    stop, failed_one = stop_of_run(ordering, steps), failed_turn(turns)
    if stop is not None and failed_one is None:
        return Ending(root=root, status=root.status, error=words_of_stop(ordering), stop=stop)
    stopped = {ordering.spans[position].span_id for position in ordering.stops}
    failed = [span for span in heads if span.status is SpanStatus.ERROR and span.span_id not in stopped]
    if failed:
        error = next(filter(None, map(error_of, failed)), "")
        return Ending(root=root, status=SpanStatus.ERROR, error=error or _fatal_error(ordering, steps))
    status = SpanStatus.UNSET if root.span_id in stopped else root.status
    fatal = _fatal_error(ordering, steps)
    if fatal or failed_one is None:
        return Ending(root=root, status=status, error=fatal)
    error = failed_one.action.error or "unspecified error"
    within = failed_one.steps[0], failed_one.steps[-1]
    return Ending(root=root, status=status, error=error, failed_turn=within)


def _root_of(ordering: Ordering, span: Span | None) -> Span | None:
    if span is None:
        return ordering.spans[0] if ordering.spans else None
    root = span
    for above in ordering.surroundings.ancestors(span):
        root = above
    return root


def _fatal_error(ordering: Ordering, steps: Sequence[Act]) -> str:
    last_start_ns = max((act.span.start_ns for act in steps), default=0)
    fatal = [
        (act.span.end_ns, -act.index, act.action.error)
        for act in ordering.acts
        if act.action.failed
        and act.span.end_ns >= last_start_ns
        and (act.action.kind is AGENT or (bool(steps) and act.index == steps[-1].index))
    ]
    if not fatal:
        return ""
    return max(fatal)[2] or "unspecified error"


def is_whole(trace: Trace, steps: Sequence[Act]) -> bool:
    """Say whether the run is complete, as far as its spans show.

    A tool in a trace without model calls has lost its context on the way (with threads, for example).
    """
    models = any(act.action.kind in MODEL_KINDS for act in steps)
    tools = any(act.action.kind is TOOL and act.agent is None for act in steps)
    return trace.complete and trace.completion in _WHOLE and (models or not tools)


_LOSSES: Final = frozenset({ContentState.DROPPED, ContentState.TRUNCATED})
_STEP_KINDS: Final[Mapping[ActionKind, StepKind]] = {
    ActionKind.LLM: StepKind.LLM,
    ActionKind.TOOL: StepKind.TOOL,
    ActionKind.HANDOFF: StepKind.HANDOFF,
    ActionKind.HUMAN: StepKind.HUMAN,
    ActionKind.OTHER: StepKind.OTHER,
    ActionKind.GUARDRAIL: StepKind.OTHER,
    ActionKind.AGENT: StepKind.LLM,  # represents model calls that have no spans
}


def trajectory_of(trace: Trace, ordering: Ordering) -> Trajectory:
    """Return the trajectory of ``trace``, which all passes have ordered.

    A trace without steps gives an empty trajectory with a warning that says why.
    """
    acts = ordering.chosen()
    steps = _steps(ordering, acts)
    stated, ending = stated_outcome(ordering), ending_of(ordering, acts)
    return Trajectory(
        run_id=trace.run_id or _run_id(trace.spans),
        steps=steps,
        task=shortened(task_of(ordering, acts)),
        output=shortened(output_of(ordering, acts)),
        reference=stated.reference,
        outcome=stated.outcome,
        outcome_source=stated.source,
        complete=is_whole(trace, acts),
        agents=_unique(step.agent for step in steps if step.agent != UNKNOWN_AGENT),
        dialects=_unique(action.dialect for action in ordering.actions if action is not None),
        warnings=(*trace.warnings, *_warnings(ordering, steps)),
        root_trace_id=ending.root.trace_id if ending.root else None,
        root_span_id=ending.root.span_id if ending.root else None,
        root_status=ending.status,
        root_error=shortened(ending.error),
        stop=ending.stop,
        failed_turn=ending.failed_turn,
    )


def _run_id(spans: Sequence[Span]) -> str:
    """Return the trace id; if there are several, that of the earliest span."""
    return min(spans, key=attrgetter("start_ns", "trace_id")).trace_id if spans else ""


def _steps(ordering: Ordering, acts: Sequence[Act]) -> tuple[Step, ...]:
    agents, causes = agents_of(ordering), causes_of(ordering, acts)
    failed = failed_evaluations(ordering)
    new_messages, toolbox = NewMessages(), _Toolbox(ordering.acts)
    steps: list[Step] = []
    following: Sequence[Act | None] = [*acts[1:], None]
    for index, (act, after) in enumerate(zip(acts, following, strict=False)):
        new_input = new_messages.take(act) if act.action.input_messages else NewInput(act.action.input)
        settled, group = settle(act, after, agents), ordering.groups.get(act.position)
        step = _step(act, settled, new_input, toolbox.of(act), index=index, group=group, causes=causes[index])
        evaluations = failed.get(act.position, ())
        steps.append(replace(step, failed_evaluations=evaluations) if evaluations else step)
    new_messages.recover_answers(ordering)
    for index, act in enumerate(acts):
        if act.action.kind is LLM and act.index in new_messages.recovered:
            steps[index] = _recovered(steps[index], new_messages.recovered[act.index])
    return tuple(steps)


class _Toolbox:
    """The tools that agents could call; a list is parsed once, even if many steps carry it."""

    def __init__(self, acts: Sequence[Act]) -> None:
        self._acts = acts
        self._of_turn: dict[int, str] = {}
        self._known: dict[Lists, str] = {(): ""}
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}
        """Names of attributes that list tools, by a span's set of attribute names: few such sets recur."""

    def of(self, act: Act) -> str:
        own = self._read(act.span)
        if own or act.runner is None:
            return own
        if act.runner not in self._of_turn:
            self._of_turn[act.runner] = self._read(self._acts[act.runner].span)
        return self._of_turn[act.runner]

    def _read(self, span: Span) -> str:
        names = tuple(span.attributes)
        listing = self._names.get(names)
        if listing is None:
            listing = self._names[names] = listing_tools(names)
        lists = tuple([(name, span.attributes[name]) for name in listing])
        try:
            known = self._known.get(lists)
        except TypeError:  # objects instead of JSON text cannot be a cache key
            return tools_in(lists)
        if known is None:
            known = self._known[lists] = tools_in(lists)
        return known


def _step(
    act: Act,
    settled: Settled,
    new_input: NewInput,
    tools: str,
    *,
    index: int,
    group: int | None,
    causes: tuple[int, ...],
) -> Step:
    action, span = act.action, act.span
    output, said = output_text(action.output_messages) if action.output_messages else (action.output, ())
    kept_input, kept_output = new_input.shortened(), shortened(output)
    is_cut = kept_input is not new_input or kept_output is not output
    has_words = bool(new_input.text or output)
    return Step(
        index=index,
        agent=act.agent or UNKNOWN_AGENT,
        kind=_STEP_KINDS[settled.kind],
        agent_source=act.agent_source if act.agent is not None else AgentSource.UNKNOWN,
        trace_id=span.trace_id,
        span_id=span.span_id,
        name=span.name,
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        status=act.status,
        error=shortened(action.error),
        input=kept_input.text,
        heard=kept_input.heard,
        output=kept_output,
        said=said if kept_output is output else in_head(said),
        calls=tuple(map(_kept_call, action.requested)),
        call_id=action.call_id,
        target=settled.target,
        content=_content(act, has_words=has_words, has_output=bool(output), is_cut=is_cut),
        instructions=shortened(action.instructions),
        tools=tools,
        group=group,
        causes=causes,
        stop=action.stop,
        is_whole_turn=settled.kind is AGENT,
    )


def _kept_call(call: ToolCall) -> ToolCall:
    kept = shortened(call.arguments)
    return call if kept is call.arguments else replace(call, arguments=kept)


def _content(act: Act, *, has_words: bool, has_output: bool, is_cut: bool) -> ContentState:
    if act.action.redacted:
        return ContentState.REDACTED
    if act.span.dropped_attributes:
        return ContentState.TRUNCATED if has_output or act.action.failed else ContentState.DROPPED
    if not has_words and not act.action.failed and act.action.kind is not HANDOFF:
        return ContentState.ABSENT
    return ContentState.TRUNCATED if is_cut else ContentState.COMPLETE


def _recovered(step: Step, message: Message) -> Step:
    output = body_of(message)
    is_cut = step.content is ContentState.DROPPED or shortened(output) is not output
    kept = ContentState.COMPLETE if step.content is ContentState.ABSENT else step.content
    return replace(
        step,
        output=shortened(output),
        calls=tuple(map(_kept_call, message.calls)),
        content=ContentState.TRUNCATED if is_cut else kept,
    )


def _warnings(ordering: Ordering, steps: Sequence[Step]) -> tuple[str, ...]:
    inferred = () if ordering.inferred is None else (ordering.inferred.summary,)
    return (*inferred, *_shortcomings(ordering, steps))


def _shortcomings(ordering: Ordering, steps: Sequence[Step]) -> tuple[str, ...]:
    if not steps:
        if any(action is not None for action in ordering.actions):
            return ("no steps: the agent spans enclose no model call, tool or handoff",)
        strange = sorted(
            {span.scope.name or "no scope" for span in ordering.spans if _looks_like_an_agents(span)}
        )
        if strange:
            return (f"no steps: agent spans of a dialect that is not known ({', '.join(strange[:5])})",)
        return ("no steps: no agent span among these",)
    dropped = sum(1 for step in steps if step.content in _LOSSES)
    return (f"{dropped} of {len(steps)} steps lost content to limits",) if dropped else ()


def _looks_like_an_agents(span: Span) -> bool:
    return span.scope.name.startswith(SCOPE_PREFIXES) or any(
        name.startswith(ATTRIBUTE_PREFIXES) for name in span.attributes
    )


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


_RUNS: Final = frozenset({ActionKind.AGENT, ActionKind.WORKFLOW})
_COMPARED: Final = 2_000
"""Characters of a request that tell it from another."""


@record
class Turn:
    """One turn and its steps."""

    span: Span
    action: Action
    steps: Sequence[int]
    """Indices of its steps, in order."""
    request: str
    """The person's request, for comparison; empty if it is not recorded."""


def turns_of(ordering: Ordering, steps: Sequence[Act]) -> tuple[Turn, ...]:
    """Return the run's turns, in order; empty if it is not a conversation of several turns."""
    top_of = _top_of(ordering)
    inside: dict[int, list[int]] = {place: [] for place in top_of if place >= 0}
    for index, act in enumerate(steps):
        if (top := top_of[act.position]) >= 0:
            inside[top].append(index)
    turns = [
        _turn(ordering.spans[place], action, of_turn, steps)
        for place, of_turn in inside.items()
        if (action := ordering.actions[place]) is not None
    ]
    turns.sort(key=lambda turn: (turn.span.start_ns, turn.span.span_id))
    follow = all(before.span.end_ns <= after.span.start_ns for before, after in pairwise(turns))
    speakers = {(turn.action.kind, turn.action.agent or turn.span.name) for turn in turns}
    return tuple(turns) if len(turns) > 1 and follow and len(speakers) == 1 else ()


def failed_turn(turns: Sequence[Turn]) -> Turn | None:
    """Return the first turn before the last that failed and was not retried with success.

    If its request is not recorded, any later success may be its retry.
    """
    answered = [turn for turn in turns if not turn.action.failed]
    last = answered[-1].span.start_ns if answered else 0
    latest = {turn.request: turn.span.start_ns for turn in answered}
    for turn in turns[:-1]:
        retried = latest.get(turn.request, 0) if turn.request else last
        if turn.action.failed and turn.steps and retried < turn.span.end_ns:
            return turn
    return None


def _top_of(ordering: Ordering) -> list[int]:
    """Return the place of the topmost agent or workflow around each span, or -1.

    A single workflow around everything, without a task or an answer of its own, is a session: looked through.
    """
    session = None
    if len(ordering.tops) == 1:
        span, top = ordering.tops[0]
        is_bare = top.kind is ActionKind.WORKFLOW and not top.task and not top.answer
        session = span if is_bare else None
    found: list[int] = []
    for place, action in enumerate(ordering.actions):
        parent = ordering.parents[place]
        above = found[parent] if parent >= 0 else -1
        is_run = action is not None and action.kind in _RUNS and ordering.spans[place] is not session
        found.append(place if above < 0 and is_run else above)
    return found


def _turn(span: Span, action: Action, inside: Sequence[int], steps: Sequence[Act]) -> Turn:
    first = next((steps[index].action for index in inside if steps[index].action.kind in MODEL_KINDS), None)
    asked = (last_request(first.input_messages) or first.input) if first else ""
    request = " ".join((action.task or asked)[:_COMPARED].casefold().split())
    return Turn(span=span, action=action, steps=inside, request=request)
