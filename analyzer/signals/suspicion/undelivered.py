"""Clues that a run did not deliver what it was asked for, although it ended without an error.

What needs no language comes first: a call failed or found nothing, and nothing replaced it. Then the answer
has no source for what only that call could give. So the answer either says so, and the task is undone; or it
gives figures, or claims the deed, and they are from nowhere. Wording, from tables in many languages, only
tells these cases apart, and alone it makes a suspicion at most.

Not a failure: an empty result that answers the question (``Is there a table for six?``), or that the answer
repeats with the id that the user gave (``There is no order 4711``); a refusal whose reason it passes on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from analyzer.inquiry.present import beginning
from analyzer.lineage.after_nothing import says_nothing_found
from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.deeds import QUESTION_MARKS, acts_in, acts_of
from analyzer.lineage.sources import is_blind
from analyzer.signals.suspicion.admitted import is_in, words_of
from analyzer.signals.suspicion.ending import MISSES, Ending, Missed, tokens_of, words_among
from analyzer.texts.numbers import numbers
from analyzer.texts.run_view import HEAD, QUOTE, THINKING, Reading
from analyzer.texts.tool_names import deed_of, probes, recalls, words_in
from analyzer.texts.tool_results import Fault, lacks_means, says_absent, says_broken, says_done_before
from analyzer.texts.vocabulary import begins_with_no, denies, worded
from analyzer.texts.wordings import (
    Kind,
    asks_whether,
    kinds_said,
    may_order_message,
    mentions_fault,
    orders_text,
)
from semconv.model import Evidence, StepKind

_WORD: Final = re.compile(r"\w+")
_FEWEST_WORDS: Final = 2
_LONGEST_NOTICE: Final = 300
_NOTICE: Final = re.compile(
    r"^\W*(?:error\b\s?[:(-]|an error occurred|exception\b\s?[:(-]|traceback \()"
    r"|\bmax(?:imum)?[ _](?:number of )?(?:turns?|iterations?|steps?|time|rounds?)\b[^.\n]{0,40}"
    r"(?:reached|exceeded|hit)"
    r"|\b(?:iteration|time|turn|step|recursion) limit (?:was |has been )?(?:reached|exceeded|hit)"
    r"|\bstopped due to (?:max|iteration|time|turn|step|recursion)",
    re.IGNORECASE,
)
"""Notices that frameworks and tools print in place of an answer."""
_NOTICES: Final = frozenset(
    ("sms", "message", "email", "mail", "notification", "notify", "reminder", "greeting", "alert")
)
"""Words in the names of tools that only let somebody know; ``send_payment`` has none of them."""
_MOST_LIKE: Final = 50
"""Calls of one tool, the last ones, whose arguments are looked for in the answer."""
_SHORT_NAME: Final = 2
"""Characters up to which a word of a tool's name is no name (``to``)."""
_ORDERS_CHECK: Final = r"\b{check_tool}"
_ENDS: Final = frozenset(
    "delete remove cancel close stop revoke unsubscribe destroy drop purge kill".split()  # noqa: SIM905 - readable
)
"""Verbs of deeds after which the thing is not there."""
_DOING: Final = frozenset({StepKind.TOOL, StepKind.HANDOFF})
_EXCUSES: Final = frozenset({Kind.EXCUSE, Kind.PROMISE})


def undelivered(reading: Reading) -> Iterator[Clue]:
    """Yield the clue that the task was not done, or that its answer is from nowhere; at most one."""
    ending = Ending(reading.trajectory, reading)
    if not ending.answer:
        return
    if is_blind(reading):
        found = _given_up(ending)
    else:
        found = _nothing_returned(ending) if ending.missed and not ending.returned else _rest(ending)
    if found is not None:
        yield found


def _given_up(ending: Ending) -> Clue | None:
    """Judge a run whose results are not all recorded: only an answer that gives up after a failure tells."""
    last = ending.missed[-1] if ending.missed else None
    if last is None or last.found_nothing or not ending.only_evades or Kind.GIVING_UP not in ending.kinds:
        return None
    return _undone(ending, last, failed=True)


