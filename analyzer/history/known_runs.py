"""A failed run and the known runs of its workflow, as they are compared. Pure.

A worker process, which has the failed run's texts, reduces it to what is compared. The comparison needs no
texts, and takes place where the known runs are.

Runs of the same workflow have the same service and name, and share at least half of the agents of the smaller
one: a run that broke off early has few agents, and its workflow's other runs have them all. A name alone is
not enough, because ``POST /chat`` may start any workflow.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final

from analyzer.history import facts
from analyzer.history.broken import Violation, accusations, violations
from analyzer.history.elements import Element, agents_in, elements_of, pack, unpack
from analyzer.history.facts import Facts
from analyzer.history.mining import OTHER_VERSIONS, PASSING, UNREMARKABLE, Mined, mine
from analyzer.history.spectrum import (
    LEAST_PASSING,
    Comparison,
    Said,
    Spectrum,
    compare,
    compare_elements,
    spectrum_of,
    with_broken,
)
from analyzer.history.versions import Decision, equality, version_of
from collector_processor.core.records import RunFacts
from collector_processor.core.runs import workflow_of
from semconv.attributes import SERVICE_NAME, SERVICE_VERSION
from semconv.dialects.reading.usage import model_of
from semconv.model import Attributes, OutcomeSource, Span, Trace, Trajectory
from semconv.record import record

MOST_ELEMENTS: Final = 400
"""Elements that are compared, in order of the steps; other runs keep 80."""
_MOST_COUNTED: Final = 16
"""Spectra of one workflow that are remembered: one for each version and set of agents."""
LEAST_SHARED: Final = 0.5
"""Share of the smaller run's agents that the other run must have."""
_PROVE: Final = frozenset({OutcomeSource.EVALUATOR, OutcomeSource.REFERENCE, OutcomeSource.USER})
"""Sources whose success counts: an evaluator, a check, the program itself or a user's rule."""


@record
class KnownRun:
    """Stored facts about a run, for comparisons."""

    run_id: str
    service: str
    workflow: str
    version: str
    said: Said
    elements: bytes
    """Packed digests (``elements.pack``)."""
    invariants: bytes = b""
    """Packed facts for invariants (``facts.pack``); empty if they are not kept."""


def known_run(trajectory: Trajectory, said: Said, trace: Trace | None = None) -> KnownRun:
    """Return the facts to store; without the run's spans, service, workflow and release are unknown."""
    spans = trace.spans if trace else ()
    stored = facts_of(parts_of(trajectory), trajectory, spans)
    return KnownRun(
        run_id=trajectory.run_id,
        service=str(_resource(spans).get(SERVICE_NAME, "")),
        workflow=workflow_of(spans),
        version=stored.version,
        said=said,
        elements=stored.elements,
        invariants=stored.invariants,
    )


@record
class ComparedParts:
    """What is compared of a run: read once, kept with every run, and shown of one that failed."""

    elements: tuple[Element, ...]
    facts: Facts


def parts_of(trajectory: Trajectory) -> ComparedParts:
    """Return the parts of a run that are compared with other runs."""
    return ComparedParts(elements=elements_of(trajectory), facts=facts.collect(trajectory))


def facts_of(parts: ComparedParts, trajectory: Trajectory, spans: Sequence[Span]) -> RunFacts:
    """Return the facts by which a run is compared with other runs."""
    models = {model_of(span) for span in spans}
    version = version_of(trajectory, models - {""}, release_of(spans))
    return RunFacts(
        version=version.id,
        release=version.release,
        elements=pack(parts.elements),
        invariants=facts.pack(parts.facts),
    )


def release_of(spans: Sequence[Span]) -> str:
    """Return the ``service.version`` of a run's first span; empty if its resource has none."""
    return str(_resource(spans).get(SERVICE_VERSION, ""))


def _resource(spans: Sequence[Span]) -> Attributes:
    return min(spans, key=lambda span: span.start_ns).resource.attributes if spans else {}


