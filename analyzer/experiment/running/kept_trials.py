"""Folder of the traces of an experiment's trials: a file each, named for arm and outcome. Not pure.

``step-3-recorded-1-failed.json`` is the first trial of the control of step 3, ``step-3-changed-…`` one with
its changed answer, ``step-3-resampled-…`` one of the third arm, ``replay-1-…`` the rerun without a change.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from analyzer.experiment.candidates import ArmKey, Candidate
from analyzer.experiment.captured import Capture
from analyzer.experiment.findings import Finding, KeptArms, KeptTrial, KeptTrials
from analyzer.experiment.running.trial_runner import Ran
from analyzer.recordings.labelled_trace import trace_document, trace_requests
from collector_processor.otlp import MalformedRequestError
from collector_processor.rebuild.kept_spans import SpanKeeper

_REPLAY: Final = "replay"


class TrialFolder:
    """Writes each trial's spans and logs as one file that ``attribute`` and ``diff`` read."""

    def __init__(self, folder: Path, capture: Capture, candidates: Iterable[Candidate]) -> None:
        """Use a folder.

        Args:
            folder: exists.
            capture: receives the trials' telemetry.
            candidates: name the arms; neighbours share an arm, which goes by the first of them.
        """
        self._folder: Final = folder
        self._capture: Final = capture
        self._candidates: Final = tuple(candidates)
        self._names: Final = _names(self._candidates)
        self._written: Final = Counter[str]()
        self._first: Final[dict[tuple[str, bool], Path]] = {}
        self._without_spans = 0
        self._error = ""

    def keep(self, arm: ArmKey | None, ran: Ran) -> None:
        """Write the trace of a valid trial; ``None`` stands for the rerun without a change."""
        telemetry = self._capture.take(ran.trial)
        if ran.result.invalid:
            return
        try:
            document = trace_document(telemetry.spans, telemetry.logs)
        except MalformedRequestError:
            document = {}
        if not document.get("resourceSpans"):
            self._without_spans += 1
            return
        name = _REPLAY if arm is None else self._names[arm]
        self._written[name] += 1
        outcome = "passed" if ran.result.success else "failed"
        place = self._folder / f"{name}-{self._written[name]}-{outcome}.json"
        try:
            place.write_text(json.dumps(document), encoding="utf-8")
        except OSError as error:
            self._error = f"{place}: {error.strerror or error}"
            return
        self._first.setdefault((name, ran.result.success), place)

    def kept(self, decisive: Finding | None) -> KeptTrials:
        """Return what was kept, with one trial of each arm of the decisive step and of every other."""
        found = {each.step: arms for each in self._candidates if (arms := self._arms(each)) is not None}
        return KeptTrials(
            arms=None if decisive is None else found.get(decisive.candidate.step),
            by_step=found,
            without_spans=self._without_spans,
            error=self._error,
        )

    def _arms(self, candidate: Candidate) -> KeptArms | None:
        recorded = self._trial(candidate.control, preferred=False)
        changed = self._trial(candidate.treatment, preferred=True)
        return None if recorded is None or changed is None else KeptArms(recorded=recorded, changed=changed)

    def _trial(self, arm: ArmKey, *, preferred: bool) -> KeptTrial | None:
        """Return the first trial of an arm with the preferred outcome; without one, the first trial."""
        for outcome in (preferred, not preferred):
            place = self._first.get((self._names[arm], outcome))
            if place is not None:
                return KeptTrial(file=str(place), has_passed=outcome)
        return None


def packed_trial(file: str, keeper: SpanKeeper) -> bytes | None:
    """Return the trace of a trial's file without its secrets, packed for the store.

    ``None`` if texts may not be kept, or the trace is too large or cannot be read again.
    """
    if keeper.redactor is None:
        return None
    try:
        spans, logs = trace_requests(json.loads(Path(file).read_bytes()))
    except (OSError, ValueError, MalformedRequestError):
        return None
    (packed,) = keeper.pack(spans, logs, [((), keeper.redactor.for_run())], [True])
    return packed


def _names(candidates: Iterable[Candidate]) -> Mapping[ArmKey, str]:
    names: dict[ArmKey, str] = {}
    for each in candidates:
        names.setdefault(each.control, f"step-{each.step}-recorded")
        names.setdefault(each.treatment, f"step-{each.step}-changed")
        names.setdefault(each.resampled, f"step-{each.step}-resampled")
    return names