def _nothing_returned(ending: Ending) -> Clue | None:
    """Judge a run in which no call returned anything."""
    last = ending.missed[-1]
    if ending.is_worked_out or (ending.kinds & MISSES and ending.passes_on(last)):
        return None
    if says_done_before(last.text) or _is_wanted(ending, last):
        return None
    if last.found_nothing:
        return _found_nothing(ending, last)
    if ending.only_evades or (Kind.GIVING_UP in ending.kinds and Kind.GENERAL not in ending.kinds):
        return _undone(ending, last, failed=True)
    return _answered_all_the_same(ending, last)


def _answered_all_the_same(ending: Ending, last: Missed) -> Clue | None:
    """Judge an answer to a task whose only calls failed, and which does not give up."""
    claimed, has_figures = _is_claimed(ending, last), bool(ending.figures - numbers(last.text[:HEAD]))
    if not has_figures and not claimed:
        if orders_text(ending.task) or Kind.GENERAL in ending.kinds:
            return (
                None  # a text needs no tool, and may itself refuse; general advice was openly not looked up
            )
        if Kind.ADMISSION in ending.kinds:
            if asks_whether(ending.task) and begins_with_no(ending.answer):
                return None  # what does not answer is down
            if lacks_means(last.text) or _is_finding(ending, last):
                return None
            return _undone(ending, last, failed=True) if ending.only_admits else None
    return _invented(ending, last, {"figures": float(has_figures), "claimed": claimed})


def _is_wanted(ending: Ending, last: Missed) -> bool:
    """Tell whether the task asks what answers, or speaks of a failure and the answer repeats this one."""
    orders_check = asks_whether(ending.task) or worded(_ORDERS_CHECK).search(ending.task) is not None
    if probes(last.tool) and orders_check:
        return True
    return _repeats(ending, last) and Kind.GIVING_UP not in ending.kinds and mentions_fault(ending.task)


def _is_finding(ending: Ending, last: Missed) -> bool:
    """Tell whether the answer passes on what a call without effect returned, such as a program's crash."""
    return not deed_of(last.tool) and not says_broken(last.text) and _repeats(ending, last)


def _repeats(ending: Ending, last: Missed) -> bool:
    """Tell whether the answer has a longer word or a number of a failure that the task does not have."""
    step = ending.reading.steps[last.at]
    shown = numbers(f"{step.error[:HEAD]}\n{step.output[:HEAD]}") - numbers(ending.task)
    return ending.gives_reason(last, (ending.answer,)) or not shown.isdisjoint(numbers(ending.answer))


def _found_nothing(ending: Ending, last: Missed) -> Clue | None:
    """Judge a run whose calls found nothing: often that is the answer."""
    gives_up = Kind.GIVING_UP in ending.kinds or (ending.only_evades and bool(ending.kinds & _EXCUSES))
    if gives_up:
        return None if ending.is_answered_by_nothing else _undone(ending, last, failed=False)
    if recalls(last.tool) or says_nothing_found(ending.task, ending.answer):
        return None
    if _is_done_to_nothing(ending, last):
        return _invented(ending, last, {"claimed": 1.0})
    return _invented(ending, last, {"figures": 1.0}) if ending.figures - ending.argued else None


def _is_done_to_nothing(ending: Ending, missed: Missed) -> bool:
    """Tell whether the answer claims a deed whose call failed because the thing to change does not exist.

    What is not there need not be deleted or cancelled. An answer that denies something or asks back may say
    just that.
    """
    verb = deed_of(missed.tool)
    if not verb or verb in _ENDS or ending.kinds & MISSES:
        return False
    if denies(ending.answer) or any(mark in ending.answer for mark in QUESTION_MARKS):
        return False
    return bool(missed.text) and says_absent(missed.text) and _is_claimed(ending, missed) > 0


def _is_claimed(ending: Ending, missed: Missed) -> float:
    is_deed = bool(deed_of(missed.tool)) and not ending.kinds & MISSES
    return float(Kind.CLAIM_DONE in ending.kinds or is_deed)


def _rest(ending: Ending) -> Clue | None:
    """Judge a run in which some calls returned something, or none failed."""
    lost = next((each for each in reversed(ending.missed) if _is_lost_deed(ending, each)), None)
    if lost is not None and not _names_parts(ending, lost):
        return _lost_deed(ending, lost)
    return _unsupported(ending) or _evaded(ending) or _only_words(ending)


