"""Spectrum of a workflow: how often each element occurs in its passing and in its failing runs.

*Increase* (Liblit et al., PLDI 2005) is P(fail | element) minus P(fail | site): how much more often runs
fail that show the element than runs that could have shown it. Its interval is Newcombe's. For a ranking of
the steps of one run, a likelihood ratio takes the place of the interval: runs with the element fail at the
rate of a fault that is nearly always fatal, or at the rate of its site. One failing run with an element
is some evidence, and each further one adds a quarter as much; an element that some passing runs show counts
for nothing.

Runs without a statement whether they passed are not counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from analyzer.history.broken import Violation
from analyzer.history.elements import ACTION, AGENT, CUT, RUN, Element, digest_of, elements_of, kind_of
from analyzer.inquiry.intervals import Interval, newcombe
from analyzer.inquiry.posterior import LogShares, log_softmax
from semconv.model import Trajectory
from semconv.record import record, replace

_FATAL: Final = (0.8, 0.95)
"""Shares of runs that fail if they show an element that is the fault."""
_HALF: Final = 0.5
LEAST_PASSING: Final = 10
"""Passing runs below which a spectrum says nothing: with five, new elements were more often chance than
fault in runs with a wrong value, and made verdicts worse (``benchmarks.history`` at commit 8382596b)."""
LEAST_EVIDENCE: Final = 0.3
"""Log-likelihood ratio from which an element stands out: four to three."""
_WITNESS: Final = 0.25
"""Weight of a further failing run with the element. Failing runs fail for different reasons and share habits,
such as retries: with weight 1, coincidences among ten of them made verdicts on wrong values worse."""
MOST_EVIDENCE: Final = 6.0
_BESIDE: Final = 0.25
"""Weight of the spectrum beside broken invariants, which read values and do not go along with failures."""
_CONSEQUENCE: Final = 2.0
"""Log-odds by which what is broken after the supposed fault counts less."""
_FAULTS: Final = 0.3
"""Assumed number of new elements of a kind that a failing run shows because of its fault."""
_MOST_CUT: Final = 0.05
"""Share of passing runs of which elements may be missing; absence would look like novelty."""


class Said(StrEnum):
    """Outcome of a run, according to an evaluator, a person's label or a check."""

    PASSED = "passed"
    FAILED = "failed"
    UNSAID = "unsaid"
    """Not stated; silence is not success."""


@record
class Count:
    """Passing and failing runs that show an element."""

    passed: int = 0
    failed: int = 0

    @property
    def n(self) -> int:
        """All runs."""
        return self.passed + self.failed

    def plus(self, said: Said, runs: int = 1) -> Count:
        """Return the count with runs added; runs without a stated outcome change nothing."""
        return Count(
            passed=self.passed + runs * (said is Said.PASSED),
            failed=self.failed + runs * (said is Said.FAILED),
        )


@record
class Spectrum:
    """Counts of a workflow's version, or of versions that were shown to be equal."""

    runs: Count
    counts: Mapping[bytes, Count]
    """By the element's digest."""

    def of(self, key: str) -> Count:
        """Return the runs that show an element or a site."""
        return self.runs if key == RUN else self.counts.get(digest_of(key), Count())


@record
class Increase:
    """Increase of the failure rate among runs that show an element, over runs that reach its site."""

    element: Element
    shown: Count
    reached: Count
    value: float
    """-1 to 1."""
    interval: Interval
    evidence: float
    """Log-likelihood ratio, at least 0: it ranks steps."""


def spectrum_of(runs: Iterable[tuple[Said, frozenset[bytes]]]) -> Spectrum:
    """Count the elements of runs, each given by its outcome and its elements' digests."""
    total: dict[Said, int] = dict.fromkeys(Said, 0)
    seen: dict[Said, dict[bytes, int]] = {Said.PASSED: {}, Said.FAILED: {}}
    for said, digests in runs:
        total[said] += 1
        counts = seen.get(said)
        if counts is not None:
            for digest in digests:
                counts[digest] = counts.get(digest, 0) + 1
    passed, failed = seen[Said.PASSED], seen[Said.FAILED]
    return Spectrum(
        runs=Count(passed=total[Said.PASSED], failed=total[Said.FAILED]),
        counts={
            each: Count(passed=passed.get(each, 0), failed=failed.get(each, 0)) for each in {*passed, *failed}
        },
    )


