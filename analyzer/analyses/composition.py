"""Builds the objects that do the work from the settings. Called by commands only."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from analyzer.analyses.local_analyst import LateAnalyst, LocalAnalyst
from analyzer.analyses.models.completion import LiteLLM, Patience, require_litellm
from analyzer.inquiry.errors import UnreadableInput
from analyzer.inquiry.method import Model
from analyzer.methods.registry import AUTO
from collector_processor.core.analysis import Analyst
from collector_processor.otlp import Signal
from collector_processor.rebuild.redaction import (
    ALL_KINDS,
    Cleaner,
    Redact,
    keep,
    make_redactor,
    omit,
    read_kinds,
)
from collector_processor.settings import ExportText, Settings, SettingsError
from semconv.model import SpanStatus

if TYPE_CHECKING:
    from pathlib import Path

    from analyzer.analyses.analyst import RunAnalyst
    from analyzer.analyses.models.budget import HourlyBudget
    from analyzer.analyses.opinions import LocalOpinions
    from analyzer.methods.ranker import Ranker
    from analyzer.signals.triage import Claim
    from collector_processor.otlp.tls import Renewals, TlsFiles
    from collector_processor.rebuild.kept_spans import SpanKeeper
    from collector_processor.writeback.annotate import CarrierPolicy

_LARGEST_RANKER: Final = 64 << 20
"""Bound in bytes: rankers have some hundred thousand, and other files may be endless."""


def open_analyst(settings: Settings, *, with_reference: bool = False) -> RunAnalyst:
    """Return the analyst that the settings describe.

    Raises:
        SettingsError: the failure pattern is not a regular expression, or the ranker is invalid.
        UnknownMethod: no method has that name.
        ModelNeeded: the method needs a model and no model is set, or a model is set without litellm.
    """
    from analyzer.analyses.analyst import RunAnalyst  # noqa: PLC0415 - all that judges a run
    from analyzer.lineage.clue import least_suspicion  # noqa: PLC0415 - as above
    from analyzer.methods.attribution import Attributor  # noqa: PLC0415 - as above

    return RunAnalyst(
        attributor=Attributor(
            method=settings.method,
            model=open_model(settings),
            ranker=open_ranker(settings),
            least_confidence=settings.precision,
            with_reference=with_reference,
            budget_usd=settings.budget_usd_per_run,
            clean=make_redactor(read_kinds(settings.redact), settings.redact_patterns).redact,
        ),
        rules=_rules(settings),
        least_suspicion=least_suspicion(settings.suspect_false_alarms),
        shown_value=kept_texts(settings),
    )


def open_late_analyst(settings: Settings) -> LocalAnalyst:
    """Return the analyst that the settings describe, for a process whose runs are judged by workers.

    It is imported when a run is first judged in this process, unless it has settings that may be wrong.

    Raises: as ``open_analyst``.
    """
    is_plain = settings.method == AUTO and settings.ranker is None and settings.failure_pattern is None
    if is_plain and not model_names(settings):
        return LateAnalyst(lambda: open_analyst(settings))
    return open_analyst(settings)


def open_ranker(settings: Settings) -> Ranker | None:
    """Return the trained ranker, or ``None`` if none is set.

    Raises:
        SettingsError: the file cannot be read, or is not a ranker.
    """
    if settings.ranker is None:
        return None
    from analyzer.methods.ranker import read_model  # noqa: PLC0415 - few services have one

    try:
        return read_model(_content(settings.ranker))
    except (OSError, UnreadableInput) as error:
        shown = error.strerror if isinstance(error, OSError) else error
        raise SettingsError(f"BLAMESPAN_RANKER={settings.ranker}: {shown}") from error


def _content(path: Path) -> str:
    with path.open("rb") as file:
        content = file.read(_LARGEST_RANKER + 1)
    if len(content) > _LARGEST_RANKER:
        raise UnreadableInput(f"not a ranker: expected {_LARGEST_RANKER} bytes at most")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise UnreadableInput("not a ranker: not JSON in UTF-8") from error


def model_names(settings: Settings) -> tuple[str, ...]:
    """Return the models of ``BLAMESPAN_MODEL``: the first analyses, pages offer the others."""
    return tuple(name for part in (settings.model or "").split(",") if (name := part.strip()))


def open_opinions(settings: Settings, analyst: LocalAnalyst) -> LocalOpinions:
    """Return the source of second opinions, with the offered models; all share one hourly budget."""
    from analyzer.analyses.models.budget import HourlyBudget  # noqa: PLC0415 - SQLite; most commands ask no model
    from analyzer.analyses.opinions import LocalOpinions  # noqa: PLC0415 - of pages alone

    patience, budget = Patience(timeout_s=settings.model_timeout / 1000), budget_of(analyst)
    models: dict[str, Model] = {}
    for name in model_names(settings)[1:]:
        model = LiteLLM(name=name, patience=patience)
        if budget is None:
            budget = HourlyBudget(model=model, usd=settings.budget_usd_per_hour, clock=time.monotonic)
        models[name] = budget.lend(model)
    return LocalOpinions(analyst=analyst, models=models)


def open_model(settings: Settings) -> HourlyBudget | None:
    """Return the first model within its hourly budget; ``None`` if none is set.

    Raises:
        ModelNeeded: one is set, and litellm is not installed.
    """
    names = model_names(settings)
    if not names:
        return None
    from analyzer.analyses.models.budget import HourlyBudget  # noqa: PLC0415 - SQLite; most commands ask no model

    require_litellm(names[0])
    model = LiteLLM(name=names[0], patience=Patience(timeout_s=settings.model_timeout / 1000))
    return HourlyBudget(model=model, usd=settings.budget_usd_per_hour, clock=time.monotonic)


def budget_of(analyst: Analyst) -> HourlyBudget | None:
    """Return the hourly budget of an analyst's model, if there is one."""
    model = analyst.model if isinstance(analyst, LocalAnalyst) else None
    if model is None:
        return None
    from analyzer.analyses.models.budget import HourlyBudget  # noqa: PLC0415 - SQLite; most commands ask no model

    return model if isinstance(model, HourlyBudget) else None


