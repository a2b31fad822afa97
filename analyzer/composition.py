"""Settings → the objects that do the work. Called by commands only."""

from __future__ import annotations

import re
import time

from analyzer.analyst import RunAnalyst
from analyzer.attribution import Attributor
from analyzer.budget import HourlyBudget
from analyzer.completion import LiteLLM, Patience
from analyzer.triage import Claim, output_matching
from collector_processor.annotate import CarrierPolicy
from collector_processor.redaction import keep, omit, redact
from collector_processor.settings import ExportText, Settings, SettingsError
from semconv.model import SpanStatus


def open_analyst(settings: Settings, *, with_reference: bool = False) -> RunAnalyst:
    """Return the analyst that the settings ask for.

    Raises:
        SettingsError: the failure pattern is no regular expression.
        UnknownMethod: the method's name is none.
        ModelNeeded: the method needs a model and none is set.
    """
    return RunAnalyst(
        attributor=Attributor(
            method=settings.method,
            model=open_model(settings),
            with_reference=with_reference,
            budget_usd=settings.budget_usd_per_run,
        ),
        rules=_rules(settings),
    )


def open_model(settings: Settings) -> HourlyBudget | None:
    """Return the model within its hourly budget, or ``None`` where none is set."""
    if settings.model is None:
        return None
    model = LiteLLM(name=settings.model, patience=Patience(timeout_s=settings.model_timeout / 1000))
    return HourlyBudget(model=model, usd=settings.budget_usd_per_hour, clock=time.monotonic)


async def prepare_model(settings: Settings) -> None:
    """Import what models need beside the event loop: it takes seconds, and no span may wait for it."""
    if settings.model is not None:
        await LiteLLM(name=settings.model).prepare()


def carrier_policy(settings: Settings) -> CarrierPolicy:
    """Return how verdicts are written into traces."""
    clean = {ExportText.NONE: omit, ExportText.REDACTED: redact, ExportText.FULL: keep}[settings.export_text]
    status = SpanStatus.ERROR if settings.carrier_status == "error" else SpanStatus.UNSET
    return CarrierPolicy(clean=clean, status=status)


def _rules(settings: Settings) -> tuple[Claim, ...]:
    if settings.failure_pattern is None:
        return ()
    try:
        return (output_matching(settings.failure_pattern),)
    except re.error as error:
        shown = settings.failure_pattern
        raise SettingsError(
            f"BLAMESPAN_FAILURE_PATTERN={shown!r}: expected a regular expression: {error}"
        ) from error
