"""Registry of the attribution methods, by the names that users type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

from analyzer.inquiry.errors import UnknownMethod
from analyzer.inquiry.method import AttributionMethod

AUTO: Final = "auto"
"""Not a method: with it, ``attribution.py`` chooses between ranker, judge and signals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A method's entry in the registry."""

    build: Callable[[int, str], AttributionMethod]
    """Builds the method, given the bytes of a run's text that fit into a prompt, and the marker."""
    needs_model: bool


Build: TypeAlias = Callable[..., AttributionMethod]


def _by_itself() -> Mapping[str, Build]:
    """Return the methods without a model: they read runs with all signals."""
    from analyzer.methods.history import History  # noqa: PLC0415
    from analyzer.methods.without_model import LearnedRanking, Signals  # noqa: PLC0415

    # An ``Attributor`` with a trained ranker passes it on, and one that knows other runs these.
    return {"signals": Signals, "ranker": LearnedRanking, "history": History}


def _asking() -> Mapping[str, Build]:
    """Return the methods that ask a model: a tenth of a second, and most runs are judged without one."""
    from analyzer.methods.bisect import Bisect  # noqa: PLC0415
    from analyzer.methods.investigate import Investigate  # noqa: PLC0415
    from analyzer.methods.judge import Judge  # noqa: PLC0415
    from analyzer.methods.verify import Verify  # noqa: PLC0415

    return {"judge": Judge, "investigate": Investigate, "verify": Verify, "bisect": Bisect}


def _published() -> Mapping[str, Build]:
    """Return the published methods, which render runs without structure, and so need no marker."""
    from analyzer.lab import published  # noqa: PLC0415 - the lab

    return {
        "all-at-once": published.AllAtOnce,
        "step-by-step": published.StepByStep,
        "binary-search": published.BinarySearch,
        "hybrid": published.Hybrid,
    }


def _as_published(name: str, limit: int) -> AttributionMethod:
    """Return the method that ``PUBLISHED`` follows."""
    from analyzer.lab import published  # noqa: PLC0415 - the lab

    build = _published()[name]
    if name in {"all-at-once", "hybrid"}:  # the others are always as published
        build = partial(build, fidelity=published.Fidelity.PUBLISHED)
    return published.AsPublished(method=build(max_bytes=limit), name=name + PUBLISHED)


def _baselines() -> Mapping[str, Build]:
    from analyzer.lab import published  # noqa: PLC0415 - the lab

    return {
        "random": published.RandomStep,
        "first-agent-step": published.FirstAgentStep,
        "constant": published.ConstantStep,
        "constant-agent": published.ConstantAgent,
    }


Load: TypeAlias = Callable[[], Mapping[str, Build]]
"""Imports a group of methods when one of them is first built."""


def _silent(load: Load, name: str) -> Registered:
    return Registered(build=lambda _bytes, _marker: load()[name](), needs_model=False)


def _structured(load: Load, name: str) -> Registered:
    """Return the entry of a method that renders runs with lines of structure, which begin with a marker."""
    return Registered(
        build=lambda limit, marker: load()[name](max_bytes=limit, marker=marker), needs_model=True
    )


def _plain(load: Load, name: str) -> Registered:
    return Registered(build=lambda limit, _marker: load()[name](max_bytes=limit), needs_model=True)


MOST_VOTES: Final = 20
_COUNTS: Final = frozenset(str(count) for count in range(1, MOST_VOTES + 1))
PUBLISHED: Final = "@published"
"""Suffix of a method's name that selects the published version."""
_REFERENCES: Final = ("all-at-once", "step-by-step", "binary-search", "hybrid")
"""Methods that ``PUBLISHED`` may follow."""

_BASELINES: Final = ("random", "first-agent-step", "constant", "constant-agent")

METHODS: Final[Mapping[str, Registered]] = {
    **{name: _silent(_by_itself, name) for name in ("signals", "ranker", "history")},
    **{name: _structured(_asking, name) for name in ("judge", "investigate", "verify", "bisect")},
    **{name: _plain(_published, name) for name in _REFERENCES},
    **{name: _silent(_baselines, name) for name in _BASELINES},
}


def registered(name: str) -> Registered:
    """Look up a method; ``judge*3`` is the judge asked three times with its verdicts pooled.

    Raises:
        UnknownMethod: no method has that name; the message lists the known ones.
    """
    base, star, count = name.partition("*")
    base, at, published = base.partition("@")
    entry = METHODS.get(base)
    if entry is None or (star and not (entry.needs_model and count in _COUNTS)):
        names = ", ".join((AUTO, *METHODS))
        raise UnknownMethod(
            f"unknown method {name!r}: expected one of {names}; one that asks a model may be followed"
            f" by *2 to *{MOST_VOTES}, votes that are pooled"
        )
    if at:
        if at + published != PUBLISHED or base not in _REFERENCES:
            known = ", ".join(_REFERENCES)
            raise UnknownMethod(f"method {name!r}: only {known} may be followed by {PUBLISHED}")
        entry = replace(entry, build=lambda limit, _marker: _as_published(base, limit))
    return replace(entry, build=_voting(entry.build, int(count))) if star else entry


def _voting(one: Build, votes: int) -> Build:
    def build(limit: int, marker: str) -> AttributionMethod:
        from analyzer.methods.pooling import Sampled  # noqa: PLC0415 - as the other methods

        return Sampled(method=one(limit, marker), samples=votes)

    return build