async def prepare_model(settings: Settings) -> None:
    """Import what models need in a thread: it takes seconds, and no span may wait for it."""
    for name in model_names(settings)[:1]:  # the import is the same for all models
        await LiteLLM(name=name).prepare()


def tls_files(settings: Settings, renewals: Renewals | None = None) -> TlsFiles | None:
    """Return the TLS files of our listeners, or ``None`` without TLS; failed renewals are counted."""
    if settings.tls_certificate is None or settings.tls_key is None:
        return None
    from collector_processor.otlp.tls import Renewals, TlsFiles  # noqa: PLC0415 - gRPC: only the receivers need it

    return TlsFiles(
        certificate=settings.tls_certificate,
        key=settings.tls_key,
        client_ca=settings.tls_client_ca,
        renewals=renewals or Renewals(),
    )


def open_cleaner(settings: Settings) -> Cleaner:
    """Return the cleaner that removes secrets from runs before anything else sees them."""
    return Cleaner(make_redactor(read_kinds(settings.redact), settings.redact_patterns))


def open_span_keeper(settings: Settings) -> SpanKeeper:
    """Return the keeper that packs runs' spans for the store, without secrets."""
    from collector_processor.rebuild.kept_spans import SpanKeeper  # noqa: PLC0415 - protobuf; not for `bench`

    kinds = ALL_KINDS if settings.export_text is ExportText.REDACTED else read_kinds(settings.redact)
    is_kept = settings.export_text is not ExportText.NONE
    return SpanKeeper(
        redactor=make_redactor(kinds, settings.redact_patterns) if is_kept else None,
        keeps_failed=settings.keep_failed_bytes > 0,
        keeps_passed=settings.keep_passed_bytes > 0,
    )


def carrier_policy(settings: Settings) -> CarrierPolicy:
    """Return the policy for writing verdicts into traces."""
    from collector_processor.writeback.annotate import CarrierPolicy  # noqa: PLC0415 - no command writes back

    status = SpanStatus.UNSET if settings.carrier_status == "unset" else SpanStatus.ERROR
    return CarrierPolicy(
        clean=_cleaning(settings, settings.export_text),
        status=status,
        carriers=settings.carriers,
        # Evaluation logs are written unless traces are forwarded and logs are not.
        logs=not settings.endpoints or Signal.LOGS in settings.endpoints,
        marks_suspected=settings.carrier_status == "error-suspected",
        web_url=(settings.web_url or "").rstrip("/"),
        lanes=settings.score_lanes,
    )


def kept_texts(settings: Settings) -> Redact:
    """Return the function that reduces texts of kept runs to what the export setting allows."""
    is_clean_already = set(read_kinds(settings.redact)) >= set(ALL_KINDS)
    if settings.export_text is ExportText.REDACTED and is_clean_already:
        return keep
    return carrier_policy(settings).clean


def notice_text(settings: Settings) -> Redact:
    """Return the function that yields the part of a verdict's prose that receivers may see."""
    return _cleaning(settings, settings.notify_text)


def _cleaning(settings: Settings, text: ExportText) -> Redact:
    redact = make_redactor(ALL_KINDS, settings.redact_patterns).redact
    return {ExportText.NONE: omit, ExportText.REDACTED: redact, ExportText.FULL: keep}[text]


def _rules(settings: Settings) -> tuple[Claim, ...]:
    if settings.failure_pattern is None:
        return ()
    from analyzer.signals.triage import output_matching  # noqa: PLC0415 - all signals

    try:
        return (output_matching(settings.failure_pattern),)
    except ValueError as error:
        raise SettingsError(f"BLAMESPAN_FAILURE_PATTERN={settings.failure_pattern!r}: {error}") from error
