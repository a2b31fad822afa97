"""Feature columns of a run's steps: operations on them, features of text, and of position and turn. Pure.

Words are English and counted, not understood; a value describes this step or a neighbour. Names are only
compared: the same run under other names has the same values.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from analyzer.inquiry.match_agents import normalise
from analyzer.signals.numbers import numbers
from analyzer.signals.run_view import Reading, Role, final_answer
from semconv.model import StepKind

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

_WORD: Final = re.compile(r"[^\W_]{3,}")
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
    return frozenset(word.casefold() for word in _WORD.findall(text[:READ]))


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