def said_of(source: OutcomeSource | None, *, failed: bool) -> Said:
    """Return how a run ended, given the result of triage and its source.

    A run that merely did not fail has not passed.
    """
    if failed:
        return Said.FAILED
    return Said.PASSED if source in _PROVE else Said.UNSAID


class Miner:
    """Mines the invariants of known runs, once for all runs that are compared with the same ones."""

    def __init__(self) -> None:
        self._mined: Final[dict[frozenset[str], Mined]] = {}

    def broken(
        self, own: Facts, joined: Sequence[KnownRun], kin: Sequence[KnownRun]
    ) -> tuple[tuple[Violation, ...], tuple[Violation, ...]]:
        """Return what a run breaks, and what of that accuses it even if it reported nothing.

        Args:
            own: facts about the run.
            joined: the other runs of its version, and of versions shown to be equal to it.
            kin: the other runs of its workflow: for a version with few runs, what held in all versions.
        """
        mined = self._of(*_basis(joined, kin))
        return violations(own, mined), accusations(own, mined)

    def _of(self, runs: Sequence[KnownRun], basis: str) -> Mined:
        key = frozenset(run.run_id for run in runs)
        found = self._mined.get(key)
        if found is None:
            if len(self._mined) >= _MOST_COUNTED:
                self._mined.clear()
            found = self._mined[key] = mine([facts.unpack(run.invariants) for run in runs], basis)
        return found


def _basis(joined: Sequence[KnownRun], kin: Sequence[KnownRun]) -> tuple[list[KnownRun], str]:
    """Return the runs that were good, and what says so: people and checks, or that nothing says otherwise."""
    for runs, said, basis in (
        (joined, Said.PASSED, PASSING),
        (kin, Said.PASSED, OTHER_VERSIONS),
        (kin, Said.UNSAID, UNREMARKABLE),
    ):
        found = [run for run in runs if run.said is said and run.invariants]
        if len(found) >= LEAST_PASSING:
            return found, basis
    return [], PASSING


@record
class KnownRuns:
    """Runs of any workflows; finds those that a run may be compared with."""

    runs: Mapping[str, KnownRun]
    """By the run's id; a run is never compared with itself."""
    mined: Miner = field(default_factory=Miner)

    @staticmethod
    def of(runs: Iterable[KnownRun]) -> KnownRuns:
        """Return the known runs."""
        return KnownRuns(runs={run.run_id: run for run in runs})

    def compare(self, trajectory: Trajectory) -> Comparison | None:
        """Compare a failed run with the runs of its workflow and version; ``None`` if there are none."""
        own = self.runs.get(trajectory.run_id) or known_run(trajectory, Said.FAILED)
        others = self.kin(own)
        if not others:
            return None
        joined = pooled_versions(own.version, others)
        steps = [step.index for step in trajectory.steps]
        broken = self.mined.broken(facts.collect(trajectory), joined, others)
        return with_broken(compare(trajectory, _spectrum(joined)), *broken, steps)

    def kin(self, own: KnownRun) -> list[KnownRun]:
        """Return the other runs of the same workflow."""
        agents = agents_in(own.elements)
        return [
            run
            for run in self.runs.values()
            if run.run_id != own.run_id
            and (run.service, run.workflow) == (own.service, own.workflow)
            and has_shared_agents(agents, agents_in(run.elements))
        ]


@record
class _Kept:
    """The runs that runs of one version and set of agents are compared with."""

    spectrum: Spectrum
    joined: Sequence[KnownRun]
    kin: Sequence[KnownRun]


