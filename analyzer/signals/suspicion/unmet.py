"""Clues that a call failed for something that the task names, and that the answer passes over it.

Neither another tool's success nor the same tool's success for another thing replaces the failed call. So what
is missing are the words of its arguments that no successful call has and that the task names. If the answer
does not admit the failure, it claims what was not done, gives what no result gives, or leaves the part out.

A later call may have done the same in another way, and then the run is not suspected. A later deed with the
same verb, or whose name has no known verb, can replace a failed deed; a later look-up with another tool can
replace a failed look-up.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from analyzer.inquiry.present import beginning
from analyzer.lineage.claims import figures_from_nowhere
from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.deeds import SENTENCE, acts_in, acts_of
from analyzer.lineage.entries import fields_in
from analyzer.lineage.figures import figures
from analyzer.lineage.sources import is_blind
from analyzer.signals.suspicion.admitted import is_in, is_set_apart, leaves_open, names_refused, words_of
from analyzer.signals.suspicion.approvals import asks_leave
from analyzer.signals.suspicion.ending import MISSES, Ending, Missed, tokens_of
from analyzer.texts.commands import call_name, commands_of
from analyzer.texts.numbers import numbers
from analyzer.texts.run_view import HEAD, QUOTE, THINKING, Reading, callers_of
from analyzer.texts.tool_names import deed_of, looks_up, probes, words_in
from analyzer.texts.tool_results import Fault, refused_entries, says_done_before
from analyzer.texts.vocabulary import phrases, worded
from analyzer.texts.wordings import Kind, asks_whether, kinds_said, languages_in
from semconv.model import Evidence, Step, StepKind

_MOST: Final = 20
"""Failed calls that are examined, the last ones."""
_MOST_STEPS: Final = 1_000
"""Steps of a run up to which the texts of its calls are compared with a failed one's words."""
_MOST_STEPS_WITH_FIGURES: Final = 300
"""Steps of a run up to which figures are searched for their sources: each costs some milliseconds."""
_LONGEST_TEXT: Final = 4_000
"""Characters of arguments and of a result in which a word is looked for."""
_FEWEST_LIKE: Final = 3
"""Calls of one tool from which an answer may count them."""
_LONGEST_REPORT: Final = 200
_SHARE: Final = r"(?<![\w.,/-])(\d{1,6})(?: ?/ ?| {of} )(\d{1,6})(?![\w/-]|[.,]\d)"
"""How many of how many."""
_SHARE_FIRST: Final = r"\W{0,3}(?:\w+ )?" + _SHARE
"""At the beginning of a report: later on it may be a score or a page."""
_NOTICES: Final = frozenset(
    (
        *("notify", "notification", "sms", "mail", "email", "message", "reminder", "alert", "greeting"),
        *("log", "note", "comment", "audit"),
    )
)
"""Words in the names of tools that only let somebody know of a deed, or write it down."""


def unmet(reading: Reading) -> Iterator[Clue]:
    """Yield the clue that a part of the task was passed over after its call failed; at most one."""
    ending = Ending(reading.trajectory, reading)
    if not ending.answer or is_blind(reading):
        return
    failed = [each for each in ending.missed if _counts(reading, each)]
    parts = list(islice(_refused_parts(reading), _MOST))
    shares = list(islice(_shares(reading), _MOST))
    if (failed or parts or shares) and ending.languages and not ending.kinds & MISSES:
        run = _Run(ending)
        found = [clue for each in failed[-_MOST:] for clue in _judged(run, each)]
        found += [clue for each, words in parts for clue in _judged_part(run, each, words)]
        found += [clue for each, done, of in shares for clue in _judged_share(run, each, done, of)]
        yield from found[:1]


