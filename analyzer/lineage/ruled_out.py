"""Deeds on what people rule out: web-eu-21 restarted, where the task says "all but web-eu-21". Pure.

A task that rules a name out ("all but P-552", "do not touch db-2") is broken by a deed on it that was done on
others as well: what was to be done with them was not to be done with it. "Not before it is drained" only puts
it off, and "do not forget web-13" and "not only web-11" ask for it.

A task may also rule a deed out by a command ("suspend it, do not cancel it"): a call of a tool whose name
begins with that verb breaks it, if all that the clause names is in the call.

And what a person takes back later ("not to Riverside, to Westgate") holds from then on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from analyzer.lineage.barred import EXCEPT
from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.deeds import VERB_LETTERS, spaced
from analyzer.lineage.entries import rows_in
from analyzer.lineage.known import Known
from analyzer.lineage.sources import LATIN_SENTENCE
from analyzer.lineage.targets import NAME, count_siblings, deed_on, is_id, named_deeds
from analyzer.texts.run_view import HEAD, QUOTE, callers_of
from analyzer.texts.tool_names import looks_up
from analyzer.texts.tool_results import Fault
from analyzer.texts.vocabulary import phrases, worded, words_for
from semconv.model import Evidence, StepKind
from semconv.record import record

_CLAUSE: Final = re.compile(r"[.;:!?\n](?=\s|$)")
_VERB_CLAUSE: Final = r"[.;:!?\n,](?=\s|$)|\s{but}\s"
_CONDITION: Final = r"\b(?:{condition}|{for_now})\b"
_ANY_WORD: Final = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")  # noqa: RUF001 - as typed
_MOST_BANS: Final = 12
_LONG_WORD: Final = re.compile(r"[^\W\d_]{4,}|[^\W_]*\d[^\W_]*")
_NEAR: Final = 4
"""Words between a word that denies and the name."""
_LEAST_AWAY: Final = 3
"""Words after a denied name that say something else of it: not X "that is closed but" Y."""
_SPECIAL: Final = re.compile(
    r"(?<![\w-])(?:[A-ZÀ-ÖØ-Þ][\w-]{2,40}|(?=[\w/.-]{0,40}\d)[\w][\w/.-]{1,40}\w)(?![\w-])"
)
_CLAUSE_PART: Final = re.compile(r"[^.;:!?,\n]+(?:[.,](?!\s|$)[^.;:!?,\n]*)*")


def deeds_on_barred(known: Known) -> Iterator[Clue]:
    """Yield the first deed on a name that the task rules out, by a tool that was used on others as well."""
    barred = _barred(known.asked, known.languages)
    deeds = named_deeds(known) if barred and not known.admits_fault else {}
    steps = known.reading.steps
    for position, names in deeds.items():
        for name in sorted(names & barred.keys()):
            tool = steps[position].target
            others = (each - barred.keys() for place, each in deeds.items() if steps[place].target == tool)
            if len(names) == 1 and any(count_siblings(each, name) for each in others):
                asker = callers_of(steps)[position]  # others may have passed the exception on
                words = f"the task says “{barred[name]}”"
                yield deed_on(known, position, name, words, position if asker is None else asker)
                return


def barred_deeds(known: Known) -> Iterator[Clue]:
    """Yield the first call of a tool that does what the task, and nobody after it, rules out."""
    task = known.reading.trajectory.task
    steps = known.reading.steps
    is_last_word = not any(map(str.isalpha, known.asked.removeprefix(task[:HEAD])))
    bans = _ruled_out(task[:HEAD], known.languages) if is_last_word else iter(())
    ruled_out = list(islice(bans, _MOST_BANS))
    for position, step in enumerate(steps if ruled_out and not known.admits_fault else ()):
        if step.kind is not StepKind.TOOL or known.reading.faults[position] is not Fault.NONE:
            continue
        verb, *thing = [*spaced(step.target or "").casefold().split(), ""]
        for ban in ruled_out if len(thing) > 1 and not looks_up(step.target or "") else ():
            call = f"{spaced(step.target or '')} {step.input[:HEAD]}".casefold()
            if _forbids(ban.verb, verb) and all(one in call for one in ban.things) and ban.is_on(thing):
                yield _barred_deed(known, position, ban.words)
                return


@record
class _Ban:
    """A deed that a task rules out."""

    verb: str
    """As the task has it, in lower case."""
    things: frozenset[str]
    """Beginnings of the other words of the clause, which say what must not be done."""
    words: str
    sentence: str
    others: str
    """The sentence that has the clause, and the rest of the task, in lower case."""

    def is_on(self, thing: Sequence[str]) -> bool:
        """Tell whether no word of a tool's name is that of something which only another sentence names."""
        stems = [one[:VERB_LETTERS] for one in thing if len(one) >= VERB_LETTERS]
        return not any(stem in self.others and stem not in self.sentence for stem in stems)


