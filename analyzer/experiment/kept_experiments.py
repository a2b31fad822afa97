"""What is stored of an experiment: ids and traces of its trials; its options and command. Not pure.

An id is 128 random bits, stored before its trial starts, so that the service does not treat the trial as
production. The service looks up the ids in spans: an id that is unknown, expired or another tenant's hides
nothing.

``step-3-recorded-1-failed.json`` is the first trial of the control of step 3, ``step-3-changed-…`` one with
its changed answer, ``step-3-resampled-…`` one of the third arm, ``replay-1-…`` the rerun without a change.

The options and the command of the last experiment on the runs of each tenant's services are in the data
directory. Only the command line writes them, after a valid trial. Of a trace they hold nothing but its tenant
and the name of its service, by which they are found. A command line that seems to hold a secret is not
written. The command line is shown before it runs, because another program may have written this file.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from analyzer.experiment.candidates import ArmKey, Candidate
from analyzer.experiment.captured import Capture
from analyzer.experiment.findings import Finding, KeptArms, KeptTrial, KeptTrials
from analyzer.experiment.trial_runner import Ran
from analyzer.recordings.otlp_file import trace_document, trace_requests
from analyzer.records.proof_records import Remembered, given_in
from collector_processor.core.disk import StoreError
from collector_processor.otlp import NO_TENANT, MalformedRequestError, Tenant
from collector_processor.rebuild.kept_spans import SpanKeeper
from collector_processor.rebuild.redaction import Redactor
from semconv.record import record

logger = logging.getLogger(__name__)

_REPLAY: Final = "replay"


class TrialFolder:
    """Writes each trial's spans and logs as one file that ``attribute`` and ``diff`` read."""

    def __init__(self, folder: Path, capture: Capture, candidates: Iterable[Candidate]) -> None:
        """Use a folder.

        Args:
            folder: an existing folder.
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
    for candidate in candidates:
        names.setdefault(candidate.control, f"step-{candidate.step}-recorded")
        names.setdefault(candidate.treatment, f"step-{candidate.step}-changed")
        names.setdefault(candidate.resampled, f"step-{candidate.step}-resampled")
    return names


_LATE_S: Final = 86_400.0
"""Seconds that an id outlives its trial: a killed trial's root never arrives, and the journal may return its
spans for a day."""
_NS: Final = 1_000_000_000


@record
class TrialIds:
    """Issues the ids of one experiment."""

    issue: Callable[[Tenant, str, int, int], None]
    """Stores a tenant's id before its trial begins; then its end and the present time, in Unix ns."""
    tenant: Tenant
    timeout_s: float
    """Time limit of a trial."""
    now_ns: Callable[[], int]

    async def __call__(self) -> str:
        """Issue an id; empty if the store refuses: then the trial must not send telemetry."""
        trial, now = secrets.token_hex(16), self.now_ns()
        expires = now + int((self.timeout_s + _LATE_S) * _NS)
        try:
            await asyncio.to_thread(self.issue, self.tenant, trial, expires, now)
        except StoreError as error:
            logger.warning("trial sends no telemetry: the store refuses", extra={"reason": str(error)})
            return ""
        return trial


_FILE: Final = "experiments.json"
_MOST: Final = 100
"""Services that are remembered, the latest ones."""
_LONGEST: Final = 8_000
"""Characters of a command line that is remembered, and of a service's name with its tenant."""
_MOST_BYTES: Final = 4 << 20
_SECRET_NAME: Final = re.compile(r"secret|passw|token|api.?key|credential|authorization", re.IGNORECASE)


def may_be_kept(asked: Remembered) -> bool:
    """Return whether a command line is short and, as far as can be told, without secrets."""
    line = asked.line("RUN")
    return len(line) <= _LONGEST and not _SECRET_NAME.search(line) and Redactor().redact(line) == line


def remember(data_dir: Path, tenant: Tenant, service: str, asked: Remembered) -> bool:
    """Keep what an experiment was given for its tenant's service.

    Returns:
        Whether it was kept: the directory exists, and nothing in it looks like a secret.

    Raises:
        OSError: the file cannot be written.
    """
    if not data_dir.is_dir() or len(tenant + service) > _LONGEST or not may_be_kept(asked):
        return False
    known = _read(data_dir / _FILE)
    key = _key(tenant, service)
    known.pop(key, None)
    known[key] = {"tenant": tenant, "options": asked.options, "command": asked.command}
    latest = dict(list(known.items())[-_MOST:])
    with tempfile.NamedTemporaryFile("w", dir=data_dir, prefix=_FILE, delete=False) as new:  # mode 0600
        json.dump(latest, new)
    Path(new.name).replace(data_dir / _FILE)
    return True


def remembered(data_dir: Path, tenant: Tenant, service: str) -> Remembered | None:
    """Return what the last experiment on this service's runs was given; ``None`` if it is not known."""
    found = _read(data_dir / _FILE).get(_key(tenant, service))
    if not isinstance(found, dict) or found.get("tenant", NO_TENANT) != tenant:
        return None
    return given_in(found)


def _key(tenant: Tenant, service: str) -> str:
    """Return the key of an entry. A service's name may look like one, so the entry names its tenant too."""
    return service if tenant == NO_TENANT else json.dumps([tenant, service])


def _read(path: Path) -> dict[str, Any]:
    """Return the file's content; nothing if it is missing or damaged: it holds a convenience only."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            return {}
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
