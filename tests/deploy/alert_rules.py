"""``python -m tests.deploy.alert_rules``: writes the rules for Prometheus, and the Helm chart's copy.

One template for the rules that are shipped, for promtool's tests of them, and
for the live test, where an hour is seconds: only ``Durations`` differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import yaml

_DEPLOY: Final = Path(__file__).parents[2] / "deploy"
FILE: Final = _DEPLOY / "prometheus" / "rules" / "blamespan.yaml"
CHART_FILE: Final = _DEPLOY / "helm" / "blamespan" / "files" / "rules.yaml"
"""The same again: a chart can include only files of its own folder."""
_HEAD: Final = """\
# When somebody is told, and how urgently. Made by `python -m tests.deploy.alert_rules`; do not edit.
# Links go to `external_labels: blamespan_url` of prometheus.yml. Needs Prometheus 2.42 (keep_firing_for).
"""

MIN_FAILURES: Final = 5
SHARE: Final = 0.10
LONG_SHARE: Final = 0.05
MIN_TASKS: Final = 20
MAX_LAG_S: Final = 300
"""Analyses begin within a minute of silence at the latest; five is a queue."""
MAX_FULLNESS: Final = 0.8
"""Of a queue; at 1 requests are refused."""
MAX_AGE_S: Final = 600
"""Of the oldest item to be forwarded: twice what a backend may be away before somebody is told."""
MAX_DEATHS: Final = 5
"""Of processes for analyses in an hour: one trace that each dies of ends three of them."""

Rule = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """Everything in seconds; the defaults are what is shipped."""

    recent: int = 3600
    """What failures are counted over."""
    long: int = 6 * 3600
    """What a share must be high over too, so that a bad quarter of an hour wakes nobody."""
    pending: int = 300
    """How long a failure recurs before somebody is told."""
    keep_firing: int = 900
    """How long an alert outlives its cause, so that it does not flap."""
    brief: int = 900
    """What lag and losses are looked at over."""
    interval: int = 30
    """How often rules are evaluated."""

    def __post_init__(self) -> None:
        """Refuse what Prometheus would take for something else."""
        for each in fields(self):
            if getattr(self, each.name) < 1:
                raise ValueError(f"{each.name}: expected whole seconds, at least 1")


SHIPPED: Final = Durations()


def rule_file(durations: Durations = SHIPPED) -> dict[str, Any]:
    """Return the rule file's content."""
    group = {
        "name": "blamespan",
        "interval": _span(durations.interval),
        "rules": [
            *_agents(durations),
            *_news(durations),
            *_surely(durations),
            *_line(durations),
            *_service(durations),
        ],
    }
    return {"groups": [group]}


def write(durations: Durations = SHIPPED) -> str:
    """Return the rule file as YAML."""
    return _HEAD + yaml.dump(rule_file(durations), Dumper=_Readable, sort_keys=False, width=1000)