def _ruled_out(task: str, languages: tuple[str, ...]) -> Iterator[_Ban]:
    """Yield the verbs that stand right after words that forbid something, and nowhere else.

    "I could not book it", "nobody has approved it" and "there is no backup" report; and under a condition
    ("if it is sold out, do not order it", "do not restart yet") the deed may be right.
    """
    no = phrases("no", languages)
    for found in LATIN_SENTENCE.finditer(task) if no.search(task) else ():
        sentence = found[0]
        if worded(_CONDITION).search(sentence) or "?" in sentence:
            continue
        for clause in worded(_VERB_CLAUSE).split(sentence):
            denials = [*no.finditer(clause)]
            excuses = (phrases(kind, languages).search(clause) for kind in ("forget", "until", "only"))
            if len(denials) != 1 or any(excuses) or not _is_command(clause[: denials[0].end()], languages):
                continue
            words = [one.casefold() for one in _LONG_WORD.findall(clause[denials[0].end() :])]
            if words and len(words) <= _NEAR and task.casefold().count(words[0][:VERB_LETTERS]) == 1:
                yield _Ban(
                    verb=words[0],
                    things=frozenset(word[:VERB_LETTERS] for word in words[1:]),
                    words=clause[denials[0].start() :].strip(),
                    sentence=sentence.casefold(),
                    others=f"{task[: found.start()]} {task[found.end() :]}".casefold(),
                )


def _is_command(beginning: str, languages: tuple[str, ...]) -> bool:
    """Tell whether a clause forbids something by its beginning up to the word that denies."""
    *before, last = _ANY_WORD.findall(beginning.casefold()) or [""]
    if "en" in languages and last in {"no", "not"}:
        is_order = last == "not" and not words_for("modal").isdisjoint(before)
        return is_order and words_for("before_ban").issuperset(before)
    return words_for("before_ban").issuperset(before)


def _forbids(word: str, verb: str) -> bool:
    """Tell whether a word is a tool's verb as a command has it: ``anules``, not ``anularon``."""
    if word == verb:
        return True
    stem, ending = (verb[:-2], verb[-2:]) if verb.endswith(("ar", "er", "ir")) else (verb, "ar")
    forms = ("e", "es", "en", "ar") if ending == "ar" else ("a", "as", "an")
    return word in {f"{stem}{form}" for form in forms}


def _barred_deed(known: Known, position: int, words: str) -> Clue:
    call = known.reading.steps[position]
    asker = callers_of(known.reading.steps)[position]
    quote = Evidence(step=call.index, quote=f"{call.target} {call.input[:HEAD]}"[:QUOTE])
    reason = f"called {call.target}, where the task says “{' '.join(words.split())}”"
    return known.clue(position if asker is None else asker, ClueKind.EXCEEDED, reason, quote)


