"""Queue of runs worth asking a person about. Pure.

Most questions are chosen: runs whose suspects are close together or on which the methods disagree, of
frequent failures, and unlike the runs that were labelled or chosen before. Such labels are a biased sample.
So one question in five comes from a random fifth of all runs, in random order, and only its labels compare
rankers (``lab/evaluation/training.py``). In one question in ten the verdict is hidden until the answer,
because people tend to agree with what they are shown.

Which runs are random, and which blind, follows from a digest of the run's name: the same for every process,
and independent of what the run or its verdict says.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from semconv.record import record

STRATUM: Final = 0.2
"""Share of runs that are asked about at random."""
EVERY: Final = 5
"""One question in this many is a random one."""
BLIND: Final = 0.1
"""Share of questions without the verdict."""

Name = tuple[str, str]
"""A run's tenant and id."""


class Why(StrEnum):
    """Reason for asking about a run."""

    RANDOM = "random"
    DISAGREEMENT = "disagreement"
    """Methods name different steps."""
    UNCERTAIN = "uncertain"
    """The verdict's suspects are close together."""


@record
class Candidate:
    """A run without a label."""

    name: Name
    probabilities: Sequence[float] = ()
    """Of the verdict's suspects, in any order; empty if it has none."""
    steps: Sequence[int] = ()
    """The step that each method named, the verdict's first."""
    group: str = ""
    """Common properties of similar runs; empty if none are known."""
    size: int = 1
    """Runs that failed in this way."""


@record
class Question:
    """A run to ask about."""

    candidate: Candidate
    why: Why
    is_blind: bool
    """Whether the verdict is hidden until the answer."""


def is_random(name: Name) -> bool:
    """Return whether a run belongs to the random fifth."""
    return _place("random", name) < STRATUM


def is_blind(name: Name) -> bool:
    """Return whether a run is asked about without its verdict."""
    return _place("blind", name) < BLIND


def choose(candidates: Iterable[Candidate], labelled: Mapping[str, int], most: int) -> tuple[Question, ...]:
    """Return the next questions, the first one first.

    Args:
        candidates: runs without a label.
        labelled: number of labelled runs of each group.
        most: questions wanted.
    """
    found = list(candidates)
    random = sorted((one for one in found if is_random(one.name)), key=lambda one: _place("random", one.name))
    others = [candidate for candidate in found if not is_random(candidate.name)]
    doubts = [_doubt(candidate) for candidate in others]
    taken = Counter(labelled)
    questions: list[Question] = []
    while len(questions) < most and (random or others):
        if random and (len(questions) % EVERY == EVERY - 1 or not others):
            questions.append(_question(random.pop(0), Why.RANDOM))
            continue
        best = max(
            range(len(others)), key=lambda at: (doubts[at] / _alike(others[at], taken), others[at].name)
        )
        chosen, _ = others.pop(best), doubts.pop(best)
        taken[chosen.group] += bool(chosen.group)
        why = Why.DISAGREEMENT if disagreement(chosen.steps) else Why.UNCERTAIN
        questions.append(_question(chosen, why))
    return tuple(questions)


def _doubt(candidate: Candidate) -> float:
    """Return how much an answer would tell while no similar run is labelled."""
    doubt = uncertainty(candidate.probabilities) + disagreement(candidate.steps)
    return doubt * math.log2(1 + max(1, candidate.size))


def _alike(candidate: Candidate, labelled: Mapping[str, int]) -> int:
    """Return one more than the number of labelled runs in the candidate's group."""
    return 1 + (labelled.get(candidate.group, 0) if candidate.group else 0)


def uncertainty(probabilities: Sequence[float]) -> float:
    """Return 1 minus the lead of the first suspect over the second, 0..1; 1 without suspects."""
    first, second = (*sorted(probabilities, reverse=True), 0.0, 0.0)[:2]
    return 1.0 - max(0.0, min(1.0, first - second))


def disagreement(steps: Sequence[int]) -> float:
    """Return the share of methods that name another step than the first, 0..1."""
    return sum(step != steps[0] for step in steps[1:]) / (len(steps) - 1) if len(steps) > 1 else 0.0


def _question(candidate: Candidate, why: Why) -> Question:
    return Question(candidate=candidate, why=why, is_blind=is_blind(candidate.name))


def _place(salt: str, name: Name) -> float:
    """Return a run's place in a random order, 0..1."""
    tenant, run_id = name
    digest = hashlib.sha256(f"{salt}\0{tenant}\0{run_id}".encode(errors="replace")).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
