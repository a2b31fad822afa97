"""Settings → the objects that do the work. Called by commands only."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from analyzer.analyst import RunAnalyst
from analyzer.attribution import Attributor
from analyzer.budget import HourlyBudget
from analyzer.completion import LiteLLM, Patience
from analyzer.errors import UnreadableInput
from analyzer.learning.model_file import read_model
from analyzer.learning.ranker import Ranker
from analyzer.measuring.reliability import least_confidence
from analyzer.method import Model
from analyzer.opinion import LocalOpinions
from analyzer.rotation import Rotation
from analyzer.triage import Claim, output_matching
from collector_processor.analyst import Analyst
from collector_processor.annotate import CarrierPolicy
from collector_processor.cleaning import Cleaner
from collector_processor.otlp import Signal
from collector_processor.redaction import ALL_KINDS, Redact, keep, make_redactor, omit, read_kinds
from collector_processor.settings import ExportText, Settings, SettingsError
from semconv.model import SpanStatus

if TYPE_CHECKING:
    from pathlib import Path

    from collector_processor.tls import Renewals, TlsFiles

_LARGEST_RANKER: Final = 64 << 20
"""Bytes; one of ours has some hundred thousand, and what is no ranker at all may have no end."""
_BEYOND_ALL: Final = 1.01
"""A confidence that no verdict has: where the precision was never reached, all is undetermined."""


def open_analyst(settings: Settings, *, with_reference: bool = False) -> RunAnalyst:
    """Return the analyst that the settings ask for.

    Raises:
        SettingsError: the failure pattern is no regular expression, or the ranker no ranker.
        UnknownMethod: the method's name is none.
        ModelNeeded: the method needs a model and none is set.
    """
    ranker = open_ranker(settings)
    return RunAnalyst(
        attributor=Attributor(
            method=settings.method,
            model=open_model(settings),
            ranker=ranker,
            least_confidence=_least_confidence(settings.precision, ranker),
            with_reference=with_reference,
            budget_usd=settings.budget_usd_per_run,
        ),
        rules=_rules(settings),
    )


def open_ranker(settings: Settings) -> Ranker | None:
    """Return the trained ranker, or ``None`` where none is set.

    Raises:
        SettingsError: the file cannot be read, or is no ranker.
    """
    if settings.ranker is None:
        return None
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
    """Return the models that are set; several, with commas between, take turns in votes."""
    return _names(settings.model)


def _names(listed: str | None) -> tuple[str, ...]:
    return tuple(name for part in (listed or "").split(",") if (name := part.strip()))


def open_opinions(settings: Settings, analyst: RunAnalyst) -> LocalOpinions:
    """Return who answers people, with the models that may be chosen; all spend the same hour's money."""
    patience, budget = Patience(timeout_s=settings.model_timeout / 1000), budget_of(analyst)
    models: dict[str, Model] = {}
    for name in _names(settings.page_models):
        model = LiteLLM(name=name, patience=patience)
        if budget is None:
            budget = HourlyBudget(model=model, usd=settings.budget_usd_per_hour, clock=time.monotonic)
        models[name] = budget.lend(model)
    return LocalOpinions(analyst=analyst, models=models)


def open_model(settings: Settings) -> HourlyBudget | None:
    """Return the model, or several as one, within its hourly budget; ``None`` where none is set."""
    patience = Patience(timeout_s=settings.model_timeout / 1000)
    models = [LiteLLM(name=name, patience=patience) for name in model_names(settings)]
    if not models:
        return None
    model = models[0] if len(models) == 1 else Rotation(models=models)
    return HourlyBudget(model=model, usd=settings.budget_usd_per_hour, clock=time.monotonic)


def budget_of(analyst: Analyst) -> HourlyBudget | None:
    """Return the hourly budget that an analyst's model has, if there is one."""
    model = analyst.attributor.model if isinstance(analyst, RunAnalyst) else None
    return model if isinstance(model, HourlyBudget) else None