class CountedRuns:
    """Runs of one workflow, counted once for all failed runs that are compared with the same ones."""

    def __init__(self, runs: Iterable[KnownRun]) -> None:
        self._known: Final = KnownRuns.of(runs)
        self._kept: Final[dict[tuple[str, frozenset[bytes], str], _Kept]] = {}
        passed = sum(run.said is Said.PASSED for run in self._known.runs.values())
        self.is_enough: Final = passed >= LEAST_PASSING
        """Whether a comparison may find anything."""

    def compare(self, own: KnownRun, failed: FailedRun, steps: Sequence[int]) -> Comparison | None:
        """Compare a failed run with the others of its version, and of versions shown to be equal to it.

        Args:
            own: the stored facts about the run.
            failed: the parts of it that are compared.
            steps: the numbers of its steps.
        """
        is_among = own.run_id if own.run_id in self._known.runs else ""
        key = (own.version, agents_in(own.elements), is_among)
        kept = self._kept.get(key)
        if kept is None:
            if len(self._kept) >= _MOST_COUNTED:
                self._kept.clear()
            kin = self._known.kin(own)
            joined = pooled_versions(own.version, kin)
            kept = self._kept[key] = _Kept(spectrum=_spectrum(joined), joined=joined, kin=kin)
        if not kept.kin:
            return None
        comparison = compare_elements(failed.elements, steps, kept.spectrum)
        if failed.facts is None:
            return comparison
        return with_broken(comparison, *self._known.mined.broken(failed.facts, kept.joined, kept.kin), steps)


def pooled_versions(own: str, runs: Sequence[KnownRun]) -> list[KnownRun]:
    """Return the runs of a version, and of the versions that were shown to be equal to it."""
    by_version: defaultdict[str, list[KnownRun]] = defaultdict(list)
    for run in runs:
        by_version[run.version].append(run)
    spectra = {version: _spectrum(each) for version, each in by_version.items()}
    mine = spectra.get(own, _spectrum(()))
    joined = list(by_version.get(own, ()))
    for version, spectrum in spectra.items():
        if version != own and equality(mine, spectrum).decision is Decision.EQUAL:
            joined += by_version[version]
    return joined


def _spectrum(runs: Iterable[KnownRun]) -> Spectrum:
    return spectrum_of((run.said, unpack(run.elements)) for run in runs)


def has_shared_agents(one: Iterable[object], other: Iterable[object]) -> bool:
    """Return whether enough of the smaller run's agents, by name or digest, are in the other run."""
    ours, theirs = frozenset(one), frozenset(other)
    smaller = min(len(ours), len(theirs))
    return not smaller or len(ours & theirs) >= LEAST_SHARED * smaller


@record
class FailedRun:
    """The part of a failed run that is compared with other runs."""

    service: str
    """As in its verdict."""
    elements: tuple[Element, ...]
    release: str = ""
    """``service.version``; set only for a run that has not ended."""
    facts: Facts | None = None
    """Facts for invariants; ``None`` for a run that has not ended."""


def failed_run(parts: ComparedParts, service: str) -> FailedRun:
    """Return a failed run as it is compared with other runs."""
    return FailedRun(service=service, elements=parts.elements[:MOST_ELEMENTS], facts=parts.facts)


def to_text(run: FailedRun) -> str:
    """Write it as JSON."""
    rows = [(element.key, element.site, element.step, element.text) for element in run.elements]
    about = None if run.facts is None else facts.to_json(run.facts)
    return json.dumps({"service": run.service, "release": run.release, "elements": rows, "facts": about})


def from_text(text: str) -> FailedRun:
    """Read what ``to_text`` wrote."""
    document = json.loads(text)
    return FailedRun(
        service=document["service"],
        release=document["release"],
        facts=facts.from_json(document["facts"]) if document.get("facts") else None,
        elements=tuple(
            Element(key=key, site=site, step=step, text=told)
            for key, site, step, told in document["elements"]
        ),
    )


__all__ = [
    "MOST_ELEMENTS",
    "ComparedParts",
    "CountedRuns",
    "FailedRun",
    "KnownRun",
    "KnownRuns",
    "facts_of",
    "failed_run",
    "from_text",
    "has_shared_agents",
    "known_run",
    "parts_of",
    "pooled_versions",
    "release_of",
    "said_of",
    "to_text",
]
