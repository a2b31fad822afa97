"""Triage, then attribution, then JSON: for the pipeline, or for a person's choice of method and model.

Each attribution has the version of the rules: a digest of the code and the tables that judge runs. It is
derived, so that no change of a rule can forget to raise it. A verdict that differs from an earlier one of the
same run only because the rules do opens no issue and sends no notice; a changed comment costs no more than
that. The files are read when the first verdict is signed, about 25 ms, and not when a command starts.
"""

from __future__ import annotations

import asyncio
import functools
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, Unpack

from analyzer.analyses.consulting import Consulting, ModelFacts, Order, Stepping, ThreadSteps
from analyzer.inquiry.method import Answer, Model, Question, Steps, asking
from analyzer.inquiry.verdict import abstained, analysis_of
from analyzer.lineage.chains import lineage_of, with_texts
from analyzer.lineage.clue import DEFAULT_FALSE_ALARMS, least_suspicion
from analyzer.methods.attribution import Attributor, no_model, took
from analyzer.methods.pooling import trust_of
from analyzer.methods.ranker import Ranker
from analyzer.methods.registry import AUTO
from analyzer.methods.suspicion import suspect
from analyzer.signals.checked import checked
from analyzer.signals.suspicion import MOST_STEPS
from analyzer.signals.triage import Claim, Finding, triage, worth_a_model
from analyzer.texts.run_view import read
from collector_processor.core.analysis import NOTHING_EARNED, UNKNOWN, Analysis, AnalysisLostError, Earned
from collector_processor.rebuild.redaction import Redact, keep, omit
from semconv.model import Attribution, Blame, Effort, Status, Trajectory, ValueOrigin

NO_STEPS: Final = "no step can be read from the spans of this run"
"""Reason of an ``unreadable`` verdict."""
_OFF: Final = "the settings turn that off (`BLAMESPAN_SUSPECT_FALSE_ALARMS`)"
_IN_PROGRESS: Final = "it is still in progress"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAnalyst:
    """Analyses runs; keeps no state. A model's failure leads to a verdict that says so."""

    attributor: Attributor
    rules: Sequence[Claim] = ()
    """The user's own rules about failure."""

    least_suspicion: float | None = least_suspicion(DEFAULT_FALSE_ALARMS)
    """Probability from which a run that reported no failure is suspected; ``None`` to suspect none."""

    shown_value: Redact = keep
    """Returns what pages and JSON may show of a value of the run; ``omit`` to show none."""

    stepping: Stepping | None = None
    """Runs the steps of analyses that ask a model; in threads by default."""

    @property
    def model(self) -> Model | None:
        """The model that it asks."""
        return self.attributor.model

    @property
    def ranker(self) -> Ranker | None:
        """The trained ranker that it uses."""
        return self.attributor.ranker

    @property
    def knows_runs(self) -> bool:
        """Whether it compares a run with others of its workflow."""
        return self.attributor.past is not None

    def in_steps(self, stepping: Callable[[Callable[[Order], Steps]], Stepping]) -> RunAnalyst:
        """Return the analyst with its analyses run by ``stepping``, which is given how one begins."""
        return replace(self, stepping=stepping(self.steps))

    async def analyse(self, trajectory: Trajectory, earned: Earned = NOTHING_EARNED) -> Analysis:
        """Triage and attribute a run with all configured methods; ``earned`` with the run's tenant."""
        attributor = self.attributor
        attribution = await self.consult(trajectory, attributor.method, attributor.model, earned=earned)
        return analysis_of(attribution, trajectory)

    async def consult(
        self, trajectory: Trajectory, method: str, model: Model | None, **how: Unpack[Consulting]
    ) -> Attribution:
        """Triage and attribute by a method and a model; computation on the run happens in ``stepping``."""
        attributor, answers = self.attributor, list[Answer]()
        # In a thread: the size of the context is litellm's, whose import may still be under way.
        facts = None if model is None else await asyncio.to_thread(_facts, model)
        order = Order(
            id=secrets.token_hex(8),
            trajectory=trajectory,
            marker=attributor.new_marker(trajectory),
            method=method,
            model=facts,
            takes_as_failed=how.get("takes_as_failed", False),
            with_reference=how.get("with_reference", False),
            record=UNKNOWN if model is None else how.get("earned", NOTHING_EARNED).get(model.name, UNKNOWN),
        )
        stepping, ask = self.stepping or ThreadSteps(self.steps), no_model if model is None else asking(model)
        started = attributor.clock()
        try:
            while isinstance(result := await stepping(order, answers), Question):
                answers.append(await ask(result))
        except AnalysisLostError as error:
            return abstained(trajectory, Status.ERROR, str(error))
        return took(result, attributor.clock() - started)

    def steps(self, order: Order) -> Steps:
        """Return an analysis as a generator of questions."""
        given = self.attributor
        sees = given.with_reference or order.with_reference
        trust = given.trust if order.record == UNKNOWN else trust_of(order.record)
        attributor = replace(given, method=order.method, model=order.model, with_reference=sees, trust=trust)
        if not order.takes_as_failed:
            unasked = replace(self, attributor=attributor).unasked(order.trajectory)
            if unasked is not None:
                return unasked.attribution
            doubt = self._suspected(attributor.seen(order.trajectory), triage(order.trajectory, self.rules))
            if doubt is not None:
                attribution = yield from attributor.confirm(doubt, order.trajectory, order.marker)
                return self.signed(attribution, order.trajectory)
        return self.signed((yield from attributor.steps(order.trajectory, order.marker)), order.trajectory)

    def unasked(self, trajectory: Trajectory) -> Analysis | None:
        """Triage and attribute a run; ``None`` if that might need a model."""
        if not trajectory.steps:
            return analysis_of(abstained(trajectory, Status.UNREADABLE, NO_STEPS), trajectory)
        asks_model = self.attributor.model is not None and worth_a_model(trajectory)
        finding = triage(trajectory, self.rules)
        seen = self.attributor.seen(trajectory)  # once: signals and lineage share their reading of an object
        if not finding.failed:
            doubt = self._suspected(seen, finding)
            if doubt is not None and asks_model:
                return None
            return self._analysis(doubt or _passed(seen, finding), seen)
        if asks_model or self.attributor.method not in (AUTO, "signals"):
            return None
        return self._analysis(self.attributor.at_once(seen), seen)

    def signed(self, attribution: Attribution, trajectory: Trajectory, unsearched: str = "") -> Attribution:
        """Return the attribution with its rules, what was checked, and where the answer's values came from.

        Args:
            attribution: the verdict on the run.
            trajectory: the run.
            unsearched: as in ``checked``; a run that was not searched has no lineage either.
        """
        off = _OFF if self.least_suspicion is None else ""
        told = checked(attribution, trajectory, unsearched or off)
        values = () if unsearched or self.shown_value is omit else self._lineage(attribution, trajectory)
        return replace(attribution, checked=told, lineage=values, rules=rules_version())

    def _lineage(self, attribution: Attribution, trajectory: Trajectory) -> tuple[ValueOrigin, ...]:
        if not 0 < len(trajectory.steps) <= MOST_STEPS:
            return ()
        verdict = attribution.verdict
        blamed = verdict.step if isinstance(verdict, Blame) else None
        places = (place for place, step in enumerate(trajectory.steps) if step.index == blamed)
        origins = lineage_of(read(self.attributor.seen(trajectory)), next(places, None))
        return tuple(with_texts(origin, self.shown_value) for origin in origins)

    def _analysis(self, attribution: Attribution, trajectory: Trajectory, unsearched: str = "") -> Analysis:
        return analysis_of(self.signed(attribution, trajectory, unsearched), trajectory)

    def _suspected(self, seen: Trajectory, finding: Finding) -> Attribution | None:
        """Return the suspected failure of a run without any sign of failure or success."""
        if finding.failed or finding.source is not None or self.least_suspicion is None:
            return None
        started = self.attributor.clock()
        past = self.attributor.past
        comparison = None if past is None else past.compare(seen)
        by_history = None
        if comparison is not None:
            from analyzer.methods.history import suspected  # noqa: PLC0415 - most files hold one run

            by_history = suspected(seen, comparison)
        blame = by_history or suspect(seen, self.least_suspicion)
        if blame is None:
            return None
        effort = Effort(duration_s=self.attributor.clock() - started)
        method = "signals" if by_history is None else "history"
        return Attribution(run_id=seen.run_id, verdict=blame, method=method, effort=effort)

    def glance(self, trajectory: Trajectory) -> Analysis:
        """Triage and attribute at once, without a model, for runs that have not ended; suspects none."""
        if not trajectory.steps:
            return analysis_of(abstained(trajectory, Status.UNREADABLE, NO_STEPS), trajectory)
        finding = triage(trajectory, self.rules)
        if not finding.failed:
            return self._analysis(_passed(trajectory, finding), trajectory, _IN_PROGRESS)
        seen = self.attributor.seen(trajectory)
        return self._analysis(self.attributor.at_once(seen), seen)


