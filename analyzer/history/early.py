"""Early warning: whether the arrived part of a run looks unlike runs of its workflow that passed. Pure.

The score of a part is its strongest evidence: the highest log-likelihood ratio of its elements, as a failed
run's elements are compared with its workflow's runs (``spectrum.py``). The threshold comes from passing runs
alone, out of fold: each is scored in the same way against all others, as far as it was seen before its end. A
run gets a warning if so few passing runs score as high that, with 95 % confidence, at most the chosen share
of all passing runs would (a tolerance limit: Wilks, Annals of Mathematical Statistics, 1941). That takes 59
passing runs for a share of 5 %, and no failing run.

Only parts that were seen while their runs went on are compared with each other: a part lacks the spans that
enclose it, so its agents and its order may differ from those of the whole run.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from analyzer.history.elements import AGENT, END, RUN, Element, digest_of, kind_of
from analyzer.history.spectrum import (
    LEAST_EVIDENCE,
    Count,
    Said,
    Spectrum,
    discount,
    evidence_of,
    novelty,
    spectrum_of,
)
from analyzer.inquiry.intervals import binomial_at_most
from semconv.record import record

MOST_PAIRS: Final = 120
"""Elements of a part that are compared, in order of the steps."""
_DOUBT: Final = 0.05
"""Highest probability that the threshold lets through more than the chosen share of passing runs."""
_RUN: Final = digest_of(RUN)
_SIZE: Final = len(_RUN)
_AGENT: Final = kind_of(digest_of(AGENT))


@record
class Part:
    """The elements of a run that has not ended, each with its site, as digests."""

    pairs: frozenset[tuple[bytes, bytes]] = frozenset()

    @property
    def digests(self) -> frozenset[bytes]:
        """The elements without their sites."""
        return frozenset(digest for digest, _ in self.pairs)

    @property
    def agents(self) -> frozenset[bytes]:
        """The digests of its agents."""
        return frozenset(digest for digest, _ in self.pairs if kind_of(digest) == _AGENT)

    def joined(self, other: Part) -> Part:
        """Return everything that either part shows, at most ``MOST_PAIRS`` elements; this part's first."""
        new = sorted(other.pairs - self.pairs)[: max(0, MOST_PAIRS - len(self.pairs))]
        return Part(pairs=self.pairs.union(new))

    def packed(self) -> bytes:
        """Return the part in at most 720 bytes; as objects it takes thirty times that."""
        return b"".join(digest + site for digest, site in sorted(self.pairs))

    @staticmethod
    def unpacked(packed: bytes) -> Part:
        """Return the part that ``packed`` wrote."""
        places = range(0, len(packed), 2 * _SIZE)
        return Part(
            pairs=frozenset((packed[at : at + _SIZE], packed[at + _SIZE : at + 2 * _SIZE]) for at in places)
        )


@record
class KnownPart:
    """A run that has ended, with what was seen of it before its end."""

    said: Said
    part: Part
    whole: frozenset[bytes]
    """The elements of the whole run."""


@record
class Warned:
    """Result of a comparison that calls for a warning."""

    step: int
    """The step that shows the strongest evidence."""
    text: str
    """The evidence as prose, after the agent's name."""
    score: float
    as_high: int
    """Passing runs that scored as high before their end."""
    passing: int


@record
class EarlyAlarm:
    """Spectrum of a workflow, and the scores of its passing runs before their end."""

    spectrum: Spectrum
    usual: Mapping[int, float]
    """New elements of each kind in a passing run (``spectrum.novelty``)."""
    scores: tuple[float, ...]
    """In ascending order."""
    share: float
    """Highest share of passing runs that may get a warning."""

    def as_high(self, score: float) -> int:
        """Return the number of passing runs that scored at least as high."""
        return len(self.scores) - bisect_left(self.scores, score)

    def is_warning(self, score: float) -> bool:
        """Return whether a score calls for a warning."""
        is_rare = binomial_at_most(self.as_high(score), len(self.scores), self.share) <= _DOUBT
        return is_rare and score >= LEAST_EVIDENCE

    def warned(self, elements: Sequence[Element]) -> Warned | None:
        """Return the warning that the elements of a part call for; ``None`` if they call for none."""
        rated = [
            (_evidence((digest_of(one.key), digest_of(one.site)), self.spectrum, self.usual, own=0), one)
            for one in elements
        ]
        if not rated:
            return None
        score, first = max(rated, key=lambda one: (one[0], -one[1].step))
        if not self.is_warning(score):
            return None
        return Warned(
            step=first.step,
            text=first.text,
            score=score,
            as_high=self.as_high(score),
            passing=len(self.scores),
        )


def elements_so_far(elements: Iterable[Element]) -> tuple[Element, ...]:
    """Return the elements that count before a run's end: its last step so far is not its end."""
    return tuple(element for element in elements if element.key[0] != END)[:MOST_PAIRS]


def part_of(elements: Iterable[Element]) -> Part:
    """Return a part's elements as digests."""
    counted = elements_so_far(elements)
    return Part(pairs=frozenset((digest_of(element.key), digest_of(element.site)) for element in counted))


def early_alarm(known: Sequence[KnownPart], share: float) -> EarlyAlarm:
    """Count known runs, and score each passing one against all others.

    Args:
        known: runs of one workflow that were seen before their end.
        share: highest share of passing runs that may get a warning, 0 to 1.
    """
    spectrum = spectrum_of((one.said, one.whole | one.part.digests) for one in known)
    usual = novelty(spectrum)
    parts = [one.part for one in known if one.said is Said.PASSED]
    pairs = frozenset[tuple[bytes, bytes]]().union(*(part.pairs for part in parts))
    rated = {pair: _evidence(pair, spectrum, usual, own=1) for pair in pairs}
    scores = [max((rated[pair] for pair in part.pairs), default=0.0) for part in parts]
    return EarlyAlarm(spectrum=spectrum, usual=usual, scores=tuple(sorted(scores)), share=share)


def _evidence(pair: tuple[bytes, bytes], spectrum: Spectrum, usual: Mapping[int, float], own: int) -> float:
    """Return the evidence of an element in a run that is counted as failed.

    ``own`` is the number of passing runs (0 or 1) to subtract because the run itself is among them. Nothing
    is subtracted from the runs that reach the site: there the compared run takes the place of the known one,
    so that the same fact has the same evidence for both, and equal runs score equally.
    """
    digest, site = pair
    shown = _other(spectrum.counts.get(digest, Count()), own)
    reached = _other(spectrum.runs if site == _RUN else spectrum.counts.get(site, Count()), 0)
    return discount(evidence_of(shown, reached), usual.get(kind_of(digest), 0.0))


def _other(count: Count, own: int) -> Count:
    return Count(passed=max(0, count.passed - own), failed=count.failed + 1)


__all__ = ["EarlyAlarm", "KnownPart", "Part", "Warned", "early_alarm", "elements_so_far", "part_of"]
