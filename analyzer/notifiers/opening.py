"""Settings → receivers. Called by the service only."""

from __future__ import annotations

from typing import Final

from analyzer.issues.counting import CountingRules
from analyzer.issues.desk import Receivers
from analyzer.notifiers.courier import CourierRules, Write
from analyzer.notifiers.links import Links
from analyzer.notifiers.slack import slack_message
from analyzer.notifiers.webhook import webhook_message
from collector_processor.redaction import ALL_KINDS, keep, make_redactor, omit
from collector_processor.settings import ExportText, Settings

_ALERTS: Final = "/api/v2/alerts"


def receivers_of(settings: Settings) -> Receivers:
    """Return who is told."""
    links = Links(base=(settings.web_url or "").rstrip("/"))
    chosen: tuple[tuple[str, str | None, Write], ...] = (
        ("webhook", settings.notify_webhook, webhook_message),
        ("slack", settings.notify_slack, slack_message),
    )
    wanted = [(name, url, write) for name, url, write in chosen if url]
    alertmanager = settings.notify_alertmanager
    return Receivers(
        couriers=tuple(
            CourierRules(name=name, write=write, links=links, per_hour=settings.notify_per_hour)
            for name, _, write in wanted
        ),
        urls=tuple(url for _, url, _ in wanted),
        alertmanager=alertmanager.rstrip("/") + _ALERTS if alertmanager else None,
        secret=settings.notify_secret,
        links=links,
    )


def counting_rules(settings: Settings, receivers: Receivers) -> CountingRules:
    """Return how runs are counted, and what the receivers may read of verdicts."""
    redact = make_redactor(ALL_KINDS, settings.redact_patterns).plainly
    clean = {ExportText.NONE: omit, ExportText.REDACTED: redact, ExportText.FULL: keep}[settings.notify_text]
    return CountingRules(
        is_fair_sample=settings.upstream_sampling != "tail",
        targets=tuple(rules.name for rules in receivers.couriers),
        clean=clean,
    )
