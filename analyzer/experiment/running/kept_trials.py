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
from analyzer.experiment.findings import Finding, KeptTrials
from analyzer.experiment.running.trial_runner import Ran
from analyzer.recordings.labelled_trace import trace_document
from collector_processor.otlp import MalformedRequestError

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
        self._names: Final = _names(candidates)
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
        """Return what was kept, with one trial of each arm of the decisive step."""
        arms = None if decisive is None else self._arms(decisive.candidate)
        return KeptTrials(arms=arms, without_spans=self._without_spans, error=self._error)

    def _arms(self, candidate: Candidate) -> tuple[str, str] | None:
        failed = self._first.get((self._names[candidate.control], False))
        passed = self._first.get((self._names[candidate.treatment], True))
        return None if failed is None or passed is None else (str(failed), str(passed))


def _names(candidates: Iterable[Candidate]) -> Mapping[ArmKey, str]:
    names: dict[ArmKey, str] = {}
    for each in candidates:
        names.setdefault(each.control, f"step-{each.step}-recorded")
        names.setdefault(each.treatment, f"step-{each.step}-changed")
        names.setdefault(each.resampled, f"step-{each.step}-resampled")
    return names
