"""Runs that one execution of a program shows: its traces and its model calls, put together. Pure.

A program that calls one agent after the other leaves a trace for each: three ``Runner.run`` of OpenAI Agents,
three agents of Pydantic AI; without spans, a conversation for each. A service must keep such traces apart,
since a person who pastes an answer into a new question leaves the same ones (``rebuild.runs``). Here one
program ran, once, so they are one run unless something says otherwise: a workflow that the program declares,
an agent that begins anew with a question that uses no earlier answer, as in a loop over questions, or a
question that has nothing to do with what came before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from analyzer.programs.call_spans import (
    RUN_SCOPE,
    NewId,
    conversations,
    joined_with,
    numbering,
    owners_of,
    program_span,
    seen_calls,
    spans_of_seen,
)
from analyzer.programs.model_call import PassedCall
from collector_processor.core.runs import Run
from collector_processor.rebuild.runs import Continuation, continuation_of
from collector_processor.trajectory import order
from semconv.attributes import GEN_AI_WORKFLOW_NAME
from semconv.dialects import Reader
from semconv.dialects.reading.action import ActionKind, Surroundings, key_of
from semconv.model import UNKNOWN_AGENT, Span, SpanId, StepKind, Trace, TraceId
from semconv.record import record, replace

_TOPIC: Final = re.compile(r"\b[^\W\d_\u0e00-\uffff]{4}|\d\d+")
"""The beginning of a long word, which its forms share, or a number. Scripts without spaces have none."""
_OF_ANY_TOPIC: Final = frozenset(  # of English; German; French; Spanish, Portuguese, Italian
    {"abou", "afte", "also", "answ", "befo", "coul", "does", "each", "ever", "exac", "firs", "from", "give"}
    | {"have", "into", "just", "leas", "like", "long", "make", "many", "more", "most", "much", "must", "only"}
    | {"plea", "ques", "shou", "some", "tell", "than", "that", "thei", "them", "then", "ther", "thes", "they"}
    | {"this", "thos", "thre", "usin", "were", "what", "when", "wher", "whic", "will", "with", "woul", "writ"}
    | {"your", "assi", "huma", "syst", "user"}
    | {"aber", "alle", "auch", "bitt", "dass", "dein", "dies", "eine", "habe", "hier", "ihre", "kann", "mein"}
    | {"muss", "nach", "nich", "noch", "oder", "sein", "sich", "sind", "soll", "unse", "viel", "welc", "wenn"}
    | {"werd", "wird", "wurd", "über", "aprè", "auss", "avec", "cett", "comb", "comm", "dans", "donn", "elle"}
    | {"fait", "leur", "mais", "nous", "plus", "pour", "quan", "quel", "sont", "tout", "vous", "algu", "cada"}
    | {"como", "cuan", "cuál", "cuán", "dall", "dell", "desd", "dove", "entr", "esta", "este", "está", "hast"}
    | {"muit", "nell", "onde", "para", "pela", "pelo", "perc", "però", "poco", "porq", "prim", "quai", "qual"}
    | {"ques", "sobr", "sono", "stat", "tamb", "tien", "todo", "tutt", "vost"}
)
"""Words without a topic, and the roles that stand before messages. Traces that share another are joined."""
_MOST_CHARS: Final = 20_000
"""Characters of each text whose words are compared."""
_FEW: Final = 2
"""Words that two questions on one topic share, if they have as many; one may be shared by chance."""
_MOST_FORMER: Final = 200
"""Earlier traces that one is compared with, the latest ones: a program of thousands takes linear time."""
_FIGURE: Final = re.compile(r"(?<![\d.,])\d[\d,.]*\d(?![\d])")
_MOST_SHORT: Final = 60
"""Characters of an answer that a later question may hold whole, such as a name."""


@record
class _Part:
    """One trace of a program, as a part of a run."""

    run: Run
    quotes: Continuation
    first_agent: str
    declares: bool
    """Whether the program declares it as a workflow."""
    asked: frozenset[str]
    """Words of its question."""
    told: frozenset[str]
    """Words of its question and its answers."""
    question: str
    given: frozenset[str]
    """Figures of its question."""
    added: frozenset[str]
    """Figures that only its answers have."""
    name: str
    """Its answer, if that is short and not in its question; else empty."""


def runs_of_program(
    traces: Sequence[Run], calls: Sequence[PassedCall], program: str, reader: Reader, new_id: NewId
) -> tuple[Run, ...]:
    """Return the runs of a program, in the order of their start.

    Args:
        traces: its traces, after ``rebuild``.
        calls: the model calls that passed, in any order.
        program: the program's name.
        reader: reader of the spans.
        new_id: makes ids.
    """
    # A trace without a step of an agent, such as one of an HTTP client alone, owns no call.
    with_steps = [trace for trace in traces if trace.trajectory.steps]
    bare = [one for one in with_steps if is_bare(one.trace.spans, reader)]
    own = [one for one in with_steps if not is_bare(one.trace.spans, reader)]
    shares, left = owners_of(calls, [one.trace.spans for one in own])
    runs: list[Run] = []
    for one, share in zip(own, shares, strict=True):
        spans, others = joined_with(one.trace.spans, share, reader, new_id)
        left += others
        runs.append(_ordered(replace(one.trace, spans=spans), reader))
    found = tuple(_as_one(group, program, new_id) for group in together(runs))
    if alone := [one.trace.spans for one in bare if not _is_repeated(one, runs)]:
        parts = gathered(alone, left, program, new_id)
        rest, _ = joined_with(parts, left, reader, new_id, numbering())  # all calls are inside
        return (*found, _ordered(Trace(spans=rest), reader))
    return (*found, *_runs_of_calls(left, program, reader, new_id))


def _runs_of_calls(calls: Sequence[PassedCall], program: str, reader: Reader, new_id: NewId) -> Iterator[Run]:
    """Yield the runs of model calls that no span shows."""
    parts = conversations(seen_calls(calls))
    runs = [_ordered(Trace(spans=spans_of_seen(part, program, new_id)), reader) for part in parts]
    calls_of = {run.trajectory.root_trace_id: part for run, part in zip(runs, parts, strict=True)}
    for group in together(runs):
        seen = [one for run in group for one in calls_of[run.trajectory.root_trace_id]]
        seen.sort(key=lambda one: one.passed.start_ns)
        yield _ordered(Trace(spans=spans_of_seen(seen, program, new_id)), reader)


def _is_repeated(bare: Run, runs: Sequence[Run]) -> bool:
    """Return whether other runs show all calls of a trace too.

    OpenInference's instrumentation of LangChain sets no context, so that the spans of the same calls that
    another instrumentation makes, of the provider's client, begin traces of their own.
    """
    others = [step for run in runs for step in run.trajectory.steps if step.kind is StepKind.LLM]
    return all(
        any(one.start_ns <= step.start_ns <= one.end_ns and one.output == step.output for one in others)
        for step in bare.trajectory.steps
    )


def _ordered(trace: Trace, reader: Reader) -> Run:
    return Run(trace=trace, trajectory=order(trace, reader), reader=reader)


def is_bare(spans: Sequence[Span], reader: Reader) -> bool:
    """Return whether a trace begins with a model call or a tool: nothing says which run they are part of."""
    around = Surroundings(spans)
    roots = [reader.action(span, around) for span in around.roots]
    kinds = {None if action is None else action.kind for action in roots}
    return kinds <= {ActionKind.LLM, ActionKind.TOOL}


def together(traces: Sequence[Run]) -> list[list[Run]]:
    """Group a program's traces into its runs, in the order of their start.

    A trace continues the runs whose answers its beginning uses, which makes them one. If it uses none, it
    continues the last run, unless it or that run is a declared workflow, its first agent began a trace of
    that run already, or its question has nothing to do with that run.
    """
    parts = sorted(map(_part, traces), key=lambda one: one.quotes.start_ns)
    group_of: list[list[int]] = []
    for place, part in enumerate(parts):
        near = range(max(0, place - _MOST_FORMER), place)
        used = {id(group_of[one]): group_of[one] for one in near if _uses(part, parts[one])}
        former = [*used.values()]
        if not used and place:
            last = group_of[-1]
            former = [] if _begins_anew(part, [parts[one] for one in last[-_MOST_FORMER:]]) else [last]
        group = [*sorted(chain.from_iterable(former)), place]
        group_of.append(group)
        for one in group:
            group_of[one] = group
    groups = {id(group): group for group in group_of}
    return [[parts[one].run for one in group] for group in sorted(groups.values(), key=lambda one: one[-1])]


def _part(run: Run) -> _Part:
    steps = run.trajectory.steps
    question = "\n".join((run.trajectory.task, *(step.input for step in steps[:1])))
    said = "\n".join(step.output for step in steps)
    # A model that answers by a tool, such as final_answer, leaves a run without an output of its own.
    answer = run.trajectory.output or (steps[-1].output if steps else "")
    asked, given = _topics(question), _figures(question)
    return _Part(
        run=run,
        quotes=continuation_of(run.trace, replace(run.trajectory, output=answer)),
        first_agent=steps[0].agent if steps else UNKNOWN_AGENT,
        declares=any(
            GEN_AI_WORKFLOW_NAME in span.attributes and span.scope != RUN_SCOPE
            for span in run.trace.spans
            if not span.parent_id
        ),
        asked=asked,
        told=asked | _topics(said),
        question=question.casefold(),
        given=given,
        added=_figures(said) - given,
        name=_short(answer, question),
    )


def _topics(*texts: str) -> frozenset[str]:
    found = (word.casefold() for text in texts for word in _TOPIC.findall(text[:_MOST_CHARS]))
    return frozenset(found) - _OF_ANY_TOPIC


def _uses(later: _Part, earlier: _Part) -> bool:
    """Return whether a question has what an earlier answer added: its words, or one of its figures."""
    if later.quotes.start_ns < earlier.quotes.end_ns:
        return False
    said = set(earlier.quotes.said)
    return (
        (bool(said) and said <= set(later.quotes.heard))
        or not earlier.added.isdisjoint(later.given)
        or (bool(earlier.name) and earlier.name in later.question)
    )


def _figures(text: str) -> frozenset[str]:
    """Return the numbers of three digits and more, without separators."""
    found = (re.sub(r"[,.]", "", one) for one in _FIGURE.findall(text[:_MOST_CHARS]))
    return frozenset(one for one in found if len(one) > 2)


def _short(answer: str, question: str) -> str:
    """Return a short answer such as a name, unless its question has it; "no" and "ok" are in any text."""
    short = answer.strip().rstrip(".").casefold()
    return short if 2 < len(short) <= _MOST_SHORT and short not in question.casefold() else ""


def _begins_anew(part: _Part, last: Sequence[_Part]) -> bool:
    if part.declares or any(one.declares for one in last):
        return True
    told = frozenset[str]().union(*(one.told for one in last))
    if part.asked and told and not any(_is_on_topic(part, one) for one in last):
        return True
    return part.first_agent != UNKNOWN_AGENT and part.first_agent in {one.first_agent for one in last}


def _is_on_topic(part: _Part, former: _Part) -> bool:
    """Return whether a question has a word that only an earlier answer added, or shares the earlier topic."""
    if not part.asked.isdisjoint(former.told - former.asked):
        return True
    shared = part.asked & former.asked
    return bool(shared) and len(shared) >= min(_FEW, len(part.asked), len(former.asked))


def _as_one(traces: Sequence[Run], program: str, new_id: NewId) -> Run:
    """Return traces as one run; a single one stays as it is."""
    if len(traces) == 1:
        return traces[0]
    spans = gathered([one.trace.spans for one in traces], (), program, new_id)
    trace = replace(
        traces[0].trace,
        spans=spans,
        run_id="",
        warnings=tuple(dict.fromkeys(warning for one in traces for warning in one.trace.warnings)),
        complete=all(one.trace.complete for one in traces),
    )
    return _ordered(trace, traces[0].reader)


def gathered(
    traces: Sequence[Sequence[Span]], calls: Sequence[PassedCall], program: str, new_id: NewId
) -> tuple[Span, ...]:
    """Return several traces as one, below a root span for the program that encloses the calls too.

    Args:
        traces: the spans of each; instrumentation of a provider's client alone begins a trace with each call.
        calls: the calls that passed meanwhile, for the time of the root span.
        program: the program's name.
        new_id: makes ids.
    """
    trace_id, root_id = TraceId(new_id(16)), SpanId(new_id(8))
    ids = {key_of(span): SpanId(new_id(8)) for spans in traces for span in spans}  # unique in a trace only
    inner = [
        replace(
            span,
            trace_id=trace_id,
            span_id=ids[key_of(span)],
            parent_id=ids.get((span.trace_id, span.parent_id), root_id) if span.parent_id else root_id,
        )
        for spans in traces
        for span in spans
    ]
    root = program_span(program, [*inner, *calls])
    return (replace(root, trace_id=trace_id, span_id=root_id, resource=inner[0].resource), *inner)
