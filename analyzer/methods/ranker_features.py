"""Features of each step for the learned ranker, and the operations on their columns. Pure.

About eighty values per step, from structure and words and the signals' findings; nothing is learned here, and
no framework or agent is named. A value describes this step, its neighbours, or its position among the run's
steps, so that a model over them knows neither the task nor the agents' authors.

``VERSION`` is part of every stored model: change it with the meaning of any feature, and old models are
refused instead of misread.

Cost: linear in the text; a few milliseconds a run.

Word origins: a failed run's answer is wrong, so the error lies in the step that introduces its words or
before; a step whose new words are never repeated changed nothing. Words are compared, not meanings; a number
counts as a word.

Cost: linear in the text.

Words are English and counted, not understood; a value describes this step or a neighbour. Names are only
compared: the same run under other names has the same values.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from analyzer.inquiry.match_agents import normalise
from analyzer.signals.registry import findings
from analyzer.signals.scoring import posterior
from analyzer.texts.numbers import numbers
from analyzer.texts.run_view import Finding, Reading, Role, final_answer, read
from analyzer.texts.tool_results import Fault
from semconv.model import StepKind, Trajectory

Columns: TypeAlias = Mapping[str, Sequence[float]]
"""Values by feature, one per step."""
READ: Final = 6_000
"""Characters of a step that features read: enough for prose, a bound for whole pages."""


def shift(column: Sequence[float], by: int) -> list[float]:
    """Return the value of the previous (1) or next (-1) step; 0 if there is none."""
    return [0.0, *column[:-1]] if by > 0 else [*column[1:], 0.0]


def counted_before(claims: Iterable[bool]) -> list[int]:
    """Return the number of true claims before each position."""
    counts, so_far = [], 0
    for claim in claims:
        counts.append(so_far)
        so_far += claim
    return counts


TEXT: Final = (
    "length", "length_apart", "length_before", "length_after", "figures", "questions", "lines", "code",
    "code_defines", "code_after",
)  # fmt: skip
WORDS: Final = (
    "error_words", "error_words_before", "error_words_after", "hedges", "hedges_after", "corrections",
    "corrections_after", "done_words", "done_words_after", "plan_words", "search_words", "gave_up_words",
    "gave_up_words_after",
)  # fmt: skip
OVERLAP: Final = ("like_task", "like_answer", "like_before", "like_after", "novelty")

_LONG_WORD: Final = re.compile(r"[^\W_]{3,}")
_ERROR: Final = re.compile(
    r"\b(?:error|exception|traceback|fail(?:ed|ure|s)?|invalid|denied|not found|timed out)\b", re.IGNORECASE
)
_HEDGE: Final = re.compile(
    r"\b(?:assum\w+|likely|probably|perhaps|might|may|seems?|appears?|guess\w*|estimate\w*|approximat\w+"
    r"|hypothetical|simulat\w+|placeholder|example)\b",
    re.IGNORECASE,
)
_CORRECT: Final = re.compile(
    r"\b(?:correct(?:ed|ion|ly)?|mistake|incorrect|wrong|instead|fix(?:ed)?|revis\w+|issue|however|but)\b",
    re.IGNORECASE,
)
_DONE: Final = re.compile(
    r"\b(?:confirm\w*|verif\w+|conclu\w+|therefore|final|successfully|accurate|terminate|solved|complete)\b",
    re.IGNORECASE,
)
_PLAN: Final = re.compile(
    r"\b(?:plan|step|first|next|then|will|let(?:'s| us)|should|need(?:s)? to|task)\b", re.IGNORECASE
)
_SEARCH: Final = re.compile(
    r"\b(?:search\w*|click\w*|scroll\w*|page|website|browse\w*|download\w*|url|results?)\b|https?://",
    re.IGNORECASE,
)
_GIVE_UP: Final = re.compile(
    r"\b(?:unable|cannot|can't|could(?:n't| not)|unavailable|no (?:results?|data|information))\b",
    re.IGNORECASE,
)
_DEFINES: Final = re.compile(r"^\s*(?:def|class|import|from)\s", re.MULTILINE)


def text_features(reading: Reading) -> Columns:
    """Return the features ``TEXT``: each step's length, relative to its neighbours, and its composition."""
    lengths = [math.log1p(len(text)) for text in reading.texts]
    mean = sum(lengths) / len(lengths)
    outputs = [step.output[:READ] for step in reading.steps]
    return {
        "length": lengths,
        "length_apart": [length - mean for length in lengths],
        "length_before": shift(lengths, 1),
        "length_after": shift(lengths, -1),
        "figures": [math.log1p(len(numbers(text))) for text in outputs],
        "questions": [math.log1p(text.count("?")) for text in outputs],
        "lines": [math.log1p(text.count("\n")) for text in outputs],
        "code": [float("```" in text) for text in outputs],
        "code_defines": [math.log1p(len(_DEFINES.findall(text))) for text in outputs],
        "code_after": shift([float("```" in text) for text in outputs], -1),
    }


