"""What a ranker may be made of: the candidates among which training chooses, all of them, in one place.

Few and unlike each other, because some fifty labels cannot tell apart what is
alike. Simpler ones come first and win ties. The signals alone are one of them: where labels
add nothing to what needs none, that is what training should find.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from analyzer.features import FEATURES_OF

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
    """Learners that are heard alike, and the signals beside them."""

    name: str
    signals: float
    """The signals' weight in the pool, 0..1; the learners share the rest."""
    linear: Linear | None = None
    forest: Forest | None = None

    @property
    def learners(self) -> tuple[Learner, ...]:
        """Return the learners it has."""
        return tuple(learner for learner in (self.linear, self.forest) if learner is not None)


_LOOSE, _WEAK, _FIRM, _STIFF = (Linear(penalty=penalty) for penalty in (10.0, 30.0, 100.0, 300.0))
_WORDLESS: Final = Linear(penalty=60.0, groups=_STRUCTURE)
_FOREST: Final = Forest()

CANDIDATES: Final[tuple[Candidate, ...]] = (
    Candidate(name="signals", signals=1.0),
    Candidate(name="linear-300+signals", linear=_STIFF, signals=0.5),
    Candidate(name="linear-100+signals", linear=_FIRM, signals=0.5),
    Candidate(name="linear-30+signals", linear=_WEAK, signals=0.5),
    Candidate(name="linear-10+signals", linear=_LOOSE, signals=0.5),
    Candidate(name="linear-30", linear=_WEAK, signals=0.0),
    Candidate(name="wordless+signals", linear=_WORDLESS, signals=0.5),
    Candidate(name="forest+signals", forest=_FOREST, signals=0.5),
    Candidate(name="forest", forest=_FOREST, signals=0.0),
    Candidate(name="linear-100+forest", linear=_FIRM, forest=_FOREST, signals=0.0),
    Candidate(name="linear-100+forest+signals", linear=_FIRM, forest=_FOREST, signals=1 / 3),
    Candidate(name="linear-30+forest+signals", linear=_WEAK, forest=_FOREST, signals=1 / 3),
)
