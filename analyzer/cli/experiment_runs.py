"""Run of an ``experiment``, ids of its trials, and its result in the store of the service. Not pure."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from analyzer.analyses.codec import write_answer
from analyzer.analyses.composition import open_span_keeper
from analyzer.cli.kept_runs import neither, open_kept, opened_store
from analyzer.cli.output import CommandFailed, WrongUsage
from analyzer.cli.recorded_runs import STANDARD_INPUT, RecordedRun, load_runs, may_be_id, reader_here
from analyzer.experiment.findings import Experiment, KeptArms, attribution_of
from analyzer.experiment.kept_experiments import TrialIds, may_be_kept, packed_trial, remember, remembered
from analyzer.inquiry.errors import AnalyzerError
from analyzer.inquiry.present import plain
from analyzer.issues.labels.commands import CommandKind, Commands
from analyzer.issues.labels.kept_trace import KeptTrace
from analyzer.records.proof_records import Remembered, Report
from collector_processor.core.records import StoredVerdict
from collector_processor.core.runs import Run
from collector_processor.otlp import NO_TENANT, CollectorError, Tenant
from collector_processor.rebuild.kept_spans import SpanKeeper
from collector_processor.rebuild.redaction import Redactor
from collector_processor.settings import load_settings
from collector_processor.store.small_tables import (
    ProofRows,
    StoredProof,
    TrialArm,
    TrialArmRows,
    TrialRows,
    new_trial,
)
from collector_processor.writeback.outgoing import service_of
from semconv.model import Attribution
from semconv.record import record

_SHOWN = 10_000
"""Characters of a command line shown before it runs: more than is kept of one."""
_STORES = frozenset({"data_dir", "store_url"})
"""Settings that locate the store of the service that receives the trials' spans."""


@record
class Subject:
    """A run or an issue that a result is about."""

    tenant: Tenant
    id: str
    service: str


def subjects_of(kept: KeptTrace | None) -> list[Subject]:
    """Return a kept run as the subject of a result; of a file, nothing is kept."""
    if kept is None:
        return []
    verdict = kept.verdict
    return [Subject(tenant=verdict.tenant, id=verdict.run_id, service=verdict.service)]


def tenant_of_kept(kept: KeptTrace | None) -> Tenant:
    """Return the tenant of a kept run; a file belongs to none."""
    return kept.verdict.tenant if kept else NO_TENANT


def open_run(run: str, tenant: str | None, logs: Sequence[Path] = ()) -> tuple[Run, KeptTrace | None]:
    """Return the run of a file or of the store; for a run of the store, also its kept trace."""
    kept = kept_of(run, tenant)
    return (kept.run(), kept) if kept else (_recorded(run, logs), None)


def kept_of(run: str, tenant: str | None) -> KeptTrace | None:
    """Return the kept run of this id; ``None`` if a file has this name or the name cannot be a run's id."""
    path = Path(run)
    if path == STANDARD_INPUT or path.exists() or not may_be_id(path):
        if tenant is not None:
            raise WrongUsage("--tenant belongs to the id of a kept run: leave it out for a file")
        return None
    try:
        return open_kept(run, tenant=tenant)
    except (AnalyzerError, CollectorError) as error:
        raise neither(run, error) from error


def _recorded(run: str, logs: Sequence[Path]) -> Run:
    """Return the run of a file."""
    runs = [each for each in load_runs(Path(run), logs) if each.trace is not None]
    if len(runs) != 1:
        raise CommandFailed(f"{run}: holds {len(runs)} runs with spans, expected one")
    return _as_run(runs[0])


def _as_run(recorded: RecordedRun) -> Run:
    assert recorded.trace is not None
    return Run(trace=recorded.trace, trajectory=recorded.trajectory, reader=reader_here())


@contextmanager
def trial_ids(kept: KeptTrace | None, timeout_s: float) -> Iterator[TrialIds | None]:
    """Issue trials in the store of a kept run, or of the configured data directory; ``None`` without one."""
    settings = load_settings(os.environ, directory=Path.cwd(), model="")
    if kept is None and not _STORES & settings.model_fields_set:
        yield None
        return
    with ExitStack() as opened:
        try:
            db = opened.enter_context(opened_store(settings, "kept runs"))
        except CommandFailed:  # a configured directory that no service has used yet
            yield None
            return
        owner = tenant_of_kept(kept)
        yield TrialIds(issue=TrialRows(db).issue, tenant=owner, timeout_s=timeout_s, now_ns=time.time_ns)


def given_options(command: Sequence[str] | None, **options: str | Sequence[str] | None) -> Remembered:
    """Return what the next experiment or backtest on the same service needs again.

    Args:
        command: what runs the workflow once.
        options: values of options by their names in Python: one, several, or ``None``.
    """
    words: list[str] = []
    for name, given in options.items():
        for value in [given] if isinstance(given, str) else given or ():
            words += [f"--{name.replace('_', '-')}", value]
    return Remembered(options=tuple(words), command=tuple(command or ()))