class _Readable(yaml.SafeDumper):
    """Writes several lines as several lines."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Readable.add_representer(str, _text)


def _agents(durations: Durations) -> Iterator[Rule]:
    recent, long = _span(durations.recent), _span(durations.long)
    yield {
        "alert": "BlamespanAgentKeepsFailing",
        # Down to a whole number: increase extrapolates to the window's ends, never below what was counted,
        # and for the youngest series well above it; "for" outlasts that.
        "expr": f"floor({_failures(recent)}) >= {MIN_FAILURES}",
        "for": _span(durations.pending),
        "keep_firing_for": _span(durations.keep_firing),
        "labels": {"severity": "ticket"},
        "annotations": _annotations(
            "{{ $labels.agent }} of {{ $labels.service }} keeps failing",
            f"It broke about {{{{ $value }}}} runs within {recent}.",
            _RUNS,
        ),
    }
    yield {
        "alert": "BlamespanAgentFailureShare",
        "expr": f"{_failures(recent)} / {_tasks(recent)} > {SHARE}\n"
        f"and {_failures(long)} / {_tasks(long)} > {LONG_SHARE}\n"
        f"and floor({_tasks(recent)}) >= {MIN_TASKS}",
        "for": _span(durations.pending),
        "keep_firing_for": _span(durations.keep_firing),
        "labels": {"severity": "page"},
        "annotations": _annotations(
            "{{ $labels.agent }} of {{ $labels.service }} breaks {{ $value | humanizePercentage }} of tasks",
            f"Over {SHARE:.0%} within {recent} and over {LONG_SHARE:.0%} within {long},"
            f" of at least {MIN_TASKS} tasks.",
            _RUNS,
        ),
    }


def _news(durations: Durations) -> Iterator[Rule]:
    """Yield what comes from the store of issues: states, told for as long as they stand."""
    told = (
        ("BlamespanNewIssue", "new", "fails in a way that was never seen before"),
        ("BlamespanRegressedIssue", "regressed", "fails again in a way that was resolved"),
    )
    for alert, state, summary in told:
        yield {
            "alert": alert,
            # One alert an issue, whoever else of the service's replicas shows it too.
            "expr": f'max by (service, agent, mode, issue) (blamespan_issue_standing{{state="{state}"}}) > 0',
            "keep_firing_for": _span(durations.keep_firing),
            "labels": {"severity": "ticket"},
            "annotations": _annotations(
                f"{{{{ $labels.agent }}}} of {{{{ $labels.service }}}} {summary}",
                "Issue {{ $labels.issue }}, {{ $labels.mode }}; until it is a day old, resolved or muted.",
                _RUNS,
            ),
        }
    yield {
        "alert": "BlamespanAgentFailsMore",
        "expr": "max by (service, agent) (blamespan_agent_alarm) > 0",
        "keep_firing_for": _span(durations.keep_firing),
        "labels": {"severity": "page"},
        "annotations": _annotations(
            "{{ $labels.agent }} of {{ $labels.service }} is to blame more often than it was",
            "Its watch, which looks at every run, says so; at most one week in twenty it is wrong.",
            _RUNS,
        ),
    }


def _surely(durations: Durations) -> Iterator[Rule]:
    """Yield what allows for the method's errors, as far as labels tell them."""
    yield {
        "alert": "BlamespanAgentSurelyFails",
        "expr": f"max by (service, agent) (blamespan_agent_share_low) > {SHARE}",
        "for": _span(durations.pending),
        "keep_firing_for": _span(durations.keep_firing),
        "labels": {"severity": "ticket"},
        "annotations": _annotations(
            "{{ $labels.agent }} of {{ $labels.service }} breaks at least"
            " {{ $value | humanizePercentage }} of its runs",
            "Of seven days: the lower end of a 95 % interval that allows for the method's errors.",
            _RUNS,
        ),
    }


def _line(durations: Durations) -> Iterator[Rule]:
    """Yield what is wrong on the way in or out, the most urgent first."""
    pending, keep_firing = _span(durations.pending), _span(durations.keep_firing)
    yield {
        "alert": "BlamespanBackendAway",
        # Tries are half a minute apart at most, so that every window has some while it lasts.
        "expr": "sum by (instance, signal) (increase("
        f'blamespan_send_failures_total{{cause="away"}}[{pending}])) > 0\n'
        f"unless sum by (instance, signal) (increase(blamespan_items_forwarded_total[{pending}])) > 0",
        "for": pending,
        "labels": {"severity": "page"},
        "annotations": _annotations(
            "the backend for {{ $labels.signal }} does not answer",
            "They are kept on blamespan's disk until it does, or until the queue is full. The log says at"
            " which address: backend away.",
        ),
    }
    yield {
        "alert": "BlamespanForwardingBehind",
        "expr": f"max by (signal) (blamespan_queue_oldest_age_seconds) > {MAX_AGE_S}",
        "for": pending,
        "labels": {"severity": "ticket"},
        "annotations": _annotations(
            "{{ $labels.signal }} reach the backend {{ $value | humanizeDuration }} late",
            "It is away, asks to wait, or is slower than what arrives: blamespan_send_failures_total tells.",
        ),
    }
    yield {
        "alert": "BlamespanQueueFilling",
        "expr": f"max by (signal) (blamespan_queue_fullness) > {MAX_FULLNESS}",
        "for": _span(durations.interval),
        "keep_firing_for": keep_firing,
        "labels": {"severity": "page"},
        "annotations": _annotations(
            "blamespan's queue of {{ $labels.signal }} is {{ $value | humanizePercentage }} full",
            "At 100 % requests are refused, and senders must keep them. Mend the backend, or raise"
            " BLAMESPAN_MAX_PENDING_BYTES.",
        ),
    }
    yield {
        "alert": "BlamespanRefusing",
        "expr": f'sum by (reason) (increase(blamespan_refused_requests_total{{reason=~"full|loop|broken"}}'
        f"[{pending}])) > 0",
        "for": pending,
        "labels": {"severity": "page"},
        "annotations": _annotations(
            "blamespan refuses requests: {{ $labels.reason }}",
            "Senders keep them for a while, then drop them. The answers and blamespan's log say why.",
        ),
    }