def word_features(reading: Reading) -> Columns:
    """Return the features ``WORDS``: counts of kinds of words in a step and its neighbours (logarithmic)."""
    errors = _count(_ERROR, reading)
    hedges = _count(_HEDGE, reading)
    corrections = _count(_CORRECT, reading)
    done = _count(_DONE, reading)
    gave_up = _count(_GIVE_UP, reading)
    return {
        "error_words": errors,
        "error_words_before": shift(errors, 1),
        "error_words_after": shift(errors, -1),
        "hedges": hedges,
        "hedges_after": shift(hedges, -1),
        "corrections": corrections,
        "corrections_after": shift(corrections, -1),
        "done_words": done,
        "done_words_after": shift(done, -1),
        "plan_words": _count(_PLAN, reading),
        "search_words": _count(_SEARCH, reading),
        "gave_up_words": gave_up,
        "gave_up_words_after": shift(gave_up, -1),
    }


def overlap_features(reading: Reading) -> Columns:
    """Return the features ``OVERLAP``: words that each step shares with task, answer and neighbours."""
    bags = [_bag(text) for text in reading.texts]
    task, answer = _bag(reading.trajectory.task), _bag(final_answer(reading.trajectory))
    novelty, seen = [], set(task)
    for bag in bags:
        novelty.append(len(bag - seen) / max(1, len(bag)))
        seen |= bag
    return {
        "like_task": [_contained(task, bag) for bag in bags],
        "like_answer": [_contained(answer, bag) for bag in bags],
        "like_before": [_alike(bags[i - 1], bag) if i else 0.0 for i, bag in enumerate(bags)],
        "like_after": [_alike(bag, bags[i + 1]) if i + 1 < len(bags) else 0.0 for i, bag in enumerate(bags)],
        "novelty": novelty,
    }


def _count(pattern: re.Pattern[str], reading: Reading) -> list[float]:
    return [math.log1p(len(pattern.findall(text[:READ]))) for text in reading.texts]


def _bag(text: str) -> frozenset[str]:
    return frozenset(word.casefold() for word in _LONG_WORD.findall(text[:READ]))


def _contained(part: frozenset[str], whole: frozenset[str]) -> float:
    return len(part & whole) / len(part) if part else 0.0


def _alike(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other) if one or other else 0.0


PLACE: Final = (
    "place", "place_share", "place_log", "place_from_end", "run_length", "acted_before", "acted_before_share",
    "first_act",
)  # fmt: skip
SPEAKER: Final = (
    "speaker_share", "speaker_count", "speaker_before", "speaker_first", "speaker_last", "speaker_again",
    "speaker_goes_on", "acting", "coordinating", "calling", "stating", "handing_over", "after_handover",
    "after_tool", "before_tool", "speakers_before", "acting_in_code", "acting_in_prose",
)  # fmt: skip
LED: Final = (
    "led_acting", "led_place", "led_place_share", "led_acted_before", "led_first_act", "led_speaker_before",
)  # fmt: skip


def place_features(reading: Reading) -> Columns:
    """Return the features ``PLACE``: each step's position in the run, in steps and in turns of work."""
    steps = range(len(reading.steps))
    n = len(reading.steps)
    acted = counted_before(role is Role.ACTING for role in reading.roles)
    acting = max(1, sum(role is Role.ACTING for role in reading.roles))
    return {
        "place": steps,
        "place_share": [i / max(1, n - 1) for i in steps],
        "place_log": [math.log1p(i) for i in steps],
        "place_from_end": [math.log1p(n - 1 - i) for i in steps],
        "run_length": [math.log1p(n)] * n,
        "acted_before": [math.log1p(count) for count in acted],
        "acted_before_share": [count / acting for count in acted],
        "first_act": [
            float(role is Role.ACTING and not count) for role, count in zip(reading.roles, acted, strict=True)
        ],
    }