def _barred(task: str, languages: tuple[str, ...]) -> Mapping[str, str]:
    """Return the names that a task rules out and nowhere else mentions, each with the words that do."""
    found: dict[str, str] = {}
    for clause in _CLAUSE.split(task):
        names = [*NAME.finditer(clause)]
        no = [*phrases("no", languages).finditer(clause), *worded(EXCEPT).finditer(clause)] if names else []
        for name in names:
            before = [one for one in no if one.start() < name.start()]
            if before and _rules_out(clause, before[-1], name, languages):
                found[name[0].casefold()] = clause[before[-1].start() : name.end()].strip()
    small = task.casefold()
    return {name: words for name, words in found.items() if small.count(name) == 1}


def _rules_out(clause: str, no: re.Match[str], name: re.Match[str], languages: tuple[str, ...]) -> bool:
    """Tell whether a word that denies rules a name out: ``do not forget`` and ``not only`` ask for it."""
    between, after = clause[no.end() : name.start()], clause[name.end() :]
    forget = phrases("forget", languages).search(clause, 0, name.start())
    wants = forget or phrases("only", languages).search(between)
    until = phrases("until", languages).search(after)
    is_put_off = until is not None and not after[: until.start()].strip(" ,")
    return len(between.split()) <= _NEAR and not wants and not is_put_off


def deeds_after_correction(known: Known) -> Iterator[Clue]:
    """Yield the first step with what people had taken back, where no call uses what they put in its place."""
    task = known.reading.trajectory.task[:HEAD]
    later = ((one.step, one.text) for one in known.sources if not one.is_result and one.step is not None)
    for position, text in later:
        for old, new in _taken_back(task, text, known.languages):
            after = [step for step in known.reading.steps[position:] if step.kind is StepKind.TOOL]
            used = {new, *_ids_beside(known, new)}
            is_followed = any(one in step.input for step in after for one in used)
            if is_followed or not any(old in step.input for step in after):
                continue
            step = known.first_with(old, after=position - 1)
            reason = f"went on with {old}, which a person had replaced by {new}"
            yield known.clue(step, ClueKind.CHANGED, reason, known.quote(step, old), sign="argument")
            return


def _ids_beside(known: Known, name: str) -> Iterator[str]:
    """Yield the ids in the records that have a name: a call may use them in its place."""
    rows = (row.values() for _, text in known.results() if name in text for row in rows_in(text))
    yield from (one for row in rows if name in row for one in row if isinstance(one, str) and is_id(one))


def _taken_back(task: str, text: str, languages: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the names of a task that a later message denies, each with the only one that it gives instead."""
    names = [one for one in _SPECIAL.finditer(text) if _starts_no_sentence(text, one)]
    denied = [
        name[0]
        for clause in _CLAUSE_PART.finditer(text)
        for no in phrases("no", languages).finditer(clause[0])
        for name in names
        if clause.start() + no.end() <= name.start() < clause.end() and name[0] in task
        if len(text[clause.start() + no.end() : name.start()].split()) < _NEAR
    ]
    others = list(dict.fromkeys(name[0] for name in names if name[0] not in task and name[0] not in denied))
    for old in dict.fromkeys(denied):
        alike = [one for one in others if _form_of(one) == _form_of(old)]
        if len(alike) == 1 and _is_replaced(text, old, alike[0]):
            yield old, alike[0]


def _is_replaced(text: str, old: str, new: str) -> bool:
    """Tell whether a clause without a condition ends with the old name, or the new one follows at once."""
    clause = next((one[0] for one in _CLAUSE_PART.finditer(text) if old in one[0]), "")
    after = clause.partition(old)[2].partition(new)[0].split()
    return len(after) < _LEAST_AWAY and not worded(_CONDITION).search(clause)


def _starts_no_sentence(text: str, name: re.Match[str]) -> bool:
    before = text[: name.start()].rstrip()
    return any(map(str.isdigit, name[0])) or (bool(before) and before[-1] not in ".!?:")


def _form_of(name: str) -> str:
    """Return the form of a name: its marks, and whether it has digits."""
    return re.sub(r"[^\W\d_]+", "a", re.sub(r"\d+", "0", name))