def _refused_parts(reading: Reading) -> Iterator[tuple[Missed, tuple[str, ...]]]:
    """Yield the entries for which a deed with several was refused, each with the words that name it."""
    for at, step in enumerate(reading.steps):
        if step.kind is not StepKind.TOOL or reading.faults[at] is not Fault.NONE:
            continue
        if not deed_of(tool := call_name(step)):
            continue
        asked = step.input[:HEAD].casefold()
        for entry in refused_entries(step.output):
            text, by = json.dumps(entry, ensure_ascii=False), reading.responsible_steps[at]
            words = tuple(word for word in words_of(text) if is_in(word, asked))
            yield Missed(at=at, by=by, tool=tool, text=text, found_nothing=False), words


def _shares(reading: Reading) -> Iterator[tuple[Missed, float, float]]:
    """Yield the deeds that say in a short text of how many they did fewer: ``Sent 7 of 10``."""
    for at, step in enumerate(reading.steps):
        text = step.output.strip()
        if step.kind is not StepKind.TOOL or len(text) > _LONGEST_REPORT:
            continue
        if not deed_of(tool := call_name(step)):
            continue
        found = worded(_SHARE_FIRST).match(text)
        if found and int(found[1]) < int(found[2]) and not says_done_before(text):
            by = reading.responsible_steps[at]
            missed = Missed(at=at, by=by, tool=tool, text=text, found_nothing=False)
            yield missed, float(found[1]), float(found[2])


def _judged_share(run: _Run, missed: Missed, done: float, of: float) -> Iterator[Clue]:
    """Judge a deed that was done for some: the answer has the number of all, and no other call goes on.

    A number that the call gave is a position: ``part 9 of 10``.
    """
    step, told = run.reading.steps[missed.at], numbers(run.ending.answer)
    is_only = all(run.reading.steps[at].target != step.target for at in run.sound if at != missed.at)
    if of in told and done not in told | numbers(step.input[:HEAD]) and is_only:
        did = f"claimed success for {of:g} although {missed.tool} was done for {done:g}"
        yield _clue(run, missed, ClueKind.INVENTED, did, {"claimed": 1.0})


def _judged_part(run: _Run, missed: Missed, words: Sequence[str]) -> Iterator[Clue]:
    """Judge a refused entry: the answer names it, denies nothing, and no later call is about it."""
    later = "\n".join(one.input[:HEAD] for one in run.later(missed)).casefold()
    told = [sentence for sentence in run.sentences if any(is_in(word, sentence) for word in words)]
    if not told or any(is_in(word, later) for word in words) or says_done_before(missed.text):
        return
    if not _admits(run, missed, words, told):
        did = f"claimed success although {missed.tool} was refused for {words[0]!r}"
        yield _clue(run, missed, ClueKind.INVENTED, did, {"claimed": 1.0})


def _counts(reading: Reading, missed: Missed) -> bool:
    """Tell whether a failed call is a named tool's for a thing that may exist, and is not so already.

    To fail is a result of a call that only tries whether something answers.
    """
    step = reading.steps[missed.at]
    is_named = step.kind is StepKind.TOOL and not commands_of(step) and not asks_leave(step)
    is_named = is_named and not probes(missed.tool)
    return is_named and not missed.found_nothing and not says_done_before(missed.text)


class _Run:
    """A run with what its successful calls asked for and returned."""

    def __init__(self, ending: Ending) -> None:
        self.ending: Final = ending
        self.reading: Final = ending.reading
        callers = callers_of(self.reading.steps)
        self.asked: Final = [at if asker is None else asker for at, asker in enumerate(callers)]
        self.sound: Final = [
            at
            for at, step in enumerate(self.reading.steps)
            if step.kind is StepKind.TOOL and self.reading.faults[at] is Fault.NONE and step.stop is None
        ]
        self.sentences: Final = [found[0].casefold() for found in SENTENCE.finditer(ending.answer)]
        self.task: Final = ending.task.casefold()
        self._covered: Final[dict[tuple[bool, bool], str]] = {}

    def later(self, missed: Missed) -> list[Step]:
        """Return the successful calls that were requested after a failure was known."""
        return [self.reading.steps[at] for at in self.sound if self.asked[at] > missed.at]

    def covered(self, missed: Missed) -> str:
        """Return what the successful calls that may meet the same need asked for and returned."""
        kind = looks_up(missed.tool), _notifies(missed.tool)
        if kind not in self._covered:
            steps = [self.reading.steps[at] for at in self.sound]
            if not looks_up(missed.tool):
                steps = [step for step in steps if _may_do(call_name(step), missed.tool)]
            texts = (f"{step.input[:_LONGEST_TEXT]}\n{step.output[:_LONGEST_TEXT]}" for step in steps)
            self._covered[kind] = "\n".join(texts).casefold()
        return self._covered[kind]


