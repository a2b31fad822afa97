"""Versions of a workflow: its prompts, tools, models and release, apart until shown to be equal.

A version is recognised by four digests. Two versions count as one only after their runs have shown that
they behave alike (``equality``): a change of a prompt may change anything. That is a test of
*equivalence*: the 90 % interval of each difference must lie within a margin (two one-sided tests at 5 %:
D. J. Schuirmann, 1987); that no difference was found is not enough. All differences must pass, so the
level needs no correction.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from hashlib import blake2b
from typing import Final

from analyzer.history.spectrum import Count, Spectrum
from analyzer.inquiry.intervals import Z_90, newcombe
from semconv.model import Trajectory
from semconv.record import record

MARGIN: Final = 0.2
"""Largest difference of two shares of runs that counts as equal."""
RARE: Final = 0.05
"""Share of runs below which an element is too rare to distinguish versions."""
_CHANGING: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{12,}|\d+", re.IGNORECASE)
"""Parts of a prompt that differ in every run: dates, ids, numbers."""
_BYTES: Final = 4


@record
class Version:
    """Digests of what defines a version; equal digests, equal version."""

    prompts: str
    tools: str
    models: str
    release: str
    """``service.version`` as it is; empty if the resource has none."""

    @property
    def id(self) -> str:
        """A digest of its parts: equal versions have equal ids."""
        return _digest((self.prompts, self.tools, self.models, self.release))


def version_of(trajectory: Trajectory, models: Iterable[str] = (), release: str = "") -> Version:
    """Return a run's version.

    Args:
        trajectory: the run.
        models: names of the models that answered.
        release: the ``service.version`` of its resource.
    """
    return Version(
        prompts=_digest({f"{one.agent}\0{_CHANGING.sub('#', one.instructions)}" for one in trajectory.steps}),
        tools=_digest({f"{step.agent}\0{step.tools}" for step in trajectory.steps if step.tools}),
        models=_digest(set(models)),
        release=release[:80],
    )


class Decision(StrEnum):
    """Whether two versions behave alike."""

    EQUAL = "equal"
    DIFFERENT = "different"
    UNKNOWN = "unknown"
    """Too few runs to tell; the versions stay apart."""


@record
class Equality:
    """Result of comparing two versions."""

    decision: Decision
    reason: str


def equality(one: Spectrum, other: Spectrum) -> Equality:
    """Compare two versions by their share of failing runs and by how often their elements occur."""
    if not one.runs.n or not other.runs.n:
        return Equality(decision=Decision.UNKNOWN, reason="one of them has no run with a known outcome")
    shares = [("the share of failing runs", _pair(one.runs.failed, one), _pair(other.runs.failed, other))]
    for digest in sorted({*one.counts, *other.counts}):
        ours, theirs = one.counts.get(digest, Count()), other.counts.get(digest, Count())
        if (ours.n + theirs.n) / (one.runs.n + other.runs.n) >= RARE:
            shares.append((_OF_STEP, _pair(ours.n, one), _pair(theirs.n, other)))
    return _decided(shares)


_OF_STEP: Final = "the share of runs with a certain step"
"""An element has no text here, only its digest."""


def _decided(shares: Sequence[tuple[str, tuple[int, int], tuple[int, int]]]) -> Equality:
    widest, unsure = 0.0, ""
    z = _corrected(len(shares))
    for name, ours, theirs in shares:
        apart = newcombe(ours, theirs, z)
        if apart.low > 0 or apart.high < 0:
            return Equality(decision=Decision.DIFFERENT, reason=f"{name} differs: {_shown(ours, theirs)}")
        interval = newcombe(ours, theirs, Z_90)
        reach = max(-interval.low, interval.high)
        if reach > widest:
            widest, unsure = reach, f"{name}: {_shown(ours, theirs)}"
    if widest > MARGIN:
        return Equality(
            decision=Decision.UNKNOWN,
            reason=f"{unsure} may differ by {widest:.0%}; {MARGIN:.0%} count as equal",
        )
    return Equality(decision=Decision.EQUAL, reason=f"no share differs by more than {widest:.0%}")


def _corrected(tests: int) -> float:
    """Return the quantile of intervals that are all right with 95 %: one per share, after Bonferroni."""
    from statistics import NormalDist  # noqa: PLC0415 - 3 ms at import, and only needed here

    return NormalDist().inv_cdf(1 - 0.025 / max(1, tests))


def _pair(hits: int, spectrum: Spectrum) -> tuple[int, int]:
    return hits, spectrum.runs.n


def _shown(ours: tuple[int, int], theirs: tuple[int, int]) -> str:
    return f"{ours[0]} of {ours[1]} and {theirs[0]} of {theirs[1]}"


def _digest(parts: Iterable[str]) -> str:
    ordered = parts if isinstance(parts, tuple) else sorted(parts)
    return blake2b("\0\0".join(ordered).encode("utf-8", "surrogatepass"), digest_size=_BYTES).hexdigest()


__all__ = ["Decision", "Equality", "Version", "equality", "version_of"]