def with_run(spectrum: Spectrum, digests: Iterable[bytes], said: Said) -> Spectrum:
    """Return the spectrum with one more run."""
    counts = dict(spectrum.counts)
    for digest in digests:
        counts[digest] = counts.get(digest, Count()).plus(said)
    return Spectrum(runs=spectrum.runs.plus(said), counts=counts)


def increase(element: Element, spectrum: Spectrum) -> Increase:
    """Return the Increase of an element, with its interval."""
    shown, reached = spectrum.of(element.key), spectrum.of(element.site)
    value = shown.failed / shown.n - reached.failed / reached.n if shown.n and reached.n else 0.0
    return Increase(
        element=element,
        shown=shown,
        reached=reached,
        value=value,
        interval=newcombe((shown.failed, shown.n), (reached.failed, reached.n)),
        evidence=evidence_of(shown, reached),
    )


def evidence_of(shown: Count, reached: Count) -> float:
    """Return the evidence, at least 0, of an element that ``shown`` runs have, of the runs at its site."""
    return max(0.0, _evidence(shown, (reached.failed + _HALF) / (reached.n + 1)))


def discount(evidence: float, new: float) -> float:
    """Return the evidence less what novelty explains; ``new`` is the novelty of the element's kind."""
    return max(0.0, evidence + math.log(_FAULTS / (_FAULTS + new)))


def _evidence(shown: Count, usual: float) -> float:
    """Return the log-likelihood ratio of a fatal element to a usual one, averaged over ``_FATAL``."""
    failed = min(shown.failed, 1) + _WITNESS * max(0, shown.failed - 1)
    ratios = [
        failed * math.log(rate / usual) + shown.passed * math.log((1 - rate) / (1 - usual))
        for rate in _FATAL
        if rate > usual
    ]
    if not ratios:
        return 0.0
    highest = max(ratios)
    return highest + math.log(sum(math.exp(ratio - highest) for ratio in ratios) / len(_FATAL))


@record
class Comparison:
    """Evidence of a workflow's history about the steps of one failed run."""

    scores: tuple[float, ...]
    """Log-odds that each step is the decisive one; 0 for steps as in passing runs."""
    increases: tuple[Increase, ...]
    """The elements that stand out, strongest first."""
    runs: Count
    """The runs compared with, this one not included."""
    broken: tuple[Violation, ...] = ()
    """What it breaks of what the workflow always does, the supposed fault first."""
    accusing: tuple[Violation, ...] = ()
    """Those that accuse it even if it reported nothing."""

    @property
    def is_any(self) -> bool:
        """Whether anything stands out."""
        return bool(self.increases or self.broken)

    def shares(self) -> LogShares:
        """Return the log-probability of each step, from the history alone; ties stay ties."""
        return log_softmax(self.scores)


def with_broken(
    comparison: Comparison, broken: Sequence[Violation], accusing: Sequence[Violation], steps: Sequence[int]
) -> Comparison:
    """Return a comparison with what the run breaks of what its workflow always does."""
    if not broken:
        return comparison
    scores = dict(zip(steps, (_BESIDE * score for score in comparison.scores), strict=True))
    for violation in broken:
        consequence = _CONSEQUENCE if violation.step != broken[0].step else 0.0
        scores[violation.step] = max(
            scores[violation.step], min(MOST_EVIDENCE, violation.evidence) - consequence
        )
    return replace(comparison, scores=tuple(scores.values()), broken=tuple(broken), accusing=tuple(accusing))


