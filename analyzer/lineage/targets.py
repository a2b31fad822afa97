"""Deeds on the wrong thing: web-eu-21 restarted, where the task names web-eu-12 or rules web-eu-21 out. Pure.

Siblings are names that differ in their digits only. A deed on one is a slip if no deed touches the one that
the task names, the answer reports on that one alone, and nothing leads from it to the other: no line of a
result, and no message, has both. A result that lists them shows only that both exist.

A task that rules a name out ("all but P-552", "do not touch db-2") is broken by a deed on it that was done on
others as well: what was to be done with them was not to be done with it. "Not before it is drained" only puts
it off, and "do not forget web-13" and "not only web-11" ask for it.

A task may also rule a deed out by a command ("suspend it, do not cancel it"): a call of a tool whose name
begins with that verb breaks it, if all that the clause names is in the call.

An agent cannot know an id that nobody told it: a deed on one is a slip if the agent was told another of the
same list. And what a person takes back later ("not to Riverside, to Westgate") holds from then on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Final, TypeAlias

from analyzer.lineage.barred import EXCEPT
from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.deeds import VERB_LETTERS, acts_of, spaced
from analyzer.lineage.entries import Scalar, record_texts, rows_in, stands_in, tables_in
from analyzer.lineage.known import Known, around
from analyzer.lineage.sources import LATIN_SENTENCE
from analyzer.lineage.vocabulary import phrases, worded, words_for
from analyzer.signals.commands import call_name
from analyzer.signals.run_view import HEAD, QUOTE, callers_of, own_words
from analyzer.signals.tool_names import deed_of, looks_up
from analyzer.signals.tool_results import Fault
from semconv.dialects.reading.values import mapping
from semconv.model import Evidence, StepKind
from semconv.record import record

_NAME: Final = re.compile(r"(?<![\w.@/-])[^\W\d_](?=[\w./-]{0,60}\d)[^\W_]{0,40}(?:[-./_][^\W_]{1,40}){0,6}")
_ID: Final = re.compile(r"(?<![\w-])(?=[\w-]*\d)(?=[\w-]*[a-z])[\w-]{6,60}(?![\w-])")
_DIGITS: Final = re.compile(r"\d+")
_NUMBER: Final = re.compile(r"(\d{1,18})")
_MAKES: Final = frozenset({"create", "issue", "add", "register", "generate"})
"""Deeds that may give a new thing the next number."""
_LEAST_LETTERS: Final = 2
_Rows: TypeAlias = Mapping[str, Mapping[str, Scalar]]
"""The rows of a list by their ids in lower case."""
"""Letters before the first digit of a name: ``q3`` and ``v2`` have siblings everywhere."""
_MOST_DEEDS: Final = 60
_MOST_PAIRS: Final = 12
"""Pairs of names for which the run is searched for what leads from the one to the other."""
_MANY: Final = 3
"""Siblings on one line from which it only lists them."""
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


def deeds_on_siblings(known: Known) -> Iterator[Clue]:
    """Yield the first deed on a sibling of what the task names and the answer reports on."""
    said = _names(known.answer)
    asked = _names(known.asked)
    wanted = {_shape(one): one for one in asked if one in said}
    deeds = _deeds(known) if wanted else {}
    touched = frozenset[str]().union(*deeds.values())
    found = (
        (position, used, given)
        for position, names in deeds.items()
        for used in sorted(names - asked - said)
        if (given := wanted.get(_shape(used))) is not None and given not in touched
        if not (deed_of(call_name(known.reading.steps[position])) in _MAKES and _follows(used, given))
    )
    for position, used, given in islice(found, _MOST_PAIRS):
        if not _is_led(known, given, used):
            yield _clue(known, position, used, f"the task names {given}")
            return


def deeds_on_barred(known: Known) -> Iterator[Clue]:
    """Yield the first deed on a name that the task rules out, by a tool that was used on others as well."""
    barred = _barred(known.asked, known.languages)
    deeds = _deeds(known) if barred and not known.admits_fault else {}
    steps = known.reading.steps
    for position, names in deeds.items():
        for name in sorted(names & barred.keys()):
            tool = steps[position].target
            others = (each - barred.keys() for place, each in deeds.items() if steps[place].target == tool)
            if len(names) == 1 and any(_alike(each, name) for each in others):
                asker = callers_of(steps)[position]  # others may have passed the exception on
                words = f"the task says “{barred[name]}”"
                yield _clue(known, position, name, words, position if asker is None else asker)
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


def deeds_on_untold(known: Known) -> Iterator[Clue]:
    """Yield the first deed on an id that its agent was never told, beside the one of its list that it was.

    An id is told as well by its number ("loan 210"), by what else its row has, or as the one beside another.
    """
    steps = known.reading.steps
    is_alone = len({one.agent for one in steps}) == 1  # it has heard all results
    deeds = [] if is_alone or known.is_blind else list(islice(_ids_in_deeds(known), _MOST_DEEDS))
    columns = list(islice(_id_columns(known), _MOST_COLUMNS)) if deeds else []
    for position, value in deeds if columns else ():
        step, small = steps[position], value.casefold()
        lists = [ids for source, ids in columns if source < position and small in ids]
        heard = known.heard_by(position).casefold() if lists else small
        if _is_told(small, heard):
            continue
        told = {one for ids in lists for one in ids if stands_in(one, heard)}
        if any(_is_described(ids, small, told, heard) for ids in lists):
            continue
        if any(_is_next(small, one) for one in told):
            continue
        if len(told) == 1 and not _is_done(known, step.target, *told):
            own = (place for place in range(position) if steps[place].agent == step.agent)
            first = next((place for place in own if value in steps[place].output), position)
            yield _clue(known, position, value, f"{step.agent} was told {told.pop()}", first)
            return


def _ids_in_deeds(known: Known) -> Iterator[tuple[int, str]]:
    for position, step in enumerate(known.reading.steps):
        is_done = step.kind is StepKind.TOOL and known.reading.faults[position] is Fault.NONE
        if is_done and not looks_up(call_name(step)):
            values = mapping(step.input[:HEAD]).values()
            yield from ((position, value) for value in values if isinstance(value, str) and _is_id(value))


def _is_told(name: str, heard: str) -> bool:
    """Tell whether a text in lower case has an id or, as a word, its last number of two digits and more."""
    number = next(reversed(_NUMBER.findall(name)), "")
    as_word = re.compile(rf"(?<![\w-]){number}(?![\w-])")
    return name in heard or (len(number) > 1 and as_word.search(heard) is not None)


def _is_next(name: str, told: str) -> bool:
    """Tell whether the last number of an id is one more or less than that of another one."""
    *stem, last = _NUMBER.split(name)[:-1] or [""]
    *other, number = _NUMBER.split(told)[:-1] or [""]
    return bool(last and number) and stem == other and abs(int(last) - int(number)) == 1


def _is_described(rows: _Rows, name: str, told: AbstractSet[str], heard: str) -> bool:
    """Tell whether a text in lower case has what an id's row has, and no row that it was told of."""
    others = {pair for one in told & rows.keys() for pair in rows[one].items()}
    own = (_as_said(*pair) for pair in rows[name].items() if pair not in others)
    return any(stands_in(one, heard) for one in own)