def _facts(model: Model) -> ModelFacts:
    return ModelFacts(name=model.name, context_tokens=model.context_tokens)


def _passed(trajectory: Trajectory, finding: Finding) -> Attribution:
    return abstained(trajectory, finding.status, finding.reason)


DECIDING: Final = (
    "analyzer/signals",
    "analyzer/methods",
    "analyzer/inquiry",
    "analyzer/history",
    "analyzer/lineage",
    "analyzer/lab/published.py",
    "collector_processor/core/patterns.py",
    "collector_processor/core/runs.py",
    "collector_processor/rebuild",
    "collector_processor/trajectory",
    "semconv/dialects",
)
"""Folders of the packages that read a run and judge it, and single files."""
_DECIDES: Final = (".py", ".toml", ".json")
_DIGEST_BYTES: Final = 6


@functools.cache
def rules_version() -> str:
    """Return the version of the installed rules; read once per process."""
    split = (folder.split("/") for folder in DECIDING)
    return version_of(files(package).joinpath(*inner) for package, *inner in split)


def version_of(folders: Iterable[Traversable]) -> str:
    """Return a digest of all code and tables in these folders and files; line ends do not count."""
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for folder in folders:
        for path, file in sorted(_files(folder), key=lambda found: found[0]):
            content = file.read_bytes().replace(b"\r\n", b"\n")
            digest.update(f"{path}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()


def _files(folder: Traversable) -> Iterator[tuple[str, Traversable]]:
    """Yield the files that decide, each with its path within the folder."""
    stack = [(folder.name, folder)]
    while stack:
        path, entry = stack.pop()
        if entry.is_dir():
            stack.extend((f"{path}/{child.name}", child) for child in entry.iterdir())
        elif path.endswith(_DECIDES):
            yield path, entry
