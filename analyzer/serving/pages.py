"""What the pages and the API read, wired to the stores."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from prometheus_client.registry import CollectorRegistry

from analyzer.composition import tls_files
from analyzer.issues.store import open_issues
from analyzer.labels import Label, Said
from analyzer.labels.correcting import Corrections
from analyzer.labels.labelling import Given, give
from analyzer.remote.opening import opinions_of
from analyzer.serving.files import Files
from analyzer.serving.lanes import Thinking, start_corrections
from analyzer.serving.lifetime import Lifetime
from analyzer.web.app import WebParts
from analyzer.web.archive import RunArchive
from analyzer.web.issue_source import DeskIssues
from analyzer.web.jobs import JobLimits, Jobs
from analyzer.web.labels import Labels
from analyzer.web.links import TraceLinks
from analyzer.web.pages import Pages
from analyzer.web.settings_shown import shown_settings
from collector_processor.examine import Examiner
from collector_processor.otlp import Tenant
from collector_processor.settings import Settings
from collector_processor.stored import StoredVerdict
from collector_processor.tls import Renewals


def web_parts(
    settings: Settings,
    lifetime: Lifetime,
    files: Files,
    examiner: Examiner,
    thinking: Thinking,
    *,
    is_ready: Callable[[], bool],
    registry: CollectorRegistry,
    renewals: Renewals,
) -> WebParts:
    """Return what the pages and the API are made from; the stores are asked on their own thread."""
    return WebParts(
        is_ready=is_ready,
        recent=lambda limit: examiner.in_db(files.store.recent, limit),
        find=lambda run_id: examiner.in_db(files.store.find, run_id),
        metrics=registry,
        labels=_label_parts(files, examiner, start_corrections(settings, lifetime, files, examiner)),
        issues=thinking.desk,
        token=settings.token,
        tenant_header_names=settings.tenant_header_names,
        allowed_hosts=settings.allowed_host_names,
        tls=tls_files(settings, renewals),
        most_connections=settings.max_connections,
        pages=_open_pages(settings, lifetime, thinking),
    )


def _open_pages(settings: Settings, lifetime: Lifetime, thinking: Thinking) -> Pages:
    """Open the pages; what is tried there is analysed here, or by the analyzers that are asked."""
    # Watched: the door, opened later, is shut before what is behind it is closed.
    archive = RunArchive(settings.data_dir)
    lifetime.watched.callback(archive.close)
    issues = DeskIssues(
        thinking.desk,
        open_issues(settings.data_dir),
        time.time_ns,
        is_fair_sample=settings.is_fair_sample,
    )
    lifetime.watched.callback(issues.close)
    opinions = opinions_of(settings, thinking.analyst)
    jobs = None if opinions is None else Jobs(opinions, JobLimits(at_once=settings.concurrency))
    if jobs is not None:
        lifetime.watched.push_async_callback(jobs.close)
    return Pages(
        runs=archive,
        clean=thinking.cleaner,
        jobs=jobs,
        issues=issues,
        links=TraceLinks(
            jaeger=settings.jaeger_url,
            grafana=settings.grafana_url,
            tempo_uid=settings.grafana_tempo_uid,
        ),
        settings=shown_settings(settings),
        now_ns=time.time_ns,
    )


def _label_parts(files: Files, examiner: Examiner, corrections: Corrections) -> Labels:
    labels = files.labels

    async def take(verdict: StoredVerdict, said: Said) -> Given:
        given = await examiner.in_db(
            partial(give, labels, verdict, said, time.time_ns(), verdicts=files.store)
        )
        await corrections.follow()
        return given

    async def of(tenant: Tenant, run_id: str) -> Sequence[Label]:
        return await examiner.in_db(labels.labels, tenant, run_id)

    return Labels(give=take, of=of)