def speaker_features(reading: Reading) -> Columns:
    """Return the features ``SPEAKER``: how much and when a step's agent acts, its role, its tools."""
    names = [normalise(step.agent) for step in reading.steps]
    n, said = len(names), Counter(names)
    before, so_far = [], Counter[str]()
    for name in names:
        before.append(so_far[name])
        so_far[name] += 1
    roles = reading.roles
    new = counted_before(not count for count in before)
    code = ["```" in step.output[:READ] for step in reading.steps]
    return {
        "speaker_share": [said[name] / n for name in names],
        "speaker_count": [math.log1p(len(said))] * n,
        "speaker_before": [math.log1p(count) for count in before],
        "speaker_first": [float(not count) for count in before],
        "speaker_last": [float(count + 1 == said[name]) for name, count in zip(names, before, strict=True)],
        "speaker_again": [float(i > 0 and names[i - 1] == name) for i, name in enumerate(names)],
        "speaker_goes_on": [float(i + 1 < n and names[i + 1] == name) for i, name in enumerate(names)],
        "acting": [float(role is Role.ACTING) for role in roles],
        "coordinating": [float(role is Role.COORDINATING) for role in roles],
        "calling": [float(role in (Role.CALL, Role.RELAYING)) for role in roles],
        "stating": [float(role is Role.STATING) for role in roles],
        "handing_over": [float(step.kind is StepKind.HANDOFF) for step in reading.steps],
        "after_handover": [float(i > 0 and reading.steps[i - 1].kind is StepKind.HANDOFF) for i in range(n)],
        "after_tool": [float(i > 0 and reading.steps[i - 1].kind is StepKind.TOOL) for i in range(n)],
        "before_tool": [float(i + 1 < n and reading.steps[i + 1].kind is StepKind.TOOL) for i in range(n)],
        "speakers_before": [math.log1p(count) for count in new],
        "acting_in_code": [
            float(role is Role.ACTING and coded) for role, coded in zip(roles, code, strict=True)
        ],
        "acting_in_prose": [
            float(role is Role.ACTING and not coded) for role, coded in zip(roles, code, strict=True)
        ],
    }


def led_features(reading: Reading) -> Columns:
    """Return the features ``LED``: position and turn in runs with a coordinating agent; 0 in others.

    Positions mean something else there, because turns are assigned and agents return.
    """
    led = float(any(role is Role.COORDINATING for role in reading.roles))
    place, speaker = place_features(reading), speaker_features(reading)
    return {
        name: [led * value for value in column]
        for name, column in (
            ("led_acting", speaker["acting"]),
            ("led_place", place["place_log"]),
            ("led_place_share", place["place_share"]),
            ("led_acted_before", place["acted_before"]),
            ("led_first_act", place["first_act"]),
            ("led_speaker_before", speaker["speaker_before"]),
        )
    }


_WORD: Final = re.compile(r"[^\W\d_]{3,}|\d+")
_READ: Final = 6_000
_ANSWER: Final = 400
"""Only this many characters of the answer are compared; the rest of a longer answer is ignored."""
_STANDS: Final = 0.8
"""Share of the answer's words from which a step counts as stating the answer."""

ANSWER: Final = ("answer_coined", "answer_known", "answer_apart", "answer_first")
LASTING: Final = ("lasting", "lasting_count", "like_own_before")


def answer_features(reading: Reading) -> Mapping[str, Sequence[float]]:
    """Return the features ``ANSWER``: each step's relation to the answer's words that are not in the task.

    The share it introduces, the share stated before it, its distance from the first step that
    states (nearly) all (logarithmic, negative after it), and whether it is that step.
    """
    bags = [words(text) for text in reading.texts]
    answer = words(final_answer(reading.trajectory)[:_ANSWER]) - words(reading.trajectory.task)
    whole = max(1, len(answer))
    first = next((i for i, bag in enumerate(bags) if answer and _says(bag, answer)), len(bags))
    coined: list[float] = []
    known: list[float] = []
    said: set[str] = set()
    for bag in bags:
        known.append(len(said) / whole)
        coined.append(len((answer & bag) - said) / whole)
        said |= answer & bag
    return {
        "answer_coined": coined,
        "answer_known": known,
        "answer_apart": [
            math.copysign(math.log1p(abs(first - i)), first - i) if answer else 0.0 for i in range(len(bags))
        ],
        "answer_first": [float(i == first) for i in range(len(bags))],
    }


def lasting_features(reading: Reading) -> Mapping[str, Sequence[float]]:
    """Return the features ``LASTING``: how much of a step is new, repeated later, or a repeat.

    The share of its new words that a later step repeats, their number (logarithmic), and the share of all its
    words that its agent's previous turn had. New words occur neither in an earlier step nor in the task.
    """
    bags = [words(text) for text in reading.texts]
    new: list[frozenset[str]] = []
    said = set(words(reading.trajectory.task))
    for bag in bags:
        new.append(bag - said)
        said |= bag
    again = [0] * len(bags)
    to_come: set[str] = set()
    for position in range(len(bags) - 1, -1, -1):
        again[position] = len(new[position] & to_come)
        to_come |= bags[position]
    return {
        "lasting": [count / max(1, len(fresh)) for count, fresh in zip(again, new, strict=True)],
        "lasting_count": [math.log1p(count) for count in again],
        "like_own_before": _like_own_before(reading, bags),
    }