def _evaded(ending: Ending) -> Clue | None:
    """Judge an answer that only evades after a look-up failed, although other calls returned something."""
    last = next((each for each in reversed(ending.missed) if not each.found_nothing), None)
    if last is None or not ending.only_evades or not _is_about(ending, last):
        return None
    if (
        ending.last_deed >= 0
        or orders_text(ending.task)
        or ending.passes_on(last)
        or _repeats_a_source(ending, besides=last.tool)
    ):
        return None
    return _undone(ending, last, failed=True)


def _unsupported(ending: Ending) -> Clue | None:
    """Judge an answer that no result supports, after a last call for what the task names failed."""
    steps = ending.reading.steps
    last = ending.missed[-1] if ending.missed else None
    if (
        last is None
        or last.found_nothing
        or ending.has_source
        or ending.kinds & MISSES
        or not ending.languages
    ):
        return None
    if any(step.kind is StepKind.TOOL for step in steps[last.at + 1 :]):
        return None
    asked = steps[last.at].input[:HEAD]
    if tokens_of(asked).isdisjoint(tokens_of(ending.task)) or ending.is_worked_out:
        return None
    if _names_parts(ending, last) or _is_wanted(ending, last):
        return None
    return _invented(ending, last, {"figures": float(bool(ending.figures))})


def _is_lost_deed(ending: Ending, missed: Missed) -> bool:
    """Tell whether a call that should change something failed, and no later call changed anything."""
    if missed.found_nothing or not deed_of(missed.tool) or not _is_about(ending, missed):
        return False
    if says_done_before(missed.text):
        return False
    return ending.last_deed <= missed.at


def _names_parts(ending: Ending, missed: Missed) -> bool:
    """Tell whether a tool did its work for other parts, and the answer names one: ``unmet`` judges that."""
    steps, faults = ending.reading.steps, ending.reading.faults
    like = [at for at, one in enumerate(steps) if one.target == steps[missed.at].target]
    words = {word for at in like[-_MOST_LIKE:] for word in words_of(steps[at].input)}
    answer = ending.answer.casefold()
    is_done = any(faults[at] is Fault.NONE for at in like if steps[at].kind is StepKind.TOOL)
    return is_done and any(is_in(word, answer) for word in words)


def _is_about(ending: Ending, missed: Missed) -> bool:
    """Tell whether a call has to do with the task: its arguments share a word or a number with it."""
    tokens = tokens_of(ending.reading.steps[missed.at].input[:HEAD])
    return not tokens or not tokens.isdisjoint(tokens_of(ending.task) | tokens_of(ending.answer))


def _lost_deed(ending: Ending, lost: Missed) -> Clue | None:
    if ending.kinds & MISSES:
        is_told = (
            Kind.GIVING_UP not in ending.kinds or _is_side_notice(ending, lost) or ending.passes_on(lost)
        )
        return None if is_told else _undone(ending, lost, failed=True)
    if ending.gives_reason(lost, (ending.answer,)):
        return None
    is_claimed = Kind.CLAIM_DONE in ending.kinds or bool(acts_of(lost.tool) & acts_in(ending.answer))
    if not is_claimed and (ending.has_source or not ending.languages):
        return None
    return _invented(ending, lost, {"claimed": float(is_claimed)})


def _is_side_notice(ending: Ending, lost: Missed) -> bool:
    """Tell whether a lost deed only lets somebody know of another deed, and the task has no word for it.

    A booking whose message did not leave is made: the answer may say so. Money that did not move is another
    matter, whatever the task calls it.
    """
    named = {word for word in words_in(lost.tool) if len(word) > _SHORT_NAME}
    if named.isdisjoint(_NOTICES) or ending.last_deed < 0:
        return False
    return named.isdisjoint(map(str.casefold, _WORD.findall(ending.task))) and not may_order_message(
        ending.task
    )


def _only_words(ending: Ending) -> Clue | None:
    """Judge the wording of an answer: the weakest sign, looked at if nothing was done.

    A text that the task asks for may say anything, and an agent that cannot do anything may say so. Whether
    it can is not known of a turn whose calls are not recorded.
    """
    trajectory = ending.trajectory
    could_act = any(step.tools or step.kind in _DOING or step.is_whole_turn for step in trajectory.steps)
    if ending.missed or not could_act or ending.last_deed >= 0:
        return None
    found = _wording(ending)
    return None if found is None or orders_text(ending.task) else found