def last_time(name: str, run: Run, kept: KeptTrace | None, *, again: bool) -> Remembered:
    """Return what the last experiment on the runs of this service was given, and show it.

    Raises:
        WrongUsage: none is known, or the user has not said ``--again``.
    """
    service = service_of(run)
    found = remembered(_data_dir(), tenant_of_kept(kept), service)
    if found is None:
        why = f"none is known for the service {plain(service, 80) or '(without a name)'}" if again else ""
        raise WrongUsage(
            f"expected -- COMMAND… or --url URL: what runs the workflow once{why and ': ' + why}"
        )
    line = plain(found.line(name), _SHOWN)
    if not again:
        raise WrongUsage(f"expected -- COMMAND…; --again uses that of the last time: {line}")
    sys.stderr.write(f"again: {line}\n")
    return found


def remember_for(tenant: Tenant, service: str, given: Remembered) -> None:
    """Keep what an experiment or a backtest was given for the next one on this service's runs."""
    if not given.command:
        return
    try:
        remember(_data_dir(), tenant, service, given)
    except OSError as error:
        sys.stderr.write(f"the command is not kept for the next time: {error.strerror or error}\n")


def _data_dir() -> Path:
    return load_settings(os.environ, directory=Path.cwd(), model="").data_dir


def keep_report(report: Report, kind: str, given: Remembered, subjects: Sequence[Subject]) -> None:
    """Keep a result for the pages of the runs and issues it is about; the command only without secrets.

    If the store refuses, the pages lack the result; verdict and exit code stay as they are.
    """
    try:
        _kept(report, kind, given, subjects)
    except (CommandFailed, CollectorError) as error:
        sys.stderr.write(f"the result is not kept for the pages: {error}\n")


def _kept(report: Report, kind: str, given: Remembered, subjects: Sequence[Subject]) -> None:
    if not subjects:
        return
    settings = load_settings(os.environ, directory=Path.cwd(), model="")
    document = report.document(Redactor())
    if given.command and may_be_kept(given):
        document |= {"options": given.options, "command": given.command}
    with opened_store(settings, "kept runs") as db:
        for subject in subjects:
            ProofRows(db).keep(
                StoredProof(
                    tenant=subject.tenant,
                    subject=subject.id,
                    kind=kind,
                    service=subject.service,
                    ended_ns=time.time_ns(),
                    document=json.dumps(document),
                )
            )


def hand_over(result: Experiment, run: Run, kept: KeptTrace) -> None:
    """Pass the result to the service, which turns it into a new version of the verdict."""
    attribution = attribution_of(result, run.trajectory, kept.verdict)
    arms = _arms_to_show(result, attribution)
    if attribution is None and arms is None:
        return
    settings = load_settings(os.environ, directory=Path.cwd(), model="")
    with opened_store(settings, "kept runs") as db:
        if attribution is not None:  # first: if the store refuses a trial, the proof must not be lost
            document = write_answer(attribution).decode()
            verdict, given_ns = kept.verdict, time.time_ns()
            Commands(db).add(CommandKind.EXPERIMENT, verdict.tenant, verdict.run_id, given_ns, document)
            sys.stderr.write(
                "The service writes it into the trace within seconds, or when it starts again.\n"
            )
        if arms is not None:
            _keep_arms(TrialArmRows(db), kept.verdict, arms, open_span_keeper(settings))


def _arms_to_show(result: Experiment, attribution: Attribution | None) -> tuple[int, KeptArms] | None:
    """Return the step that the experiment decided, or the only one tried, with a trial of each arm."""
    if result.kept is None:
        return None
    proof = None if attribution is None else attribution.proof
    decisive = None if result.decisive is None else result.decisive.candidate.step
    step = decisive if proof is None else proof.step
    arms = None if step is None else result.kept.by_step.get(step)
    return None if step is None or arms is None else (step, arms)


def _keep_arms(
    rows: TrialArmRows, verdict: StoredVerdict, shown: tuple[int, KeptArms], keeper: SpanKeeper
) -> None:
    """Keep one trial of each arm beside the run, so that its page shows both."""
    step, arms = shown
    found: list[tuple[TrialArm, bytes]] = []
    for trial in (arms.recorded, arms.changed):
        packed = packed_trial(trial.file, keeper)
        if packed is None:
            sys.stderr.write(f"{trial.file}: too large for the run's page, or texts may not be kept\n")
            return
        arm = TrialArm(
            tenant=verdict.tenant,
            run_id=verdict.run_id,
            id=new_trial(),
            step=step,
            is_changed=trial is arms.changed,
            has_passed=trial.has_passed,
        )
        found.append((arm, packed))
    rows.keep(found, time.time_ns())
    recorded, changed = (arm.id for arm, _ in found)
    sys.stderr.write(f"Both arms on the service's page: /compare?a=trial:{recorded}&b=trial:{changed}\n")