def words(text: str) -> frozenset[str]:
    """Return the distinct words and numbers at the beginning of a text."""
    return frozenset(word.casefold() for word in _WORD.findall(text[:_READ]))


def _says(bag: frozenset[str], answer: frozenset[str]) -> bool:
    return len(bag & answer) >= _STANDS * len(answer)


def _like_own_before(reading: Reading, bags: Sequence[frozenset[str]]) -> list[float]:
    last_of: dict[str, frozenset[str]] = {}
    shares: list[float] = []
    for step, bag in zip(reading.steps, bags, strict=True):
        name = normalise(step.agent)
        shares.append(len(bag & last_of.get(name, frozenset())) / max(1, len(bag)))
        last_of[name] = bag
    return shares


VERSION: Final = 4

FEATURES_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "place": PLACE,
    "speaker": SPEAKER,
    "led": LED,
    "text": TEXT,
    "words": WORDS,
    "overlap": OVERLAP,
    "answer": ANSWER,
    "lasting": LASTING,
    "signals": (
        "fault", "fault_before", "fault_after", "empty_after", "faults_before", "signals_log", "marks",
        "marked_before", "mark_unrepaired_error", "mark_ignored_error", "mark_wrong_computation",
        "mark_unsupported_figure", "mark_answer_origin", "mark_made_up_data", "mark_loop",
        "mark_unverified_claim",
    ),
}  # fmt: skip
"""The features by group, in column order; an ablation leaves out one group at a time."""
FEATURES: Final = tuple(feature for features in FEATURES_OF.values() for feature in features)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One run as the ranker sees it: a row of ``FEATURES`` and an agent per step."""

    rows: tuple[tuple[float, ...], ...]
    agents: tuple[str, ...]
    """Normalised names, by which a model looks up what it learned about each agent."""


def featurise(trajectory: Trajectory) -> Table:
    """Return the table of a run; empty for a run without steps."""
    reading = read(trajectory)
    return tabulate(reading, findings(reading))


def tabulate(reading: Reading, found: Sequence[Finding]) -> Table:
    """Return the table of a run from its reading and findings."""
    if not reading.steps:
        return Table(rows=(), agents=())
    columns: dict[str, Sequence[float]] = {}
    for group in _GROUPS:
        columns.update(group(reading))
    columns.update(_marks(reading, found))
    assert tuple(columns) == FEATURES
    return Table(
        rows=tuple(zip(*columns.values(), strict=True)),
        agents=tuple(normalise(step.agent) for step in reading.steps),
    )


def _marks(reading: Reading, found: Sequence[Finding]) -> Columns:
    n = len(reading.steps)
    faults = [float(fault is Fault.FAILED) for fault in reading.faults]
    empty = [float(fault is Fault.EMPTY) for fault in reading.faults]
    weights: dict[str, list[float]] = {name: [0.0] * n for name in (*_SIGNALS, "other")}
    for finding in found:
        column = weights[finding.signal if finding.signal in weights else "other"]
        column[finding.step] = max(column[finding.step], finding.weight)
    total = [sum(column[i] for column in weights.values()) for i in range(n)]
    return {
        "fault": faults,
        "fault_before": shift(faults, 1),
        "fault_after": shift(faults, -1),
        "empty_after": shift(empty, -1),
        "faults_before": [math.log1p(count) for count in counted_before(map(bool, faults))],
        "signals_log": [math.log(max(share, 1e-6)) for share in posterior(reading, found)],
        "marks": total,
        "marked_before": [float(count > 0) for count in counted_before(mark >= _TELLING for mark in total)],
        **{f"mark_{name}": weights[name] for name in _SIGNALS},
    }


_TELLING: Final = 1.0
"""Weight from which a finding counts as strong."""
_SIGNALS: Final = (
    "unrepaired_error", "ignored_error", "wrong_computation", "unsupported_figure", "answer_origin",
    "made_up_data", "loop", "unverified_claim",
)  # fmt: skip
"""Signals with their own column; the others count in ``marks``."""

Group: TypeAlias = Callable[[Reading], Columns]

_GROUPS: Final[tuple[Group, ...]] = (
    place_features,
    speaker_features,
    led_features,
    text_features,
    word_features,
    overlap_features,
    answer_features,
    lasting_features,
)
"""All groups except the signals', which come from their findings; in the order of ``FEATURES_OF``."""
