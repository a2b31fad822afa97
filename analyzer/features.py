"""Plain features of each step: what the learned ranker sees of a run.

Some eighty figures a step, read off structure, words and the signals' findings;
nothing is learned here, no framework and no agent is named. A figure is about
this step, its neighbours, or its place among the run's other steps, so that a
model over them knows neither the task nor who wrote the agents.

``VERSION`` is part of every stored model: change it with the meaning of any
feature, and old models are refused instead of misread.

Cost: linear in the text; a few milliseconds a run.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from analyzer.agent_names import normalise
from analyzer.figures import numbers
from analyzer.finding import Finding
from analyzer.lineage import ANSWER, LASTING, answer_figures, lasting_figures
from analyzer.reading import Fault, Reading, Role, final_answer, read
from analyzer.signals import findings
from analyzer.weighing import posterior
from semconv.model import StepKind, Trajectory

VERSION: Final = 2

_WORD: Final = re.compile(r"[^\W_]{3,}")
_READ: Final = 6_000
"""Characters of a step in which words are counted: what people write, not what pages hold."""
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

FEATURES_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "place": (
        "place",
        "place_share",
        "place_log",
        "place_from_end",
        "run_length",
        "acted_before",
        "acted_before_share",
        "first_act",
    ),
    "speaker": (
        "speaker_share",
        "speaker_count",
        "speaker_before",
        "speaker_first",
        "speaker_last",
        "speaker_again",
        "speaker_goes_on",
        "acting",
        "coordinating",
        "calling",
        "stating",
        "handing_over",
        "after_handover",
        "after_tool",
        "before_tool",
        "speakers_before",
        "acting_in_code",
        "acting_in_prose",
    ),
    "led": (
        "led_acting",
        "led_place",
        "led_place_share",
        "led_acted_before",
        "led_first_act",
        "led_speaker_before",
    ),
    "text": (
        "length",
        "length_apart",
        "length_before",
        "length_after",
        "figures",
        "questions",
        "lines",
        "code",
        "code_defines",
        "code_after",
    ),
    "words": (
        "error_words",
        "error_words_before",
        "error_words_after",
        "hedges",
        "hedges_after",
        "corrections",
        "corrections_after",
        "done_words",
        "done_words_after",
        "plan_words",
        "search_words",
        "gave_up_words",
        "gave_up_words_after",
    ),
    "overlap": (
        "like_task",
        "like_answer",
        "like_before",
        "like_after",
        "novelty",
    ),
    "answer": ANSWER,
    "lasting": LASTING,
    "signals": (
        "fault",
        "fault_before",
        "fault_after",
        "empty_after",
        "faults_before",
        "signals_log",
        "marks",
        "marked_before",
        "mark_unrepaired_error",
        "mark_ignored_error",
        "mark_wrong_computation",
        "mark_unsupported_figure",
        "mark_answer_origin",
        "mark_made_up_data",
        "mark_loop",
        "mark_unverified_claim",
    ),
}
"""The features by group, in the order of their columns; an ablation leaves a group out at a time."""
FEATURES: Final = tuple(feature for features in FEATURES_OF.values() for feature in features)

Columns: TypeAlias = Mapping[str, Sequence[float]]
"""Figures by feature, one a step each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One run as the ranker sees it: a row of ``FEATURES`` a step, and who acted in each."""

    rows: tuple[tuple[float, ...], ...]
    agents: tuple[str, ...]
    """Normalised names; a model may have learned a figure for each, of one system."""


def featurise(trajectory: Trajectory) -> Table:
    """Return the table of a run; empty for a run without steps."""
    reading = read(trajectory)
    return tabulate(reading, findings(reading))


def tabulate(reading: Reading, found: Sequence[Finding]) -> Table:
    """Return the table of a run that has been read already."""
    if not reading.steps:
        return Table(rows=(), agents=())
    columns: dict[str, Sequence[float]] = {}
    for group in _GROUPS.values():
        columns.update(group(reading, found))
    assert tuple(columns) == FEATURES
    return Table(
        rows=tuple(zip(*columns.values(), strict=True)),
        agents=tuple(normalise(step.agent) for step in reading.steps),
    )


def _place(reading: Reading, _found: Sequence[Finding]) -> Columns:
    steps = range(len(reading.steps))
    n = len(reading.steps)
    acted = _counted_before(role is Role.ACTING for role in reading.roles)
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


def _speaker(reading: Reading, _found: Sequence[Finding]) -> Columns:
    names = [normalise(step.agent) for step in reading.steps]
    n, said = len(names), Counter(names)
    before, so_far = [], Counter[str]()
    for name in names:
        before.append(so_far[name])
        so_far[name] += 1
    roles = reading.roles
    new = _counted_before(not count for count in before)
    code = ["```" in step.output[:_READ] for step in reading.steps]
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


def _led(reading: Reading, _found: Sequence[Finding]) -> Columns:
    """Place and turn once more, where an agent says who works next, and 0 where none does.

    A place means something else there: turns are handed out, and taken over and over.
    """
    led = float(any(role is Role.COORDINATING for role in reading.roles))
    place, speaker = _place(reading, ()), _speaker(reading, ())
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


def _text(reading: Reading, _found: Sequence[Finding]) -> Columns:
    lengths = [math.log1p(len(text)) for text in reading.texts]
    mean = sum(lengths) / len(lengths)
    outputs = [step.output[:_READ] for step in reading.steps]
    return {
        "length": lengths,
        "length_apart": [length - mean for length in lengths],
        "length_before": _shift(lengths, 1),
        "length_after": _shift(lengths, -1),
        "figures": [math.log1p(len(numbers(text))) for text in outputs],
        "questions": [math.log1p(text.count("?")) for text in outputs],
        "lines": [math.log1p(text.count("\n")) for text in outputs],
        "code": [float("```" in text) for text in outputs],
        "code_defines": [math.log1p(len(_DEFINES.findall(text))) for text in outputs],
        "code_after": _shift([float("```" in text) for text in outputs], -1),
    }


def _words(reading: Reading, _found: Sequence[Finding]) -> Columns:
    errors = _count(_ERROR, reading)
    hedges = _count(_HEDGE, reading)
    corrections = _count(_CORRECT, reading)
    done = _count(_DONE, reading)
    gave_up = _count(_GIVE_UP, reading)
    return {
        "error_words": errors,
        "error_words_before": _shift(errors, 1),
        "error_words_after": _shift(errors, -1),
        "hedges": hedges,
        "hedges_after": _shift(hedges, -1),
        "corrections": corrections,
        "corrections_after": _shift(corrections, -1),
        "done_words": done,
        "done_words_after": _shift(done, -1),
        "plan_words": _count(_PLAN, reading),
        "search_words": _count(_SEARCH, reading),
        "gave_up_words": gave_up,
        "gave_up_words_after": _shift(gave_up, -1),
    }


def _overlap(reading: Reading, _found: Sequence[Finding]) -> Columns:
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


def _answer(reading: Reading, _found: Sequence[Finding]) -> Columns:
    return answer_figures(reading)


def _lasting(reading: Reading, _found: Sequence[Finding]) -> Columns:
    return lasting_figures(reading)


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
        "fault_before": _shift(faults, 1),
        "fault_after": _shift(faults, -1),
        "empty_after": _shift(empty, -1),
        "faults_before": [math.log1p(count) for count in _counted_before(map(bool, faults))],
        "signals_log": [math.log(max(share, 1e-6)) for share in posterior(reading, found)],
        "marks": total,
        "marked_before": [float(count > 0) for count in _counted_before(mark >= _TELLING for mark in total)],
        **{f"mark_{name}": weights[name] for name in _SIGNALS},
    }


_TELLING: Final = 1.0
"""Weight from which a mark counts as one that a reader would stop at."""
_SIGNALS: Final = (
    "unrepaired_error",
    "ignored_error",
    "wrong_computation",
    "unsupported_figure",
    "answer_origin",
    "made_up_data",
    "loop",
    "unverified_claim",
)
"""Signals with a column of their own; the others count in ``marks``."""

Group: TypeAlias = Callable[[Reading, Sequence[Finding]], Columns]

_GROUPS: Final[Mapping[str, Group]] = {
    "place": _place,
    "speaker": _speaker,
    "led": _led,
    "text": _text,
    "words": _words,
    "overlap": _overlap,
    "answer": _answer,
    "lasting": _lasting,
    "signals": _marks,
}


def _count(pattern: re.Pattern[str], reading: Reading) -> list[float]:
    return [math.log1p(len(pattern.findall(text[:_READ]))) for text in reading.texts]


def _shift(column: Sequence[float], by: int) -> list[float]:
    """Return what the step before (1) or after (-1) has; 0 where there is none."""
    return [0.0, *column[:-1]] if by > 0 else [*column[1:], 0.0]


def _counted_before(claims: Iterable[bool]) -> list[int]:
    """Return how many claims are true before each place."""
    counts, so_far = [], 0
    for claim in claims:
        counts.append(so_far)
        so_far += claim
    return counts


def _bag(text: str) -> frozenset[str]:
    return frozenset(word.casefold() for word in _WORD.findall(text[:_READ]))


def _contained(part: frozenset[str], whole: frozenset[str]) -> float:
    return len(part & whole) / len(part) if part else 0.0


def _alike(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other) if one or other else 0.0
