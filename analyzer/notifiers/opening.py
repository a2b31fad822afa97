"""Settings → receivers. Called by the service only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from analyzer.composition import notice_text
from analyzer.issues.counting import CountingRules
from analyzer.notifiers.courier import CourierRules, Write
from analyzer.notifiers.links import Links
from analyzer.notifiers.slack import slack_message
from analyzer.notifiers.webhook import webhook_message
from collector_processor.settings import Settings

_ALERTS: Final = "/api/v2/alerts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receivers:
    """Who is told, and how; from the settings."""

    couriers: tuple[CourierRules, ...] = ()
    urls: tuple[str, ...] = field(default=(), repr=False)
    """Of the couriers, in the same order."""
    alertmanager: str | None = field(default=None, repr=False)
    """Where alerts are posted."""
    secret: str | None = field(default=None, repr=False)
    links: Links = field(default_factory=lambda: Links(base=""))
    every_s: float = 60.0
    """How often the Alertmanager is told what stands."""


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
    return CountingRules(
        is_fair_sample=settings.is_fair_sample,
        targets=tuple(rules.name for rules in receivers.couriers),
        clean=notice_text(settings),
    )