def _as_said(key: str, value: Scalar) -> str:
    """Return a value in lower case as people say it: a short one after its column's name, ``zone b``."""
    text = str(value).casefold()
    is_short = len(text) <= _LEAST_LETTERS or not isinstance(value, str)
    return f"{key.rpartition('_')[2].casefold()} {text}" if is_short else text


def _id_columns(known: Known) -> Iterator[tuple[int, _Rows]]:
    """Yield the rows of lists by each column whose values have digits or are addresses, and all differ."""
    for source, text in known.results():
        for rows in tables_in(text):
            for key in rows[0]:
                values = [row.get(key) for row in rows]
                ids = {
                    one.casefold(): row
                    for one, row in zip(values, rows, strict=True)
                    if isinstance(one, str) and _is_id(one)
                }
                if len(ids) == len(values):
                    yield source, ids


def _is_id(text: str) -> bool:
    has_mark = "@" in text or any(map(str.isdigit, text))
    return len(text) > _LEAST_LETTERS and " " not in text and has_mark


def _is_done(known: Known, tool: str | None, name: str) -> bool:
    return any(step.target == tool and name in step.input.casefold() for step in known.reading.steps)


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
    yield from (one for row in rows if name in row for one in row if isinstance(one, str) and _is_id(one))


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


_SPECIAL: Final = re.compile(
    r"(?<![\w-])(?:[A-ZÀ-ÖØ-Þ][\w-]{2,40}|(?=[\w/.-]{0,40}\d)[\w][\w/.-]{1,40}\w)(?![\w-])"
)
_CLAUSE_PART: Final = re.compile(r"[^.;:!?,\n]+(?:[.,](?!\s|$)[^.;:!?,\n]*)*")
_MOST_COLUMNS: Final = 60