def _service(durations: Durations) -> Iterator[Rule]:
    brief, recent = _span(durations.brief), _span(durations.recent)
    pending = _span(durations.pending)
    lag = f"histogram_quantile(0.95, sum by (le) (rate(blamespan_analysis_lag_seconds_bucket[{brief}])))"
    yield {
        "alert": "BlamespanAnalysisLag",
        "expr": f"{lag} > {MAX_LAG_S}",
        "for": pending,
        "labels": {"severity": "ticket"},
        "annotations": _annotations(
            "verdicts come {{ $value | humanizeDuration }} after their runs",
            f"One in twenty takes longer than {MAX_LAG_S} s: more runs fail than can be analysed at once,"
            " or the model is slow.",
        ),
    }
    yield {
        "alert": "BlamespanItemsLost",
        "expr": f"sum by (signal) (increase(blamespan_items_lost_total[{brief}])) > 0",
        "keep_firing_for": _span(durations.keep_firing),
        "labels": {"severity": "page"},
        "annotations": _annotations(
            "acknowledged {{ $labels.signal }} were damaged on blamespan's disk",
            "Look at the disk under BLAMESPAN_DATA_DIR.",
        ),
    }
    yield {
        "alert": "BlamespanItemsRejected",
        "expr": f"sum by (signal) (increase(blamespan_items_rejected_total[{brief}])) > 0",
        "keep_firing_for": _span(durations.keep_firing),
        "labels": {"severity": "ticket"},
        "annotations": _annotations(
            "the backend refuses {{ $labels.signal }} for good",
            "blamespan's log says why; a limit on size or a schema, mostly.",
        ),
    }
    yield {
        "alert": "BlamespanVerdictsRefused",
        "expr": f"sum by (signal) (increase(blamespan_verdicts_refused_total[{brief}])) > 0",
        "keep_firing_for": _span(durations.keep_firing),
        "labels": {"severity": "ticket"},
        "annotations": _annotations(
            "the backend refuses verdicts ({{ $labels.signal }}) for good",
            "They are on blamespan's page only. Its log says why: backend refused a verdict.",
        ),
    }
    yield {
        "alert": "BlamespanBudgetExhausted",
        "expr": f"sum(increase(blamespan_budget_refusals_total[{recent}])) > 0",
        "keep_firing_for": _span(durations.keep_firing),
        "labels": {"severity": "ticket"},
        "annotations": _annotations(
            "blamespan's hourly budget for models is used up",
            "Runs are attributed without a model until there is room again: BLAMESPAN_BUDGET_USD_PER_HOUR.",
        ),
    }
    yield {
        "alert": "BlamespanAnalysisProcessDies",
        "expr": f"sum(increase(blamespan_analysis_process_deaths_total[{recent}])) > {MAX_DEATHS}",
        "keep_firing_for": _span(durations.keep_firing),
        "labels": {"severity": "ticket"},
        "annotations": _annotations(
            "blamespan's process for analyses dies again and again",
            "Others do what it had to do. The log says at which trace; or there is too little memory.",
        ),
    }
    yield {
        "alert": "BlamespanCertificateNotRenewed",
        "expr": f"sum(increase(blamespan_tls_renewals_failed_total[{recent}])) > 0",
        "keep_firing_for": _span(durations.keep_firing),
        "labels": {"severity": "ticket"},
        "annotations": _annotations(
            "blamespan cannot use its renewed certificate",
            "The one before is shown until it runs out. The log says what is wrong with the files.",
        ),
    }
    yield {
        "alert": "BlamespanDown",
        "expr": f"up{_TARGETS} == 0\nor absent(up{_TARGETS})",
        "for": pending,
        "labels": {"severity": "page"},
        "annotations": _annotations(
            "blamespan does not answer",
            "Prometheus cannot scrape it, or knows no target of a job with blamespan in its name."
            " Nobody would be told of a failure now.",
        ),
    }


_TARGETS: Final = '{job=~".*blamespan.*"}'
"""blamespan's scrape targets, whatever a release or a job is called; the chart puts its own release here."""
BASE: Final = "{{ or $externalLabels.blamespan_url `http://localhost:8500` }}"
"""Where links begin."""
_RUNS: Final = "/runs?status=attributed&q={{ $labels.agent | urlquery }}"


def _annotations(summary: str, description: str, path: str = "/health") -> dict[str, str]:
    return {"summary": summary, "description": description, "link": BASE + path}


def _failures(window: str) -> str:
    return f"sum by (service, agent) (increase(blamespan_agent_failures_total[{window}]))"


def _tasks(window: str) -> str:
    return f"sum by (service, agent) (increase(blamespan_agent_tasks_total[{window}]))"


def _span(seconds: int) -> str:
    """Write a duration as Prometheus does, in its largest whole unit."""
    for unit, length in (("h", 3600), ("m", 60)):
        if seconds % length == 0:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


if __name__ == "__main__":
    for file in (FILE, CHART_FILE):
        file.parent.mkdir(exist_ok=True)
        file.write_text(write(), encoding="utf-8")