def _judged(run: _Run, missed: Missed) -> Iterator[Clue]:
    if _is_counted(run, missed):
        did = f"counted {_quoted(run, missed, ())} as done although {missed.tool} failed for it"
        yield _clue(run, missed, ClueKind.INVENTED, did, {"claimed": 1.0})
    elif len(run.reading.steps) <= _MOST_STEPS and not _has_fallback(run, missed):
        yield from _judged_by_words(run, missed)


def _judged_by_words(run: _Run, missed: Missed) -> Iterator[Clue]:
    step, covered = run.reading.steps[missed.at], run.covered(missed)
    named = [word for word in words_of(step.input) if not is_in(word, covered) and is_in(word, run.task)]
    told = [sentence for sentence in run.sentences if any(is_in(word, sentence) for word in named)]
    if _admits(run, missed, named, told) or (probes(missed.tool) and asks_whether(run.task)):
        return
    if not told and _is_alternative(run, missed, named):
        return
    if deed_of(missed.tool) or acts_of(missed.tool) or _is_claimed_in(run, told):
        yield from _not_done(run, missed, named, told)
    elif len(run.reading.steps) <= _MOST_STEPS_WITH_FIGURES:
        yield from _not_found(run, missed, named, told)


def _admits(run: _Run, missed: Missed, words: Sequence[str], told: Sequence[str]) -> bool:
    """Tell whether the answer denies a part, leaves it open, sets it apart, or passes on its failure."""
    step, denies = run.reading.steps[missed.at], phrases("no", run.ending.languages)
    if any(denies.search(one) or leaves_open(one, words, run.sentences) for one in told):
        return True
    if run.ending.gives_reason(missed, told) or names_refused(run.ending.answer, run.task, missed, step):
        return True
    others = {word for each in _like(run, missed)[-_MOST:] for word in words_of(each.input)}
    others |= {word for word in words_of(step.input) if is_in(word, run.task)}
    return is_set_apart(run.ending, missed, words, sorted(others - {*words})) or _tells_share(run, missed)


def _is_alternative(run: _Run, missed: Missed, named: Sequence[str]) -> bool:
    """Tell whether the task names a part and one that was done with an "or" between them."""
    done = [word for each in _like(run, missed)[-_MOST:] for word in words_of(each.input)]
    either = phrases("or", languages_in(run.task))
    pairs = (either.split(one[0], maxsplit=1) for one in SENTENCE.finditer(run.task))
    sides = [side for pair in pairs if len(pair) > 1 for side in (pair, pair[::-1])]
    return any(
        any(is_in(word, one) for word in named) and any(is_in(word, other) for word in done)
        for one, other in sides
    )


def _tells_share(run: _Run, missed: Missed) -> bool:
    """Tell whether the answer says for how many of how many calls a tool did its work."""
    calls, done = _calls_of(run, missed)
    shares = {(int(one[1]), int(one[2])) for one in worded(_SHARE).finditer(run.ending.answer)}
    return (len(done), len(calls)) in shares


def _is_claimed_in(run: _Run, told: Sequence[str]) -> bool:
    """Tell whether a sentence of the answer says that something was done, and gives no figure."""
    task = numbers(run.task)
    return any(
        {figure.value for figure in figures(one)} <= task
        and Kind.CLAIM_DONE in kinds_said(one, run.ending.languages)
        for one in told
    )


