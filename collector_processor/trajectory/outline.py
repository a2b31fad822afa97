"""What a run as a whole says: its task, answer, outcome, root and whether it is all there.

Frameworks differ in where they put these, or leave them out; each is looked for
from the top of the run down to its first and last steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from collector_processor.trajectory.acts import MODEL_KINDS, Act, Stage
from semconv.dialects import Action, ActionKind
from semconv.dialects.conversation import last_answer, last_request
from semconv.dialects.reading import error_of
from semconv.model import Completion, Outcome, OutcomeSource, Span, SpanStatus, Trace

_WHOLE: Final = frozenset({Completion.ROOT_ENDED, Completion.IDLE, Completion.RECORDED})
"""Ways of being released after which no more of the run is expected."""
_OUTCOME_WORDS: Final = ("correct", "success", "outcome", "task", "accuracy", "goal", "resolv", "answer")
"""An evaluation named with one of these judges the run, whichever span it hangs on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How the run's root ended."""

    root: Span | None
    status: SpanStatus = SpanStatus.UNSET
    error: str = ""
    """Not empty also where the root says OK and something below ended the run in error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """The outcome, as the run or an evaluator in it states it."""

    outcome: Outcome | None = None
    source: OutcomeSource | None = None
    reference: str | None = None


def task_of(stage: Stage, steps: Sequence[Act]) -> str:
    """Return what the run was asked: from its top, else its first model call, else any agent."""
    return next(filter(None, _tasks(stage, steps)), "")


def _tasks(stage: Stage, steps: Sequence[Act]) -> Iterator[str]:
    for _, action in stage.tops:
        yield action.task
    first = next((act for act in steps if act.action.kind is ActionKind.LLM), None)
    if first is not None:
        yield last_request(first.action.heard) or first.action.input
    for action in filter(None, stage.actions):
        yield action.task
    yield from (act.action.input for act in steps[:1] if act.action.tool is None)


def output_of(stage: Stage, steps: Sequence[Act]) -> str:
    """Return the run's answer: from the top span that ended last, else the last model call's words.

    Empty for a run whose last step failed; what was said before a top span failed is no answer.
    """
    tops = sorted(stage.tops, key=lambda top: (top[0].end_ns, top[0].span_id))
    unfailed = takewhile(lambda top: not top[1].failed, reversed(tops))
    stated = next((action.answer for _, action in unfailed if action.answer), "")
    if stated or not steps or steps[-1].action.failed:
        return stated
    for act in reversed(steps):
        said = last_answer(act.action.said) or (act.action.output if not act.action.said else "")
        if said and act.action.kind in MODEL_KINDS:
            return said
    return ""


def stated_outcome(stage: Stage) -> Stated:
    """Return the outcome that the run states, else what evaluators in it say."""
    actions = [action for action in stage.actions if action is not None]
    reference = next((action.reference for action in actions if action.reference is not None), None)
    stating = next((action for action in actions if action.outcome is not None), None)
    if stating is not None:
        return Stated(outcome=stating.outcome, source=stating.outcome_source, reference=reference)
    verdicts = {outcome for action in actions for outcome in _judged(action)}
    if not verdicts:
        return Stated(reference=reference)
    outcome = Outcome.FAILURE if Outcome.FAILURE in verdicts else Outcome.SUCCESS
    return Stated(outcome=outcome, source=OutcomeSource.EVALUATOR, reference=reference)


def _judged(action: Action) -> Iterator[Outcome]:
    """Yield verdicts on the run: any on a workflow, elsewhere those whose name says so."""
    for judgement in action.judgements:
        name = judgement.name.lower()
        is_on_run = action.kind is ActionKind.WORKFLOW or any(word in name for word in _OUTCOME_WORDS)
        if judgement.outcome is not None and is_on_run:
            yield judgement.outcome


def ending_of(stage: Stage, steps: Sequence[Act]) -> Ending:
    """Return the root's status, and the error that ended the run wherever it stands.

    openai-agents' root says OK after HTTP 500 and MaxTurnsExceeded; the agent below has the error.
    An error counts as the end where no step begins after the failed span ended.
    """
    top = next(iter(stage.tops), None)
    root = _root_of(stage, top[0] if top else (steps[0].span if steps else None))
    if root is None:
        return Ending(root=None)
    heads = [root] if top is None or top[0] is root else [root, top[0]]
    failed = [span for span in heads if span.status is SpanStatus.ERROR]
    if failed:
        error = next(filter(None, map(error_of, failed)), "")
        return Ending(root=root, status=SpanStatus.ERROR, error=error or _fatal_error(stage, steps))
    return Ending(root=root, status=root.status, error=_fatal_error(stage, steps))


def _root_of(stage: Stage, span: Span | None) -> Span | None:
    if span is None:
        return stage.spans[0] if stage.spans else None
    root = span
    for above in stage.surroundings.ancestors(span):
        root = above
    return root


def _fatal_error(stage: Stage, steps: Sequence[Act]) -> str:
    last_start_ns = max((act.span.start_ns for act in steps), default=0)
    fatal = [
        (act.span.end_ns, -act.position, act)
        for act in stage.acts
        if act.action.failed
        and act.span.end_ns >= last_start_ns
        and (act.action.kind is ActionKind.AGENT or (bool(steps) and act is steps[-1]))
    ]
    if not fatal:
        return ""
    return max(fatal)[2].action.error or "unspecified error"


def is_whole(trace: Trace, steps: Sequence[Act]) -> bool:
    """Say whether the run is all there, as far as its spans show.

    A tool that runs where no model call is seen lost its context on the way (threads do that).
    """
    models = any(act.action.kind in MODEL_KINDS for act in steps)
    tools = any(act.action.kind is ActionKind.TOOL and act.agent is None for act in steps)
    return trace.complete and trace.completion in _WHOLE and (models or not tools)