async def prepare_model(settings: Settings) -> None:
    """Import what models need beside the event loop: it takes seconds, and no span may wait for it."""
    for name in model_names(settings)[:1]:  # the import is the same for all
        await LiteLLM(name=name).prepare()


def tls_files(settings: Settings, renewals: Renewals | None = None) -> TlsFiles | None:
    """Return the identity of our doors, or ``None`` where they speak plainly; failed renewals are counted."""
    from collector_processor.tls import Renewals, TlsFiles  # noqa: PLC0415 - gRPC, which only the service needs

    if settings.tls_certificate is None or settings.tls_key is None:
        return None
    return TlsFiles(
        certificate=settings.tls_certificate,
        key=settings.tls_key,
        client_ca=settings.tls_client_ca,
        renewals=renewals or Renewals(),
    )


def open_cleaner(settings: Settings) -> Cleaner:
    """Return what takes secrets out of runs before anything else sees them."""
    return Cleaner(make_redactor(read_kinds(settings.redact), settings.redact_patterns))


def carrier_policy(settings: Settings) -> CarrierPolicy:
    """Return how verdicts are written into traces."""
    redact = make_redactor(ALL_KINDS, settings.redact_patterns).plainly
    clean = {ExportText.NONE: omit, ExportText.REDACTED: redact, ExportText.FULL: keep}[settings.export_text]
    status = SpanStatus.ERROR if settings.carrier_status == "error" else SpanStatus.UNSET
    return CarrierPolicy(
        clean=clean,
        status=status,
        carriers=settings.carriers,
        min_confidence=settings.carrier_min_confidence,
        logs=_logs_go_somewhere(settings),
        web_url=(settings.web_url or "").rstrip("/"),
    )


def _logs_go_somewhere(settings: Settings) -> bool:
    """Whether to write evaluation logs: not if traces are forwarded and logs are not."""
    return not settings.endpoints or Signal.LOGS in settings.endpoints


def kept_texts(settings: Settings) -> Redact:
    """Return what of runs' texts is kept for labels: what may leave, of runs without their secrets."""
    is_clean_already = set(read_kinds(settings.redact)) >= set(ALL_KINDS)
    if settings.export_text is ExportText.REDACTED and is_clean_already:
        return keep
    return carrier_policy(settings).clean


def notice_text(settings: Settings) -> Redact:
    """Return what of a verdict's prose receivers may read."""
    redact = make_redactor(ALL_KINDS, settings.redact_patterns).plainly
    return {ExportText.NONE: omit, ExportText.REDACTED: redact, ExportText.FULL: keep}[settings.notify_text]


def _least_confidence(precision: float | None, ranker: Ranker | None) -> float:
    """Return the confidence from which the ranker's verdicts on unseen runs were right that often.

    Raises:
        SettingsError: there is no ranker, or its card does not know.
    """
    if precision is None:
        return 0.0
    if ranker is None:
        expected = "expected BLAMESPAN_RANKER, a model that `blamespan train` made"
        raise SettingsError(f"BLAMESPAN_PRECISION={precision:g} without a ranker: {expected}")
    told = ranker.card.get("confidences")
    if not told:
        raise SettingsError(
            f"BLAMESPAN_PRECISION={precision:g}: the card of BLAMESPAN_RANKER does not say how confident"
            " it was of runs it had not seen, and whether it was right: train it again with `blamespan train`"
        )
    least = least_confidence([(float(confidence), bool(right)) for confidence, right in told], precision)
    return _BEYOND_ALL if least is None else least


def _rules(settings: Settings) -> tuple[Claim, ...]:
    if settings.failure_pattern is None:
        return ()
    try:
        return (output_matching(settings.failure_pattern),)
    except ValueError as error:
        raise SettingsError(f"BLAMESPAN_FAILURE_PATTERN={settings.failure_pattern!r}: {error}") from error