def _starts_no_sentence(text: str, name: re.Match[str]) -> bool:
    before = text[: name.start()].rstrip()
    return any(map(str.isdigit, name[0])) or (bool(before) and before[-1] not in ".!?:")


def _form_of(name: str) -> str:
    """Return the form of a name: its marks, and whether it has digits."""
    return re.sub(r"[^\W\d_]+", "a", re.sub(r"\d+", "0", name))


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
        names = [*_NAME.finditer(clause)]
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


def _names(text: str) -> frozenset[str]:
    """Return the names with digits in a text, in lower case."""
    found = (one.casefold() for one in _NAME.findall(text[:HEAD]))
    return frozenset(
        one for one in found if len(_DIGITS.split(one)[0]) >= _LEAST_LETTERS and _shape(one) != one
    )


def _shape(name: str) -> str:
    return _DIGITS.sub("0", name)


def _follows(used: str, given: str) -> bool:
    """Tell whether a name has the next number: FV-2026-032 after FV-2026-031."""
    *before, number = _NUMBER.split(used)[:-1]
    *stem, last = _NUMBER.split(given)[:-1]
    return before == stem and int(number) == int(last) + 1


def _deeds(known: Known) -> Mapping[int, frozenset[str]]:
    """Return the names in the arguments of each call that changed something, by position."""
    found: dict[int, frozenset[str]] = {}
    for place, step in enumerate(known.reading.steps):
        if step.kind is not StepKind.TOOL or known.reading.faults[place] is not Fault.NONE:
            continue
        name = call_name(step)
        if len(found) < _MOST_DEEDS and not looks_up(name) and (deed_of(name) or acts_of(name)):
            found[place] = _names(step.input)
    return found


def _is_led(known: Known, given: str, used: str) -> bool:
    """Tell whether something in the run leads from the name that was given to the one that was used."""
    words = (own_words(step) for step in known.reading.steps if step.kind is not StepKind.TOOL)
    if any({given, used} <= _names(text) for text in (known.instructions, *words)):
        return True
    return _shares_id(known, given, used) or _is_returned_for(known, given, used)


def _is_returned_for(known: Known, given: str, used: str) -> bool:
    """Tell whether a record has both names, or a call for the one returned the other and no sibling of it."""
    steps = known.reading.steps
    for place, text in known.results():
        if used not in text.casefold():
            continue
        records = map(_names, record_texts(text))
        if any({given, used} <= names and _alike(names, used) < _MANY for names in records):
            return True
        is_about = steps[place].kind is StepKind.TOOL and given in _names(steps[place].input)
        names = _names(text) if is_about else frozenset()
        if used in names and _alike(names - {given}, used) == 1:
            return True
    return False


def _shares_id(known: Known, given: str, used: str) -> bool:
    """Tell whether a record of the one name and a record of the other have an id in common."""
    ids: dict[str, set[str]] = {given: set(), used: set()}
    for _, text in known.results():
        small = text.casefold()
        for words in record_texts(text) if given in small or used in small else ():
            names = _names(words)
            for name in names & ids.keys():
                ids[name] |= set(_ID.findall(words.casefold())) - names
    return not ids[given].isdisjoint(ids[used])


def _alike(names: frozenset[str], used: str) -> int:
    return sum(_shape(name) == _shape(used) for name in names)


def _clue(known: Known, deed: int, used: str, words: str, since: int = 0) -> Clue:
    """Return the clue against the step that first wrote the name, from ``since`` up to the deed."""
    call = known.reading.steps[deed]
    literal = next((one for one in _NAME.findall(call.input) if one.casefold() == used), used)
    position = max(since, known.origin_of(literal, deed))
    reason = f"called {call.target or 'a tool'} for {literal}, where {words}"
    own = known.quote(position, literal)
    quote = own if own.quote else Evidence(step=call.index, quote=around(call.input, literal))
    return known.clue(position, ClueKind.CHANGED, reason, quote, sign="argument")