def compare(trajectory: Trajectory, spectrum: Spectrum) -> Comparison:
    """Compare a failed run with the history of its workflow.

    Args:
        trajectory: the run; it is counted as one more failing run.
        spectrum: the other runs.
    """
    steps = [step.index for step in trajectory.steps]
    return compare_elements(elements_of(trajectory), steps, spectrum)


def compare_elements(elements: Sequence[Element], steps: Sequence[int], spectrum: Spectrum) -> Comparison:
    """Compare a failed run, given by its elements and the numbers of its steps, with its history."""
    found = _comparable(elements, spectrum)
    before = spectrum.runs
    if before.passed < LEAST_PASSING:
        return Comparison(scores=(0.0,) * len(steps), increases=(), runs=before)
    own = dict.fromkeys(digest_of(element.key) for element in found)
    counted, usual = with_run(spectrum, own, Said.FAILED), novelty(spectrum)
    actions = [element.key for element in elements if element.key[0] == ACTION]
    judged = [_apart(_discounted(increase(element, counted), usual), actions, spectrum) for element in found]
    return Comparison(
        scores=_scores(judged, steps),
        increases=tuple(
            sorted(
                (each for each in judged if each.evidence >= LEAST_EVIDENCE),
                key=lambda each: (-each.evidence, each.element.step),
            )
        ),
        runs=before,
    )


def novelty(spectrum: Spectrum) -> Mapping[int, float]:
    """Return how many elements of each kind a passing run shows that no other one did (Good-Turing)."""
    found: dict[int, float] = {}
    for digest, count in spectrum.counts.items():
        if count.passed == 1:
            kind = kind_of(digest)
            found[kind] = found.get(kind, 0.0) + 1 / spectrum.runs.passed
    return found


def _discounted(one: Increase, usual: Mapping[int, float]) -> Increase:
    """Return the evidence less the part that novelty explains: passing runs may show new elements too."""
    new = usual.get(kind_of(digest_of(one.element.key)), 0.0)
    return replace(one, evidence=discount(one.evidence, new))


def _apart(one: Increase, actions: Sequence[str], spectrum: Spectrum) -> Increase:
    """Return the evidence less the part that a habit of all agents explains.

    Where agents repeat themselves in passing runs, an agent that happens to repeat nothing in any passing run
    is no exception yet. Two hypotheses, equally likely beforehand: the agent shows the element at the rate of
    the run's other actions, and it is no evidence; or at a rate of its own, of which nothing is known.
    """
    shown, reached = spectrum.of(one.element.key).passed, spectrum.of(one.element.site).passed
    others = [
        (spectrum.of(key).passed, spectrum.of(site).passed)
        for key, site in one.element.relatives(actions)
        if key != one.element.key
    ]
    seen, of = sum(count for count, _ in others), sum(count for _, count in others)
    if not seen:
        return one
    rate, shown = min(seen / of, 1.0) if of else 1.0, min(shown, reached)
    alike = math.comb(reached, shown) * rate**shown * (1 - rate) ** (reached - shown)
    apart = 1 / (1 + (reached + 1) * alike)  # under a uniform rate, each number is equally likely
    return replace(one, evidence=max(0.0, one.evidence + math.log(apart)))


def _comparable(elements: Sequence[Element], spectrum: Spectrum) -> list[Element]:
    """Return the elements that were kept of all passing runs: of long ones, agents only."""
    is_cut = spectrum.of(CUT).passed > _MOST_CUT * spectrum.runs.passed
    return [element for element in elements if not is_cut or element.key[0] == AGENT]


def _scores(judged: Sequence[Increase], steps: Sequence[int]) -> tuple[float, ...]:
    """Return each step's strongest evidence: elements of one step are mostly redundant."""
    places = {step: place for place, step in enumerate(steps)}
    scores = [0.0] * len(steps)
    for each in judged:
        place = places[each.element.step]
        scores[place] = min(MOST_EVIDENCE, max(scores[place], each.evidence))
    return tuple(scores)
