"""Labels given and learned from: the one way that the command line and the API both take.

A shell around two stores; which is asked when is all it knows. Synchronous.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from analyzer.conversation import Conversation
from analyzer.conversation import Label as Blamed
from analyzer.errors import AnalyzerError, UnreadableInput
from analyzer.labels.kept_run import Clean, KeptRun, pack, unpack
from analyzer.labels.label import Label, Said, as_label, place_of, to_json
from analyzer.labels.store import LabelledRun, LabelStore, PackedRun
from analyzer.visible import visible_run
from collector_processor.analyst import Analysis
from collector_processor.examine import Keep
from collector_processor.otlp import Tenant
from collector_processor.redaction import omit
from collector_processor.runstore import RunStore
from collector_processor.stored import StoredVerdict
from collector_processor.stores import StoreError
from semconv.model import Status, Trajectory

logger = logging.getLogger(__name__)

UNNAMED: Final = "unnamed"
"""The system of a run whose service has no name."""
_MOST_FOUND: Final = 20

InDb = Callable[..., Awaitable[Any]]


class NoSuchRun(AnalyzerError):  # noqa: N818 - a statement reads better where it is raised
    """No run, or no single one, goes by the id that was given; the message says which there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A label that was taken."""

    label: Label
    obstacle: str | None
    """Why a ranker cannot learn from it, in a few words; ``None`` if it can."""
    trace_obstacle: str | None = None
    """Why the run's trace cannot be corrected; ``None`` if it can or need not be."""

    def to_json(self) -> dict[str, Any]:
        """Return it as programs get it."""
        learned = {"can_be_learned": self.obstacle is None, "obstacle": self.obstacle}
        trace = {"trace_follows": self.trace_obstacle is None, "trace_obstacle": self.trace_obstacle}
        return {**to_json(self.label), **learned, **trace}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lessons:
    """What the labels of a tenant teach, and how many teach nothing, by why."""

    runs: tuple[Conversation, ...]
    labels: tuple[Label, ...]
    """One a run, in the same order."""
    left_out: dict[str, int]


def find_run(verdicts: RunStore, prefix: str, tenant: Tenant | None) -> StoredVerdict:
    """Return the current verdict of the one run whose id begins like this.

    Raises:
        NoSuchRun: there is none, or there are several.
    """
    is_text = f"{prefix}{tenant}".isprintable()  # what stands for bytes that are no text is not
    found = verdicts.starting_with(prefix, tenant, _MOST_FOUND) if prefix and is_text else []
    exact = [verdict for verdict in found if verdict.run_id == prefix]
    match exact or found:
        case [verdict]:
            return verdict
        case []:
            raise NoSuchRun(f"no run {prefix!r}: expected the id of a run with a verdict, or its beginning")
        case several if len({verdict.run_id for verdict in several}) == 1:
            tenants = ", ".join(repr(verdict.tenant) for verdict in several)
            raise NoSuchRun(f"several tenants have a run {several[0].run_id}: say which, of {tenants}")
        case several:
            ids = ", ".join(dict.fromkeys(verdict.run_id for verdict in several))
            raise NoSuchRun(f"several runs begin with {prefix!r}: {ids}")


def give(
    labels: LabelStore,
    verdict: StoredVerdict,
    said: Said,
    now_ns: int,
    *,
    verdicts: RunStore | None = None,
) -> Given:
    """Check what was said of a run against it, and keep it as the run's label.

    The service corrects the trace afterwards (``correcting.py``).

    Args:
        labels: where it is kept.
        verdict: the run's current one.
        said: what was said.
        now_ns: when.
        verdicts: to check whether the run's trace can be corrected; without, that is not checked.

    Raises:
        LabelRefused: it does not fit the run.
        StoreError: the disk refuses.
    """
    packed = labels.kept(verdict.tenant, verdict.run_id)
    kept = _read(packed)
    label = as_label(said, verdict, kept.trajectory if kept else None, now_ns)
    before = labels.labels(verdict.tenant, verdict.run_id)
    if verdict.is_persons_word and before and before[0].says_the_same_as(label):
        label = before[0]
    else:
        labels.add(label)
    lesson = _lesson(LabelledRun(label=label, packed=packed))
    return Given(
        label=label,
        obstacle=lesson if isinstance(lesson, str) else None,
        trace_obstacle=trace_obstacle(verdicts, verdict) if verdicts is not None else None,
    )


def trace_obstacle(verdicts: RunStore, verdict: StoredVerdict) -> str | None:
    """Return why a run's trace cannot be corrected, in a few words; ``None`` if it can."""
    if verdict.is_provisional:
        return "the run still goes on"
    if verdicts.place(verdict.tenant, verdict.run_id) is None:
        return "where its spans stand is no longer known"
    return None


def lessons(labelled: Iterable[LabelledRun]) -> Lessons:
    """Sort labelled runs into those that a ranker can learn from, and the others."""
    runs: list[Conversation] = []
    learned: list[Label] = []
    left_out: dict[str, int] = {}
    for one in labelled:
        lesson = _lesson(one)
        if isinstance(lesson, str):
            left_out[lesson] = left_out.get(lesson, 0) + 1
        else:
            runs.append(lesson)
            learned.append(one.label)
    return Lessons(runs=tuple(runs), labels=tuple(learned), left_out=left_out)


def keeper(labels: LabelStore, clean: Clean, now_ns: Callable[[], int], in_db: InDb) -> Keep:
    """Return what keeps the runs of the service.

    Args:
        labels: where.
        clean: what of their texts.
        now_ns: when.
        in_db: makes a call on the stores' thread.
    """

    async def keep(tenant: Tenant, analyses: Sequence[tuple[Trajectory, Analysis]]) -> None:
        for trajectory, analysis in analyses:
            is_failure = analysis.attribution.status is not Status.NO_FAILURE
            # Of a run that went well only who acted when: most runs do, and cleaning text takes time.
            packed = await asyncio.to_thread(pack, trajectory, clean if is_failure else omit)
            if packed is None:
                logger.warning("run is too large to be kept", extra={"run_id": trajectory.run_id})
                continue
            run = PackedRun(tenant=tenant, run_id=trajectory.run_id, is_failure=is_failure, packed=packed)
            try:
                await in_db(labels.keep, run, now_ns())
            except StoreError as error:
                logger.warning("run cannot be kept for labels", extra={"reason": str(error)})

    return keep


def _lesson(one: LabelledRun) -> Conversation | str:
    """Return the run with its label as one to learn from, or why there is nothing to learn."""
    label = one.label
    if not label.names_a_step:
        return f"{label.kind} without a step" if label.agent else label.kind.replace("_", " ")
    kept = _read(one.packed)
    if kept is None:
        return "not kept"
    if not kept.has_texts:
        return "kept without its texts"
    place = place_of(label, kept.trajectory)
    if place is None:
        return "changed since it was labelled"
    return Conversation(
        trajectory=visible_run(kept.trajectory),  # as the ranker will be shown the next one
        label=Blamed(agent=label.agent, step=place),
        source=label.service or UNNAMED,
    )


def _read(packed: bytes | None) -> KeptRun | None:
    try:
        return None if packed is None else unpack(packed)
    except UnreadableInput:
        logger.warning("a kept run cannot be read", exc_info=True)
        return None
