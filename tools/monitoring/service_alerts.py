"""Alerts on the service itself: receiving, forwarding, analyses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tools.monitoring.alert_text import Durations, Rule, alert_texts, span

MAX_LAG_S: Final = 300
"""Analyses start within a minute of silence; a lag of five minutes means a queue."""
MAX_FULLNESS: Final = 0.8
"""Share of a queue's capacity; at 1 requests are refused."""
MAX_AGE_S: Final = 600
"""Age of the oldest item to be forwarded: twice the time until ``BlamespanBackendAway`` fires."""
MAX_DEATHS: Final = 5
"""Deaths of analysis processes in an hour; a single crashing trace causes three."""
_TARGETS: Final = '{job=~".*blamespan.*"}'
"""blamespan's scrape targets, for any name of release or job; the chart inserts its own release."""


def alerts_on_line(durations: Durations) -> Iterator[Rule]:
    """Yield the alerts on receiving and forwarding, the most urgent first."""
    pending, keep_firing = span(durations.pending), span(durations.keep_firing)
    yield {
        "alert": "BlamespanBackendAway",
        # Retries are at most half a minute apart, so that every window has some during an outage.
        "expr": "sum by (instance, signal) (increase("
        f'blamespan_send_failures_total{{cause="away"}}[{pending}])) > 0\n'
        f"unless sum by (instance, signal) (increase(blamespan_items_forwarded_total[{pending}])) > 0",
        "for": pending,
        "labels": {"severity": "page"},
        "annotations": alert_texts(
            "the backend for {{ $labels.signal }} does not answer",
            "blamespan keeps them on disk until it answers, or until the queue is full. The log line"
            " `backend away` names the address.",
        ),
    }
    yield {
        "alert": "BlamespanForwardingBehind",
        "expr": f"max by (signal) (blamespan_queue_oldest_age_seconds) > {MAX_AGE_S}",
        "for": pending,
        "labels": {"severity": "ticket"},
        "annotations": alert_texts(
            "{{ $labels.signal }} reach the backend {{ $value | humanizeDuration }} late",
            "The backend is away, asks to wait, or is too slow: see blamespan_send_failures_total.",
        ),
    }
    yield {
        "alert": "BlamespanQueueFilling",
        "expr": f"max by (signal) (blamespan_queue_fullness) > {MAX_FULLNESS}",
        "for": span(durations.interval),
        "keep_firing_for": keep_firing,
        "labels": {"severity": "page"},
        "annotations": alert_texts(
            "blamespan's queue of {{ $labels.signal }} is {{ $value | humanizePercentage }} full",
            "At 100 % requests are refused, and senders must keep them. Repair the backend, or raise"
            " BLAMESPAN_STORAGE_BYTES.",
        ),
    }
    yield {
        "alert": "BlamespanRefusing",
        "expr": f'sum by (reason) (increase(blamespan_refused_requests_total{{reason=~"full|loop|broken"}}'
        f"[{pending}])) > 0",
        "for": pending,
        "labels": {"severity": "page"},
        "annotations": alert_texts(
            "blamespan refuses requests: {{ $labels.reason }}",
            "Senders keep them for a while, then drop them. The answers and blamespan's log say why.",
        ),
    }


def alerts_on_service(durations: Durations) -> Iterator[Rule]:
    """Yield the alerts on analyses, losses, cost and the process."""
    brief, recent = span(durations.brief), span(durations.recent)
    pending = span(durations.pending)
    lag = f"histogram_quantile(0.95, sum by (le) (rate(blamespan_analysis_lag_seconds_bucket[{brief}])))"
    yield {
        "alert": "BlamespanAnalysisLag",
        "expr": f"{lag} > {MAX_LAG_S}",
        "for": pending,
        "labels": {"severity": "ticket"},
        "annotations": alert_texts(
            "verdicts come {{ $value | humanizeDuration }} after their runs",
            f"One in twenty takes longer than {MAX_LAG_S} s: more runs fail than can be analysed at once,"
            " or the model is slow.",
        ),
    }
    yield {
        "alert": "BlamespanStoreFaulty",
        "expr": "max by (store) (blamespan_store_faulty) > 0",
        "for": pending,
        "labels": {"severity": "page"},
        "annotations": alert_texts(
            "blamespan cannot write its {{ $labels.store }}",
            "journal: spans are refused; verdicts: they wait. The disk is full, read-only or bad,"
            " or PostgreSQL is away; the log says which.",
        ),
    }
    yield {
        "alert": "BlamespanItemsLost",
        "expr": f"sum by (signal) (increase(blamespan_items_lost_total[{brief}])) > 0",
        "keep_firing_for": span(durations.keep_firing),
        "labels": {"severity": "page"},
        "annotations": alert_texts(
            "acknowledged {{ $labels.signal }} were damaged on blamespan's disk",
            "Look at the disk under BLAMESPAN_DATA_DIR.",
        ),
    }
    yield {
        "alert": "BlamespanItemsRejected",
        "expr": f"sum by (signal) (increase(blamespan_items_rejected_total[{brief}])) > 0",
        "keep_firing_for": span(durations.keep_firing),
        "labels": {"severity": "ticket"},
        "annotations": alert_texts(
            "the backend permanently rejects {{ $labels.signal }}",
            "blamespan's log says why; usually a limit on size, or a schema.",
        ),
    }
    yield {
        "alert": "BlamespanVerdictsRefused",
        "expr": f"sum by (signal) (increase(blamespan_verdicts_refused_total[{brief}])) > 0",
        "keep_firing_for": span(durations.keep_firing),
        "labels": {"severity": "ticket"},
        "annotations": alert_texts(
            "the backend permanently rejects verdicts ({{ $labels.signal }})",
            "These verdicts are only on blamespan's page. The log line `backend refused a verdict` says why.",
        ),
    }
    yield {
        "alert": "BlamespanBudgetExhausted",
        "expr": f"sum(increase(blamespan_budget_refusals_total[{recent}])) > 0",
        "keep_firing_for": span(durations.keep_firing),
        "labels": {"severity": "ticket"},
        "annotations": alert_texts(
            "blamespan's hourly budget for models is used up",
            "Until there is room again, runs are analysed without a model: BLAMESPAN_BUDGET_USD_PER_HOUR.",
        ),
    }
    yield {
        "alert": "BlamespanAnalysisProcessDies",
        "expr": f"sum(increase(blamespan_analysis_process_deaths_total[{recent}])) > {MAX_DEATHS}",
        "keep_firing_for": span(durations.keep_firing),
        "labels": {"severity": "ticket"},
        "annotations": alert_texts(
            "blamespan's worker processes keep crashing",
            "New processes take over its runs. Look in the log for the trace, and check the memory.",
        ),
    }
    yield {
        "alert": "BlamespanCertificateNotRenewed",
        "expr": f"sum(increase(blamespan_tls_renewals_failed_total[{recent}])) > 0",
        "keep_firing_for": span(durations.keep_firing),
        "labels": {"severity": "ticket"},
        "annotations": alert_texts(
            "blamespan cannot use its renewed certificate",
            "The old certificate is used until it expires. The log says what is wrong with the files.",
        ),
    }
    yield {
        "alert": "BlamespanDown",
        "expr": f"up{_TARGETS} == 0\nor absent(up{_TARGETS})",
        "for": pending,
        "labels": {"severity": "page"},
        "annotations": alert_texts(
            "blamespan does not answer",
            "Prometheus cannot scrape it, or has no target whose job has blamespan in its name."
            " Meanwhile no failure raises an alert.",
        ),
    }
