"""Errors that no later step mentions, and calls repeated without a new result."""

from __future__ import annotations

import re
from bisect import bisect, bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from analyzer.inquiry.present import beginning
from analyzer.lineage.claims import has_figures_from_nowhere
from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.figures import figures, prose_of
from analyzer.lineage.sources import results
from analyzer.signals.loops import Given
from analyzer.signals.suspicion.ending import Ending
from analyzer.texts.run_view import HEAD, QUOTE, Reading, Role, final_answer, only_calls
from analyzer.texts.tool_names import deed_of, looks_up
from analyzer.texts.tool_results import Fault
from analyzer.texts.wordings import asks_whether, mentions_fault
from semconv.model import Evidence, Step, StepKind

_MOST_TIMES: Final = 8
_LOOPING: Final = 3
"""Number of equal calls with equal results that count as a loop: two may be a check."""
_MOST_REPEATED: Final = 50
"""Number of repeated calls that are examined, each against all calls; only the strongest counts."""
_MOST_IF_ACCEPTED: Final = 0.15
"""Chosen, not measured: far below even odds, since an accepted deed seldom spoils what it did before."""
_WORDS: Final = re.compile(r"[^\W_]+")
_ACCEPTANCE: Final = frozenset((
    "ok", "okay", "done", "true", "success", "successful", "successfully", "succeeded", "accepted", "sent",
    "saved", "created", "updated", "queued", "status", "result", "message", "null", "none", "200", "201",
    "202", "204",
))  # fmt: skip
_WAITS: Final = re.compile(r"\b(?:wait|sleep|poll|heartbeat|ping|status|state|progress)", re.IGNORECASE)
_PENDING: Final = re.compile(
    r"\b(?:pending|running|queued|in.progress|processing|not ready|waiting|ok|done)\b", re.IGNORECASE
)
_SHORTEST_WORDS: Final = 40
"""Number of characters from which an agent's words are not a set phrase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    """A call that failed or returned nothing, and that nothing repaired."""

    at: int
    """Position of the step that shows it: the tool's, or the model call that receives it."""
    first_after: int
    """First position at which a step could mention it."""
    tool: str
    said: str
    is_empty: bool = False


def _failures(reading: Reading) -> Iterator[_Failure]:
    for position, fault in enumerate(reading.faults):
        step = reading.steps[position]
        if fault is not Fault.NONE and not reading.repaired[position] and step.kind is StepKind.TOOL:
            said, is_empty = step.error or step.output.strip(), fault is Fault.EMPTY
            tool = step.target or ""
            yield _Failure(at=position, first_after=position + 1, tool=tool, said=said, is_empty=is_empty)
    for heard_fault in reading.heard_faults:
        if not heard_fault.is_repaired:
            yield _Failure(
                at=heard_fault.hearer,
                first_after=heard_fault.hearer,
                tool=heard_fault.tool,
                said=heard_fault.text,
            )


def _has_figures_from_nowhere(reading: Reading, answer: str) -> bool:
    """Tell whether the answer has figures that neither the task nor another result gives."""
    if any(True for _ in results(reading)):
        return has_figures_from_nowhere(reading)
    stated = {figure.value for figure in figures(prose_of(answer)) if not figure.is_small}
    return not stated.isdisjoint(Ending(reading.trajectory, reading).figures)


def ignored_errors(reading: Reading) -> Iterator[Clue]:
    """Yield the failed or empty calls that neither a later agent nor the answer mentions.

    An empty result that answers the task's question is no failure.
    """
    failures = tuple(_failures(reading))
    if not failures:
        return
    answer = final_answer(reading.trajectory)
    is_whether = asks_whether(reading.trajectory.task[:HEAD])
    has_figures = _has_figures_from_nowhere(reading, answer)
    told = [place for place, text in enumerate(reading.texts) if text]
    spoken = [place for place in told if reading.roles[place] in (Role.ACTING, Role.COORDINATING)]
    first = min(failure.first_after for failure in failures)
    later = (place for place in reversed(spoken) if place >= first)
    admitted = next((place for place in later if mentions_fault(reading.texts[place])), -1)
    sound = [
        place
        for place, other in enumerate(reading.steps)
        if other.kind is StepKind.TOOL and reading.faults[place] is Fault.NONE
    ]
    last_sound = max((place for place in sound if reading.texts[place]), default=-1)
    for failure in failures:
        if failure.is_empty and is_whether:
            continue
        position, step = failure.at, reading.steps[failure.at]
        if admitted >= failure.first_after or mentions_fault(answer):
            continue
        others, earlier = last_sound >= failure.first_after, bool(sound) and sound[0] < position
        next_word = bisect_left(spoken, failure.first_after)
        author = spoken[next_word] if next_word < len(spoken) else position
        returned = "returned nothing" if failure.is_empty else "failed"
        yield Clue(
            step=reading.steps[author].index,
            kind=ClueKind.IGNORED_ERROR,
            reason=f"went on although {failure.tool or 'the tool'} {returned}",
            evidence=(
                Evidence(step=step.index, quote=beginning(failure.said, QUOTE)),
                Evidence(
                    step=reading.steps[author].index, quote=beginning(reading.steps[author].output, QUOTE)
                ),
            ),
            signs={
                "failed": float(not failure.is_empty),
                "others_succeed": float(others),
                "others_succeeded": float(earlier),
                "figures": float(has_figures),
                "nothing_else": float(not others and not earlier),
            },
        )


