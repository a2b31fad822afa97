"""Deeds that the answer claims, for which a tool was offered and never called. Pure.

The task asks for it, the answer reports it in the same words, and these are the words of a tool that no agent
called: ``notify_carrier``. All words of its name in one report are enough, whatever was asked for. Words are
compared by their beginnings, so that this holds in any language that names tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Final

from analyzer.lineage.checks import CHECKS
from analyzer.lineage.clue import Clue
from analyzer.lineage.deeds import NOT_DONE, SENTENCE, acts_of, claim_of, claims_in, spaced
from analyzer.lineage.known import Known, beginnings_in
from analyzer.texts.run_view import HEAD
from analyzer.texts.tool_names import looks_up
from analyzer.texts.tool_results import Fault
from analyzer.texts.vocabulary import worded
from analyzer.texts.wordings import Kind, languages_in, says
from semconv.model import StepKind

_CHECKED: Final = re.compile(
    r"\b(?:I|we)(?:['’]ve| have)? (?:also |first |just )?"  # noqa: RUF001 - an apostrophe as typed
    r"(?:checked|verified|tested|validated|screened|ran|run)\b"
    r"|\bhabe(?:n)? (?:wir |ich )?(?:\S+ ){0,12}(?:geprüft|überprüft|getestet|kontrolliert)\b"
    r"|\b(?:j['’]ai|nous avons) (?:\w+ )?(?:vérifié|contrôlé|testé)\b"  # noqa: RUF001 - an apostrophe as typed
    r"|\b(?:he|hemos) (?:comprobado|verificado|revisado|probado)\b"
    r"|\b(?:verifiquei|testei|conferi|verificámos|verificamos)\b"
    r"|\b(?:ho|abbiamo) (?:verificato|controllato|testato)\b|\bsprawdzi(?:łem|łam|liśmy)\b"
    r"|\b(?:gecontroleerd|getest|nagekeken)\b|kontrol et(?:tim|tik)|\bпровери(?:л|ла|ли)\b"  # noqa: RUF001 - Russian
    r"|(?:检查|核对|核实|测试|验证)(?:了|过)|(?:確認|検査|テスト)しました"
    r"|확인했|점검했|검사했",
    re.IGNORECASE,
)
"""What a sentence says in which somebody claims to have checked something."""
_CHECKING: Final = frozenset({"check", "test", "tests", "valid", "verif", "scree", "revie"})
"""Beginnings of words that only say that something is checked."""
_LETTERS: Final = 4
"""Letters of the shortest word that counts."""
_WORDS: Final = re.compile(r"[^\W\d_]+")
_LEAST: Final = 2
_MOST_TOOLS: Final = 200
_MOST_SENTENCES: Final = 40
_OPEN: Final = (Kind.ADMISSION, Kind.PROMISE, Kind.GIVING_UP)


def unmade_calls(known: Known) -> Iterator[Clue]:
    """Yield the claims that need a call of an offered tool which no agent called."""
    yield from _unmade_checks(known)
    yield from _failed_checks(known)
    unused = _unused(known)
    claims = _reports(known.answer) if unused else ()
    if not claims:
        return
    asked = beginnings_in(known.asked, _LETTERS)
    called = beginnings_in(" ".join(spaced(tool or "") for tool in known.last_calls), _LETTERS)
    did = (step.input[:HEAD] for step in known.reading.steps if step.kind is StepKind.TOOL)
    spoken = " ".join((*(text for _, text in known.results()), *did))
    done = called | beginnings_in(spoken, _LETTERS)
    for tool, told in unused.items():
        name = beginnings_in(spaced(tool), _LETTERS)
        meant = (name | beginnings_in(told, _LETTERS)) & asked
        for sentence in claims:
            words = beginnings_in(sentence, _LETTERS)
            shared = meant & words
            is_named = len(name) >= _LEAST and name <= words and name.isdisjoint(called) and not name <= done
            if is_named or (len(shared) >= _LEAST and not (shared & name) <= done):
                yield _clue(known, tool, sentence)
                return


def _unmade_checks(known: Known) -> Iterator[Clue]:
    """Yield the checks that the answer claims in words of an offered check which no agent called."""
    offered, called = _offered(known), _called(known)
    checks = [tool for tool in offered if tool not in called and worded(CHECKS).search(tool)]
    if not checks or _CHECKED.search(known.answer) is None:
        return
    sentences = (found[0] for found in SENTENCE.finditer(known.answer))
    claims = [one for one in sentences if _CHECKED.search(one)][:_MOST_SENTENCES]
    used = beginnings_in(" ".join(f"{tool} {offered.get(tool, '')}" for tool in called), _LETTERS)
    asked = beginnings_in(known.asked, _LETTERS) if claims else frozenset()
    for tool in checks:
        name = beginnings_in(spaced(tool), _LETTERS)
        meant = (name | (beginnings_in(offered[tool], _LETTERS) & asked)) - used - _CHECKING
        for sentence in claims:
            if meant & beginnings_in(sentence, _LETTERS):
                yield _clue(known, tool, sentence)
                return


def _failed_checks(known: Known) -> Iterator[Clue]:
    """Yield the claims of a check all of whose calls failed: "and its checksum verified"."""
    steps, faults = known.reading.steps, known.reading.faults
    calls = [
        (step.target or "", faults[place]) for place, step in enumerate(steps) if step.kind is StepKind.TOOL
    ]
    sound = {tool for tool, fault in calls if fault is not Fault.FAILED}
    checks = {tool for tool, _ in calls if tool not in sound and worded(CHECKS).search(tool)}
    if not checks or known.admits_fault:
        return
    made = frozenset(_WORDS.findall(" ".join(map(spaced, sound)).casefold()))
    for tool, sentence in product(sorted(checks), _reports(known.answer)):
        words = [word for word in _WORDS.findall(spaced(tool).casefold()) if len(word) >= _LETTERS]
        objects = [word for word in words[1:] if word not in made]
        small = sentence.casefold()
        if objects and all(word in small for word in objects) and words[0][:_LETTERS] in small:
            yield claim_of(known, sentence, f"claimed a check for which {tool[:60]} failed")
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
            one.endswith("?") or NOT_DONE.search(one) or any(says(kind, one, languages) for kind in _OPEN)
        )
    ]


def _offered(known: Known) -> Mapping[str, str]:
    """Return the offered tools, each with what it is said to do."""
    lines = dict.fromkeys(line for step in known.reading.steps for line in step.tools.splitlines())
    return dict(_parts(line) for line in list(lines)[:_MOST_TOOLS])


def _called(known: Known) -> frozenset[str]:
    steps = known.reading.steps
    return frozenset(
        (*(step.target or "" for step in steps), *(call.name for step in steps for call in step.calls))
    )


def _unused(known: Known) -> Mapping[str, str]:
    """Return the offered tools that change something and that no agent called."""
    offered, called = _offered(known), _called(known)
    acts = frozenset[str]().union(*(acts_of(tool) for tool in called))
    return {
        tool: told
        for tool, told in offered.items()
        if tool not in {"", *called}
        and (not looks_up(tool) or worded(CHECKS).search(tool))
        and acts.isdisjoint(acts_of(tool))
    }


def _parts(line: str) -> tuple[str, str]:
    name, _, told = line.partition(":")
    return name.partition("(")[0].strip(), told


def _clue(known: Known, tool: str, sentence: str) -> Clue:
    reason = f"claimed a deed for which {tool[:60]} was offered, and did not call it"
    return claim_of(known, sentence, reason)
