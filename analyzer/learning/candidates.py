"""What a ranker may be made of: the candidates among which training chooses, all of them, in one place.

They differ in family, penalty, features and the signals' weight. The first is the even
pool of all the others: a few dozen labels cannot tell which of several reasonable models is best, and
an even pool of forecasts is seldom beaten by the one that seemed best (the forecast combination
puzzle: Smith & Wallis, Oxford Bulletin 2009). The signals alone are one of them: where labels add
nothing to what needs none, that is what training should find.

Boosted trees are not among them: on the development data they did no better than the forest
(``python -m tests.bench.ranker_limits DATASET``), and a model file would have to hold another kind of tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from analyzer.learning.features import FEATURES_OF

_ALL: Final = tuple(FEATURES_OF)
_WORDS: Final = frozenset({"words", "overlap", "answer", "lasting"})
_STRUCTURE: Final = tuple(name for name in FEATURES_OF if name not in _WORDS)
"""Groups that read no words, so that they hold in any language."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """A conditional logit over the steps of a run (McFadden 1974) with a ridge penalty."""

    penalty: float
    groups: tuple[str, ...] = _ALL
    """The features it sees, by group; it sees the agents' records always."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """Extremely randomised trees (Geurts et al. 2006), each step for itself.

    They suit a few dozen labels because nothing in them is tuned to the data but the leaves.
    """

    least_in_leaf: int = 3
    depth: int = 8
    groups: tuple[str, ...] = _ALL


Learner: TypeAlias = Linear | Forest


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Learners and the signals, each with its weight in the pool; the weights sum to 1."""

    name: str
    signals: float
    learners: tuple[tuple[Learner, float], ...] = ()


def heard_alike(name: str, *learners: Learner, signals: float) -> Candidate:
    """Return a candidate whose learners share evenly what the signals leave."""
    return Candidate(
        name=name,
        signals=signals,
        learners=tuple((learner, (1.0 - signals) / len(learners)) for learner in learners),
    )


def pooled(name: str, candidates: Sequence[Candidate]) -> Candidate:
    """Return the even pool of candidates, which is a candidate too."""
    weights: dict[Learner, float] = {}
    for candidate in candidates:
        for learner, weight in candidate.learners:
            weights[learner] = weights.get(learner, 0.0) + weight / len(candidates)
    signals = sum(candidate.signals for candidate in candidates) / len(candidates)
    return Candidate(name=name, signals=signals, learners=tuple(weights.items()))


_LOOSE, _WEAK, _FIRM, _STIFF = (Linear(penalty=penalty) for penalty in (10.0, 30.0, 100.0, 300.0))
_WORDLESS: Final = Linear(penalty=60.0, groups=_STRUCTURE)
_FOREST: Final = Forest()

SINGLE: Final[tuple[Candidate, ...]] = (
    Candidate(name="signals", signals=1.0),
    heard_alike("linear-300+signals", _STIFF, signals=0.5),
    heard_alike("linear-100+signals", _FIRM, signals=0.5),
    heard_alike("linear-30+signals", _WEAK, signals=0.5),
    heard_alike("linear-10+signals", _LOOSE, signals=0.5),
    heard_alike("linear-30", _WEAK, signals=0.0),
    heard_alike("wordless+signals", _WORDLESS, signals=0.5),
    heard_alike("forest+signals", _FOREST, signals=0.5),
    heard_alike("forest", _FOREST, signals=0.0),
    heard_alike("linear-100+forest", _FIRM, _FOREST, signals=0.0),
    heard_alike("linear-100+forest+signals", _FIRM, _FOREST, signals=1 / 3),
    heard_alike("linear-30+forest+signals", _WEAK, _FOREST, signals=1 / 3),
)
CANDIDATES: Final[tuple[Candidate, ...]] = (pooled("all", SINGLE), *SINGLE)
"""The first is used unless another proves better: see ``training.choose``."""