def _has_fallback(run: _Run, missed: Missed) -> bool:
    """Tell whether a later call may have brought in another way what the failed one was to bring."""
    step, later = run.reading.steps[missed.at], run.later(missed)
    others = [call_name(one) for one in later if one.target != step.target]
    if any(one.target == step.target and _corrects(run, step, one) for one in later):
        return True
    act = acts_of(missed.tool)
    if not act and not deed_of(missed.tool):
        return any(not deed_of(one) for one in others) or _asks_another(run, missed)
    deeds = [acts_of(one) for one in others if _may_do(one, missed.tool)]
    return any(not each or each & act for each in deeds)


def _corrects(run: _Run, failed: Step, later: Step) -> bool:
    """Tell whether a later call of a tool asks for nothing else that the task names, or in another form."""
    if fields_in(later.input[:HEAD]).keys() != fields_in(failed.input[:HEAD]).keys():
        return True
    new = {*words_of(later.input)} - {*words_of(failed.input)}
    return not any(is_in(word, run.task) for word in new)


def _asks_another(run: _Run, missed: Missed) -> bool:
    """Tell whether an agent that does not give the answer is asked after a failure."""
    steps = run.reading.steps
    last = next((step.agent for step in reversed(steps) if step.kind in THINKING), "")
    handed = [step.target for step in steps[missed.at :] if step.kind is StepKind.HANDOFF]
    return any(one != last for one in handed)


def _not_done(run: _Run, missed: Missed, named: Sequence[str], told: Sequence[str]) -> Iterator[Clue]:
    """Judge a deed that failed: the answer claims it for its object."""
    is_claimed = Kind.CLAIM_DONE in run.ending.kinds or bool(acts_in(run.ending.answer))
    if run.ending.is_put_off(missed) or run.ending.is_made_up_for(missed):
        return
    if named and (is_claimed or _has_no_source(run, told)):
        did = f"claimed success although {missed.tool} failed for {_quoted(run, missed, named)}"
        yield _clue(run, missed, ClueKind.INVENTED, did, {"claimed": 1.0})


def _not_found(run: _Run, missed: Missed, named: Sequence[str], told: Sequence[str]) -> Iterator[Clue]:
    """Judge a look-up that failed: what the answer says of its object has no source."""
    what = _quoted(run, missed, named)
    if told and _is_from_nowhere(run, missed, told):
        did = f"answered for {what} although {missed.tool} failed for it and nothing replaced it"
        yield _clue(run, missed, ClueKind.INVENTED, did, {"figures": 1.0})
    elif named and not told and _like(run, missed) and not _repeats_code(run, missed):
        did = f"left out {what}, for which {missed.tool} failed"
        yield _clue(run, missed, ClueKind.UNDONE, did, {"failed": 1.0})


def _repeats_code(run: _Run, missed: Missed) -> bool:
    """Tell whether the answer has a number of an error's text that no result has: ``502``."""
    known = "\n".join(run.reading.steps[at].output[:HEAD] for at in run.sound)
    return not (numbers(missed.text[:HEAD]) - numbers(known)).isdisjoint(numbers(run.ending.answer))


def _is_from_nowhere(run: _Run, missed: Missed, told: Sequence[str]) -> bool:
    """Tell whether sentences have a figure, or only words, that nothing gives."""
    steps = run.reading.steps
    heard = (step.output for step in steps[: missed.at] if step.kind in THINKING)
    admitting = (step.output for step in steps[missed.at :] if kinds_said(step.output[:HEAD]) & MISSES)
    known = numbers("\n".join((*heard, *admitting))[:HEAD])
    strange = {one.value for one in figures_from_nowhere(run.reading, run.ending.answer)} - known
    stated = numbers(" ".join(told)) - numbers(run.task)
    if stated:
        return not stated.isdisjoint(strange)
    return _has_no_source(run, told) and not _knows_by_itself(run, missed) and not asks_whether(run.task)


