"""Settings → what drafts. Called by the service, and by its process beside it."""

from __future__ import annotations

from analyzer.analyst import RunAnalyst
from analyzer.composition import carrier_policy, kept_texts, notice_text
from analyzer.drafting.drafter import Drafter
from collector_processor.cleaning import Cleaner
from collector_processor.settings import Settings


def open_drafter(settings: Settings, analyst: RunAnalyst, cleaner: Cleaner) -> Drafter:
    """Return what drafts verdicts without asking a model."""
    return Drafter(
        analyst=analyst,
        cleaner=cleaner,
        policy=carrier_policy(settings),
        kept=kept_texts(settings),
        noticed=notice_text(settings),
    )