def _progresses(
    reading: Reading, places: Sequence[int], calls: Mapping[tuple[str, str, str], Sequence[int]]
) -> bool:
    """Return whether another call between the repeats ends with a new result, for which they wait."""
    for (agent, _tool, _said), others in calls.items():
        between = [place for place in others if place > places[0]]
        if agent != reading.steps[places[0]].agent or others is places or len(between) < _LOOPING - 1:
            continue
        results = [reading.texts[place] for place in between]
        if results[-1] not in results[:-1]:
            return True
    return False


def _telling(arguments: str) -> str:
    """Return a call's arguments as evidence; empty if there are none to read, as in ``{"": {}}``."""
    return arguments if re.search(r"\w", arguments) else ""


def loops(reading: Reading) -> Iterator[Clue]:
    """Yield calls and words repeated without a new result; a wait that ends with one is not a loop.

    A loop has equal results as well as equal calls, and nothing new between them: an agent that reads a page
    again after a change, or greets each customer with the same words, gets on. To do an accepted deed again
    is odd, but it seldom makes an answer wrong: many deeds are the same when done twice.
    """
    calls: defaultdict[tuple[str, str, str], list[int]] = defaultdict(list)
    news = _news(reading)
    tools = {step.target for step in reading.steps if step.kind is StepKind.TOOL}
    for position, step in enumerate(reading.steps):
        if (tools and only_calls(step)) or any(call.name in tools for call in step.calls):
            continue  # the call is a step of its own, and the words beside it go with it
        if step.kind is StepKind.TOOL:
            calls[step.agent, step.target or step.name, step.input.strip()].append(position)
        elif step.kind in (StepKind.LLM, StepKind.AGENT) and len(reading.texts[position]) >= _SHORTEST_WORDS:
            calls[step.agent, "", reading.texts[position]].append(position)
    answer = " ".join(final_answer(reading.trajectory).split())
    given = Given(reading)
    repeated = [(call, places) for call, places in calls.items() if len(places) >= _LOOPING]
    for (_agent, tool, said), places in repeated[:_MOST_REPEATED]:
        if not tool and (said in answer or answer in said):
            continue  # wrappers of the last call repeat its words
        if not tool and given.has(places[0]):
            continue
        results = [_result(reading, place) for place in places]
        if results[-1] not in results[:-1] or _progresses(reading, places, calls):
            continue
        chain = _longest_without_news(reading, places, news)
        if len(chain) < _LOOPING:
            continue
        again = chain[_LOOPING - 1]
        step = reading.steps[again]
        what = f"{tool} with the same arguments" if tool else "the same words"
        failing = reading.faults[places[-1]] is Fault.FAILED
        is_accepted = bool(tool) and not failing and _accepts(tool, said, results[-1])
        yield Clue(
            step=step.index,
            kind=ClueKind.LOOP,
            reason=f"repeated {what} {len(chain)} times without a new result"
            f" (step {step.index} is the third time)",
            evidence=(Evidence(step=step.index, quote=beginning(_telling(said) or step.output, QUOTE)),),
            signs={
                "times": min(len(chain), _MOST_TIMES) / _MOST_TIMES,
                "waits": float(bool(_WAITS.search(tool)) or bool(_PENDING.search(results[-1][:200]))),
                "words": float(not tool),
                "failing": float(failing),
                "at_end": float(places[-1] >= len(reading.steps) - 4),
            },
            most=_MOST_IF_ACCEPTED if is_accepted else 1.0,
        )


def _news(reading: Reading) -> tuple[int, ...]:
    """Return the positions with a result or words that are new to the run and do not recur like a loop's."""
    times = Counter(reading.texts)
    seen: set[str] = set()
    found: list[int] = []
    for position, text in enumerate(reading.texts):
        is_new = bool(text) and text not in seen and times[text] < _LOOPING
        seen.add(text)
        if is_new and reading.faults[position] is Fault.NONE and not only_calls(reading.steps[position]):
            found.append(position)
    return tuple(found)


def _longest_without_news(reading: Reading, places: Sequence[int], news: Sequence[int]) -> Sequence[int]:
    """Return the longest stretch of repeats with equal results and nothing new between two of them.

    What an agent says about its own calls is no news.
    """
    first = reading.steps[places[0]]
    is_call = first.kind is StepKind.TOOL
    counted = [at for at in news if not (is_call and _speaks(reading.steps[at], first.agent))]
    longest: Sequence[int] = ()
    chain = [places[0]]
    for before, place in pairwise(places):
        is_same = _result(reading, before) == _result(reading, place)
        has_news = bisect(counted, place - 1) > bisect(counted, before)
        chain = [*chain, place] if is_same and not has_news else [place]
        longest = chain if len(chain) > len(longest) else longest
    return longest


def _result(reading: Reading, place: int) -> str:
    return reading.texts[place] or reading.steps[place].error


def _speaks(step: Step, agent: str) -> bool:
    return step.kind in (StepKind.LLM, StepKind.AGENT) and step.agent == agent


def _accepts(tool: str, arguments: str, result: str) -> bool:
    """Tell whether a result only says that a deed was done: it gives nothing that the call did not have."""
    if looks_up(tool):
        return False
    words = _WORDS.findall(result.casefold())
    known = {*_WORDS.findall(arguments.casefold()), *_WORDS.findall(tool.casefold())}
    return bool(deed_of(tool)) or (bool(words) and all(w in known or w in _ACCEPTANCE for w in words))