def _knows_by_itself(run: _Run, missed: Missed) -> bool:
    """Tell whether the agent that answers took over, and first spoke, after a failure."""
    steps = run.reading.steps
    spoken = [at for at, one in enumerate(steps) if one.kind in THINKING]
    took_over = any(step.kind is StepKind.HANDOFF for step in steps[missed.at :])
    agent = steps[spoken[-1]].agent if spoken else ""
    return took_over and all(at > missed.at for at in spoken if steps[at].agent == agent)


def _has_no_source(run: _Run, told: Sequence[str]) -> bool:
    """Tell whether there are sentences, and no word of them beyond the task is in the result of a look-up."""
    reading = run.reading
    steps = [reading.steps[at] for at in run.sound]
    known = "\n".join(step.output[:HEAD] for step in steps if not deed_of(call_name(step)))
    text = " ".join(told)
    new = tokens_of(text) - tokens_of(run.task)
    stated = {figure.value for figure in figures(text)} - numbers(run.task)
    return bool(told) and new.isdisjoint(tokens_of(known)) and stated.isdisjoint(numbers(known))


def _like(run: _Run, missed: Missed) -> list[Step]:
    """Return the successful calls of the same tool for other things."""
    steps = run.reading.steps
    keys = fields_in(steps[missed.at].input[:HEAD]).keys()
    like = (steps[at] for at in run.sound if steps[at].target == steps[missed.at].target)
    return [one for one in like if fields_in(one.input[:HEAD]).keys() == keys]


def _calls_of(run: _Run, missed: Missed) -> tuple[set[str], set[str]]:
    """Return the arguments of all calls of a failed call's tool, and of those that succeeded."""
    tools = (step for step in run.reading.steps if step.kind is StepKind.TOOL)
    calls = {step.input for step in tools if step.target == missed.tool}
    return calls, {step.input for step in _like(run, missed)}


def _is_counted(run: _Run, missed: Missed) -> bool:
    """Tell whether the answer has the number of all calls of a tool, of which this one failed for good."""
    steps = run.reading.steps
    calls, done = _calls_of(run, missed)
    if len(calls) < _FEWEST_LIKE or steps[missed.at].input in done:
        return False
    told = numbers(run.ending.answer)
    if not deed_of(missed.tool) and len(steps) <= _MOST_STEPS_WITH_FIGURES:  # a figure, not a count
        told -= numbers("\n".join(steps[at].output[:HEAD] for at in run.sound))
    return float(len(calls)) in told and float(len(done)) not in numbers(run.ending.answer)


def _may_do(tool: str, lost: str) -> bool:
    """Tell whether a tool may do what another one failed to do; a notice of a deed is not the deed."""
    return not looks_up(tool) and (not _notifies(tool) or _notifies(lost))


def _notifies(tool: str) -> bool:
    return not _NOTICES.isdisjoint(words_in(tool))


def _quoted(run: _Run, missed: Missed, named: Sequence[str]) -> str:
    return repr(named[0]) if named else beginning(run.reading.steps[missed.at].input, QUOTE)


def _clue(run: _Run, missed: Missed, kind: ClueKind, reason: str, signs: dict[str, float]) -> Clue:
    steps = run.reading.steps
    author = steps[missed.by if kind is ClueKind.UNDONE else _next_words(run, missed)]
    shown = [Evidence(step=steps[missed.at].index, quote=beginning(missed.text, QUOTE))]
    if author.output and author.index != steps[missed.at].index:
        shown.append(Evidence(step=author.index, quote=beginning(author.output, QUOTE)))
    return Clue(step=author.index, kind=kind, reason=reason, evidence=tuple(shown), signs=signs)


def _next_words(run: _Run, missed: Missed) -> int:
    """Return where the agent of a failed call, or else another one, goes on without a word of the failure."""
    steps = run.reading.steps
    spoken = [
        at
        for at in range(missed.at + 1, len(steps))
        if steps[at].kind in THINKING
        and not steps[at].calls
        and run.reading.texts[at]
        and not kinds_said(steps[at].output[:HEAD]) & MISSES
    ]
    own = (at for at in spoken if steps[at].agent == steps[missed.at].agent)
    return next(own, spoken[-1] if spoken else missed.by)