def _wording(ending: Ending) -> Clue | None:
    author = _last_speaker(ending)
    if _is_notice(ending):
        reason = "ended with the notice of an error or a limit in place of an answer"
        return _clue(ending, author, ClueKind.UNDONE, reason, {"words": 1.0, "promise": 1.0})
    if not ending.only_evades or _repeats_a_source(ending):
        return None
    if Kind.PROMISE in ending.kinds and tokens_of(ending.answer).isdisjoint(tokens_of(ending.task)):
        reason = "promised to answer later in place of an answer"
        return _clue(ending, author, ClueKind.UNDONE, reason, {"words": 1.0, "promise": 1.0})
    if Kind.GIVING_UP not in ending.kinds:
        return None
    return _clue(ending, author, ClueKind.UNDONE, "gave no answer, only an excuse", {"words": 1.0})


def _is_notice(ending: Ending) -> bool:
    found = _NOTICE.search(ending.answer) if len(ending.answer) <= _LONGEST_NOTICE else None
    return found is not None and tokens_of(found[0]).isdisjoint(tokens_of(ending.task))


def _repeats_a_source(ending: Ending, besides: str = "") -> bool:
    """Tell whether the refusal repeats what a tool returned or the instructions say: then it is an answer.

    Words in the name of the tool ``besides`` count for nothing: an excuse for its failure has them too.
    """
    known = "\n".join((*ending.returned, *dict.fromkeys(step.instructions for step in ending.reading.steps)))
    own = tokens_of(ending.answer) - tokens_of(ending.task) - frozenset(words_in(besides))
    return words_among(own & tokens_of(known[:HEAD])) >= _FEWEST_WORDS


def _undone(ending: Ending, missed: Missed, *, failed: bool) -> Clue:
    what = "failed" if failed else "returned nothing"
    reason = f"called {missed.tool or 'a tool'}, which {what}, and the answer gives nothing in its place"
    return _clue(ending, missed.by, ClueKind.UNDONE, reason, {"failed": float(failed)}, missed=missed)


def _invented(ending: Ending, missed: Missed, signs: dict[str, float]) -> Clue | None:
    if ending.is_source(missed) or ending.is_put_off(missed) or ending.is_made_up_for(missed):
        return None
    what = "returned nothing" if missed.found_nothing else "failed"
    did = "claimed success" if signs.get("claimed") else "answered"
    reason = f"{did} although {missed.tool or 'the tool'} {what} and nothing replaced it"
    author = _first_to_go_on(ending, missed)
    return _clue(ending, author, ClueKind.INVENTED, reason, signs, missed=missed)


def _first_to_go_on(ending: Ending, missed: Missed) -> int:
    """Return the first step after a failure whose agent neither admits it nor asks for another call."""
    reading = ending.reading
    for place in range(missed.at, len(reading.steps)):
        step = reading.steps[place]
        if step.kind not in THINKING or step.calls or not reading.texts[place]:
            continue
        if not kinds_said(step.output[:HEAD]) & MISSES:
            return place
    return _last_speaker(ending)


def _last_speaker(ending: Ending) -> int:
    reading = ending.reading
    spoken = (
        at
        for at in range(len(reading.steps) - 1, -1, -1)
        if reading.steps[at].kind in THINKING and reading.texts[at]
    )
    return next(spoken, len(reading.steps) - 1)


def _clue(
    ending: Ending,
    at: int,
    kind: ClueKind,
    reason: str,
    signs: dict[str, float],
    *,
    missed: Missed | None = None,
) -> Clue:
    steps = ending.reading.steps
    shown = (
        []
        if missed is None or not missed.text
        else [Evidence(step=steps[missed.at].index, quote=beginning(missed.text, QUOTE))]
    )
    if steps[at].output:
        shown.append(Evidence(step=steps[at].index, quote=beginning(steps[at].output, QUOTE)))
    return Clue(step=steps[at].index, kind=kind, reason=reason, evidence=tuple(shown), signs=signs)
