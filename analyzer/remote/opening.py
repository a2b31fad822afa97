"""Settings → the client and the server of an analysis elsewhere. Called by commands and the service only."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from analyzer.analyst import RunAnalyst
from analyzer.composition import budget_of, open_analyst, open_cleaner, open_opinions, tls_files
from analyzer.opinion import Opinions
from analyzer.remote.client import HttpAsk, RemoteAnalyst
from analyzer.remote.opinions import RemoteOpinions
from analyzer.remote.server import AnalyzerRules, AnalyzerServer
from analyzer.web.analyzer_pages import AnalyzerPages
from analyzer.web.jobs import JobLimits, Jobs
from analyzer.web.settings_shown import shown_settings
from collector_processor.analyst import Analyst
from collector_processor.settings import Settings, SettingsError
from collector_processor.tls import ClientFiles, ClientTls, reason_of

logger = logging.getLogger(__name__)

MAX_RUN_BYTES: Final = 128 << 20
"""A run as JSON: beyond what the assembler lets a trace grow to."""


def without_model(settings: Settings) -> Settings:
    """Return the settings of a collector half, whose analyses cost nothing here."""
    return settings.model_copy(update={"model": None, "page_models": None, "method": "auto"})


@asynccontextmanager
async def asking(settings: Settings) -> AsyncIterator[Analyst]:
    """Give an analyst that asks the analyzers of the settings, until the block ends.

    Raises:
        SettingsError: no analyzer is set, or a certificate cannot be read.
    """
    if settings.analyzer_endpoint is None:
        raise SettingsError(
            "BLAMESPAN_ANALYZER_ENDPOINT is not set: expected http://host:port of an analyzer"
        )
    is_secure = settings.analyzer_endpoint.startswith("https:")
    if settings.token and not is_secure:
        logger.warning(
            "analyzers are asked without TLS: token and runs travel in clear text",
            extra={"endpoint": settings.analyzer_endpoint},
        )
    ask = HttpAsk(
        settings.analyzer_endpoint,
        timeout_s=settings.analyzer_timeout / 1000,
        token=settings.token,
        tls=_trust(settings) if is_secure else None,
    )
    try:
        yield RemoteAnalyst(ask=ask, local=open_analyst(without_model(settings)))
    finally:
        await ask.close()


def analyzer_server(settings: Settings, analyst: RunAnalyst) -> AnalyzerServer:
    """Return the server that the settings ask for; it does not listen yet."""
    rules = AnalyzerRules(
        at_once=settings.concurrency,
        max_run_bytes=min(MAX_RUN_BYTES, settings.max_receiving_bytes),
        token=settings.token,
        allowed_hosts=settings.allowed_host_names,
        tls=tls_files(settings),
        room_bytes=settings.max_receiving_bytes,
        most_connections=settings.max_connections,
    )
    opinions = open_opinions(settings, analyst)
    pages = AnalyzerPages(
        jobs=Jobs(opinions, JobLimits(at_once=settings.concurrency)),
        clean=open_cleaner(settings),
        settings=shown_settings(settings),
        runs_at=settings.web_url.rstrip("/") if settings.web_url else None,
    )
    return AnalyzerServer(
        analyst, settings.listeners[2], rules, budget=budget_of(analyst), opinions=opinions, pages=pages
    )


def opinions_of(settings: Settings, analyst: Analyst) -> Opinions | None:
    """Return who answers people's own choices, here or at the analyzers; ``None`` where nobody can."""
    match analyst:
        case RunAnalyst():
            return open_opinions(settings, analyst)
        case RemoteAnalyst(ask=HttpAsk() as ask):
            return RemoteOpinions(ask)
        case _:
            return None


def _trust(settings: Settings) -> ClientTls:
    """Return whom we trust; what we show, where analyzers want to see it, is what our own doors show."""
    files = ClientFiles(
        authorities=settings.analyzer_certificate,
        certificate=settings.tls_certificate,
        key=settings.tls_key,
    )
    try:
        return ClientTls(files)
    except (OSError, ValueError) as error:
        shown = ", ".join(map(str, files.paths))
        raise SettingsError(f"certificate {shown}: {reason_of(error)}") from error
