"""Deeds that the answer claims, for which a tool was offered and never called. Pure.

The task asks for it, the answer reports it in the same words, and these are the words of a tool that no agent
called: ``notify_carrier``. All words of its name in one report are enough, whatever was asked for. Words are
compared by their beginnings, so that this holds in any language that names tools.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.deeds import NOT_DONE, SENTENCE, acts_of, claims_in, spaced
from analyzer.lineage.known import Known, beginnings_in
from analyzer.signals.run_view import HEAD, QUOTE, final_answer
from analyzer.signals.tool_names import looks_up
from analyzer.signals.wordings import Kind, languages_in, said
from semconv.model import Evidence

_LETTERS: Final = 4
"""Letters of the shortest word that counts."""
_LEAST: Final = 2
_MOST_TOOLS: Final = 200
_MOST_SENTENCES: Final = 40
_OPEN: Final = (Kind.ADMISSION, Kind.PROMISE, Kind.GIVING_UP)


def unmade_calls(known: Known) -> Iterator[Clue]:
    """Yield the claims that need a call of an offered tool which no agent called."""
    unused = _unused(known)
    claims = _reports(final_answer(known.reading.trajectory)[:HEAD]) if unused else ()
    asked = beginnings_in(known.asked, _LETTERS) if claims else frozenset()
    called = (
        beginnings_in(" ".join(spaced(tool or "") for tool in known.last_calls), _LETTERS)
        if claims
        else frozenset()
    )
    done = (
        called | beginnings_in(" ".join(text for _, text in known.results()), _LETTERS) if claims else called
    )
    for tool, told in unused.items() if claims else ():
        name = beginnings_in(spaced(tool), _LETTERS)
        meant = (name | beginnings_in(told, _LETTERS)) & asked
        for sentence in claims:
            words = beginnings_in(sentence, _LETTERS)
            shared = meant & words
            is_named = len(name) >= _LEAST and name <= words and name.isdisjoint(called)
            if is_named or (len(shared) >= _LEAST and not (shared & name) <= done):
                yield _clue(known, tool, sentence)
                return


def _reports(answer: str) -> Sequence[str]:
    """Return the sentences of an answer that claims something, without questions, promises and admissions."""
    claimed = [sentence for sentence, _ in claims_in(answer)]
    languages = languages_in(answer)
    sentences = [found[0].strip() for found in SENTENCE.finditer(answer)][:_MOST_SENTENCES] if claimed else []
    return [
        one
        for one in sentences
        if one in claimed
        or not (
            one.endswith("?") or NOT_DONE.search(one) or any(said(kind, one, languages) for kind in _OPEN)
        )
    ]


def _unused(known: Known) -> Mapping[str, str]:
    """Return the offered tools that no agent called, each with what it is said to do."""
    steps = known.reading.steps
    lines = dict.fromkeys(line for step in steps for line in step.tools.splitlines())
    offered = dict(_parts(line) for line in list(lines)[:_MOST_TOOLS])
    called = {step.target or "" for step in steps} | {call.name for step in steps for call in step.calls}
    acts = frozenset[str]().union(*(acts_of(tool) for tool in called))
    return {
        tool: told
        for tool, told in offered.items()
        if tool not in {"", *called} and not looks_up(tool) and acts.isdisjoint(acts_of(tool))
    }


def _parts(line: str) -> tuple[str, str]:
    name, _, told = line.partition(":")
    return name.partition("(")[0].strip(), told


def _clue(known: Known, tool: str, sentence: str) -> Clue:
    position = known.first_said(lambda text: sentence in text)
    step = known.reading.steps[position].index
    return Clue(
        step=step,
        kind=ClueKind.CLAIMED,
        reason=f"claimed a deed for which {tool[:60]} was offered, and did not call it",
        evidence=(Evidence(step=step, quote=sentence[:QUOTE]),),
    )
