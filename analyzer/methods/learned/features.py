"""Features of each step for the learned ranker.

About eighty values per step, from structure and words (``step_columns.py`` and below)
and the signals' findings; nothing is learned here, and no framework or agent is
named. A value describes this step, its neighbours, or its position among the run's
steps, so that a model over them knows neither the task nor the agents' authors.

``VERSION`` is part of every stored model: change it with the meaning of any
feature, and old models are refused instead of misread.

Cost: linear in the text; a few milliseconds a run.

Word origins: a failed run's answer is wrong, so the error lies in the step that introduces
its words or before; a step whose new words are never repeated changed nothing. Words are
compared, not meanings; a number counts as a word.

Cost: linear in the text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from analyzer.inquiry.match_agents import normalise
from analyzer.methods.learned.step_columns import (
    LED,
    OVERLAP,
    PLACE,
    SPEAKER,
    TEXT,
    WORDS,
    Columns,
    counted_before,
    led_features,
    overlap_features,
    place_features,
    shift,
    speaker_features,
    text_features,
    word_features,
)
from analyzer.signals.registry import findings
from analyzer.signals.run_view import Finding, Reading, final_answer, read
from analyzer.signals.scoring import posterior
from analyzer.signals.tool_results import Fault
from semconv.model import Trajectory

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
