"""``python -m tests.deploy.alert_rules``: writes the rules for Prometheus, and the Helm chart's copy.

The shipped rules, promtool's tests and the live test, in which an hour takes
seconds, use the same template with different ``Durations``.
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
"""A copy of ``FILE``: a chart can include only files from its own folder."""
_HEAD: Final = """\
# Alert rules of blamespan. Made by `python -m tests.deploy.alert_rules`; do not edit.
# Links go to `external_labels: blamespan_url` of prometheus.yml. Needs Prometheus 2.42 (keep_firing_for).
#
# Alerts on agents use two windows. The last hour has enough runs for a meaningful share. The last
# quarter of an hour shows that the problem still occurs: without failures in it no alert starts, and a
# firing alert ends. When an agent is fixed or gets no more traffic, its alerts end within two quarters of
# an hour (the second is keep_firing_for).
#
# for: 2m, because `increase` overestimates a series with few scrapes.
# keep_firing_for: 15m, because an agent with few runs may have a quarter of an hour without failures by
# chance: a lasting problem should page once, not once after each gap.
"""

MIN_FAILURES: Final = 5
"""Least failures in the last hour for a page. Fewer are reported as issues."""
MIN_TASKS: Final = 20
"""Least tasks in the last hour for a page; a share of fewer is not meaningful."""
MIN_USUAL_TASKS: Final = 100
"""Least tasks in the week before for a usual share; without one, failures raise tickets, not pages."""
SHARE: Final = 0.10
"""Least share of failures that pages, however rare failures were before."""
TICKET_SHARE: Final = 0.30
"""An agent that breaks this share of its runs needs a ticket, whatever its usual share."""
STILL: Final = 0.5
"""A firing alert continues above this fraction of its threshold, so that chance does not repeat it."""
RISE: Final = 2
"""A page needs this many times the usual share, or a share above the middle between usual and 100 %."""
DEVIATIONS: Final = 4
"""How far above the usual failures must be for a page. Twice the difference of the square roots of two counts
has a standard deviation of 1, even for small counts. An alert evaluated every 30 seconds reaches three by
chance within weeks, and four once in about 2,000 weeks per agent (``tests/unit/test_alert_chance.py``)."""
MAX_LAG_S: Final = 300
"""Analyses start within a minute of silence; a lag of five minutes means a queue."""
MAX_FULLNESS: Final = 0.8
"""Share of a queue's capacity; at 1 requests are refused."""
MAX_AGE_S: Final = 600
"""Age of the oldest item to be forwarded: twice the time after which ``BlamespanBackendAway`` fires."""
MAX_DEATHS: Final = 5
"""Deaths of analysis processes in an hour; one trace that crashes its process causes three."""

Rule = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """Everything in seconds; the defaults are what is shipped."""

    recent: int = 3600
    """Window over which failures are counted."""
    now: int = 900
    """Window that shows whether failures still occur."""
    day: int = 24 * 3600
    """Period of a daily rhythm."""
    usual: int = 7 * 24 * 3600
    """Window of an agent's usual share, and period of a weekly rhythm."""
    settling: int = 120
    """``for`` of alerts on agents: ``increase`` overestimates young series."""
    pending: int = 300
    """``for`` of alerts on the service itself."""
    keep_firing: int = 900
    """``keep_firing_for``: an alert outlives its cause, so that it does not flap."""
    brief: int = 900
    """Window of the alerts on lag and losses."""
    interval: int = 30
    """Evaluation interval of the rules."""

    def __post_init__(self) -> None:
        """Reject durations that Prometheus would misread."""
        for each in fields(self):
            if getattr(self, each.name) < 1:
                raise ValueError(f"{each.name}: expected whole seconds, at least 1")


SHIPPED: Final = Durations()


def rule_file(durations: Durations = SHIPPED) -> dict[str, Any]:
    """Return the rule file's content: the alerts, then what is recorded for them."""
    alerts = [*_agents(durations), *_news(durations), *_surely(durations), *_line(durations)]
    alerts += _service(durations)
    interval = _span(durations.interval)
    groups = (("blamespan", alerts), ("blamespan-shares", list(_recorded(durations))))
    return {"groups": [{"name": name, "interval": interval, "rules": rules} for name, rules in groups]}


def inlined(expr: str, durations: Durations = SHIPPED) -> str:
    """Return an expression with the recorded series it needs put in."""
    for rule in reversed(list(_recorded(durations))):
        expr = expr.replace(rule["record"], f"({rule['expr']})")
    return expr


def write(durations: Durations = SHIPPED) -> str:
    """Return the rule file as YAML."""
    return _HEAD + yaml.dump(rule_file(durations), Dumper=_Readable, sort_keys=False, width=1000)


class _Readable(yaml.SafeDumper):
    """Writes several lines as several lines."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Readable.add_representer(str, _text)


F: Final = "blamespan:agent_failures:recent"
"""Recorded: runs of the last hour that an agent broke."""
T: Final = "blamespan:agent_tasks:recent"
"""Recorded: runs of the last hour that it took part in."""
USUAL_TASKS: Final = "blamespan:agent_tasks:usual"
"""Recorded: its runs of the week before that hour, where they are enough to tell a share by."""
USUAL: Final = "blamespan:agent_share:usual"
"""Recorded: the share of those that it broke."""


F_NOW: Final = "blamespan:agent_failures:now"
"""Recorded: runs of the last quarter of an hour that it broke."""
_KEEPS_FAILING: Final = "BlamespanAgentKeepsFailing"
_FAILURE_SHARE: Final = "BlamespanAgentFailureShare"
NOW: Final = "blamespan:agent_share:now"
"""Recorded: the share of that quarter's runs that it broke."""


def _recorded(durations: Durations) -> Iterator[Rule]:
    """Yield the recording rules; without them each alert would sum a week of samples every 30 seconds."""
    recent, now = _span(durations.recent), _span(durations.now)
    week = f"[{_span(durations.usual)}:{recent}]"
    yield {"record": F, "expr": _failures(recent)}
    yield {"record": T, "expr": _tasks(recent)}
    yield {"record": F_NOW, "expr": _failures(now)}
    yield {"record": NOW, "expr": f"{F_NOW} / {_tasks(now)}"}
    before = f"{week} offset {recent}"
    yield {"record": USUAL_TASKS, "expr": f"sum_over_time({T}{before}) >= {MIN_USUAL_TASKS}"}
    # One more of two, so that an agent which never failed has a share to compare with.
    yield {"record": USUAL, "expr": f"(sum_over_time({F}{before}) + 1) / ({USUAL_TASKS} + 2)"}


def _agents(durations: Durations) -> Iterator[Rule]:
    recent, now = _span(durations.recent), _span(durations.now)
    # Of the few runs of a quarter of an hour a single one may break after all was mended.
    goes_on = (
        f"{NOW} > {SHARE} and ({F_NOW} >= 2 or {NOW} >= 0.5)  # it still happens\n"
        "# Runs failed in this service: labels on old runs alone only move failures between agents.\n"
        f"and on (service) sum by (service) ({_net('failures', recent)}) >= {MIN_FAILURES}"
    )
    yield {
        "alert": _KEEPS_FAILING,
        "expr": f"floor({F}) >= {MIN_FAILURES}  # rounded down: increase extrapolates\n"
        f"and {_stays(f'{F} / {T}', TICKET_SHARE, _KEEPS_FAILING)}\n"
        f"and {goes_on}",
        "for": _span(durations.settling),
        "keep_firing_for": _span(durations.keep_firing),
        "labels": {"severity": "ticket"},
        "annotations": _annotations(
            "{{ $labels.agent }} of {{ $labels.service }} keeps failing",
            f"It broke about {{{{ $value }}}} runs within {recent}, over {TICKET_SHARE:.0%} of its own,"
            f" and some within the last {now}.",
            _RUNS,
        ),
    }
    yield {
        "alert": _FAILURE_SHARE,
        "expr": _risen(durations, goes_on),
        "for": _span(durations.settling),
        "keep_firing_for": _span(durations.keep_firing),
        "labels": {"severity": "page"},
        "annotations": _annotations(
            "{{ $labels.agent }} of {{ $labels.service }} breaks {{ $value | humanizePercentage }} of tasks,"
            " more than it did",
            f"Over {SHARE:.0%} of at least {MIN_TASKS} tasks within {recent} and within the last {now},"
            f" and over {RISE} times its usual share of {_days(durations.usual)}.",
            _RUNS,
        ),
    }


def _risen(durations: Durations, goes_on: str) -> str:
    """Return the condition: a share that is high, above usual by more than chance, current and no rhythm."""
    share = f"{F} / {T}"
    above = f"2 * ({F} ^ 0.5 - ({T} * {USUAL}) ^ 0.5) / (1 + {T} / {USUAL_TASKS}) ^ 0.5"
    at_this_time = [_share_before(durations, ago) for ago in (durations.day, 2 * durations.day)]
    daily = " and ".join(f"{share} < {RISE} * {before}" for before in at_this_time)
    weekly = f"{share} < {RISE} * {_share_before(durations, durations.usual)}"
    return "\n".join(
        (
            f"{share} > {SHARE}",
            f"and floor({T}) >= {MIN_TASKS} and floor({F}) >= {MIN_FAILURES}",
            f"and ({share} > {RISE} * {USUAL} or {share} > (1 + {USUAL}) / 2)",
            f"and {_stays(above, DEVIATIONS, _FAILURE_SHARE)}  # more than chance",
            f"and {goes_on}",
            "# Unless it is a rhythm: as high at this time yesterday and the day before, or a week ago.",
            f"unless ({daily})",
            f"unless ({weekly})",
        )
    )


def _stays(value: str, limit: float, alert: str) -> str:
    """Return the condition: a value over its limit, or over half of it while the alert already fires."""
    fires = f'ALERTS{{alertname="{alert}", alertstate="firing"}}'
    return f"({value} > {limit} or {value} > {STILL * limit:g} and on (service, agent) {fires})"


def _share_before(durations: Durations, ago: int) -> str:
    """Return the largest hourly share around this time, ``ago`` seconds earlier."""
    hours = f"{_span(2 * durations.recent)}:{_span(durations.recent)}"
    around = f"[{hours}] offset {_span(ago - durations.recent)}"
    return f"max_over_time(({F} / ({T} >= {MIN_TASKS})){around})"


def _news(durations: Durations) -> Iterator[Rule]:
    """Yield the alerts on issues and watches; each fires as long as its state lasts."""
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
        # An alarm stands until runs show that it is over: without any there is nobody to page for.
        "expr": f"max by (service, agent) (blamespan_agent_alarm) > 0\nunless on (service, agent) {T} == 0",
        "keep_firing_for": _span(durations.keep_firing),
        "labels": {"severity": "page"},
        "annotations": _annotations(
            "{{ $labels.agent }} of {{ $labels.service }} breaks more runs than it used to",
            "blamespan's own alarm tests every run; at most one week in twenty has a false alarm.",
            _RUNS,
        ),
    }


def _surely(durations: Durations) -> Iterator[Rule]:
    """Yield the alert that allows for the method's errors, estimated from labels."""
    yield {
        "alert": "BlamespanAgentSurelyFails",
        "expr": f"max by (service, agent) (blamespan_agent_share_low) > {SHARE}",
        "for": _span(durations.pending),
        "keep_firing_for": _span(durations.keep_firing),
        "labels": {"severity": "ticket"},
        "annotations": _annotations(
            "{{ $labels.agent }} of {{ $labels.service }} breaks at least"
            " {{ $value | humanizePercentage }} of its runs",
            "Over seven days: the lower end of a 95 % interval that allows for the method's errors.",
            _RUNS,
        ),
    }


def _line(durations: Durations) -> Iterator[Rule]:
    """Yield the alerts on receiving and forwarding, the most urgent first."""
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
            "blamespan keeps them on disk until it answers, or until the queue is full. The log line"
            " `backend away` names the address.",
        ),
    }
    yield {
        "alert": "BlamespanForwardingBehind",
        "expr": f"max by (signal) (blamespan_queue_oldest_age_seconds) > {MAX_AGE_S}",
        "for": pending,
        "labels": {"severity": "ticket"},
        "annotations": _annotations(
            "{{ $labels.signal }} reach the backend {{ $value | humanizeDuration }} late",
            "The backend is away, asks to wait, or is too slow: see blamespan_send_failures_total.",
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
            "At 100 % requests are refused, and senders must keep them. Repair the backend, or raise"
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
            "blamespan's log says why; usually a limit on size, or a schema.",
        ),
    }
    yield {
        "alert": "BlamespanVerdictsRefused",
        "expr": f"sum by (signal) (increase(blamespan_verdicts_refused_total[{brief}])) > 0",
        "keep_firing_for": _span(durations.keep_firing),
        "labels": {"severity": "ticket"},
        "annotations": _annotations(
            "the backend refuses verdicts ({{ $labels.signal }}) for good",
            "These verdicts are only on blamespan's page. The log line `backend refused a verdict` says why.",
        ),
    }
    yield {
        "alert": "BlamespanBudgetExhausted",
        "expr": f"sum(increase(blamespan_budget_refusals_total[{recent}])) > 0",
        "keep_firing_for": _span(durations.keep_firing),
        "labels": {"severity": "ticket"},
        "annotations": _annotations(
            "blamespan's hourly budget for models is used up",
            "Until there is room again, runs are analysed without a model: BLAMESPAN_BUDGET_USD_PER_HOUR.",
        ),
    }
    yield {
        "alert": "BlamespanAnalysisProcessDies",
        "expr": f"sum(increase(blamespan_analysis_process_deaths_total[{recent}])) > {MAX_DEATHS}",
        "keep_firing_for": _span(durations.keep_firing),
        "labels": {"severity": "ticket"},
        "annotations": _annotations(
            "blamespan's process for analyses keeps dying",
            "New processes take over its runs. Look in the log for the trace, and check the memory.",
        ),
    }
    yield {
        "alert": "BlamespanCertificateNotRenewed",
        "expr": f"sum(increase(blamespan_tls_renewals_failed_total[{recent}])) > 0",
        "keep_firing_for": _span(durations.keep_firing),
        "labels": {"severity": "ticket"},
        "annotations": _annotations(
            "blamespan cannot use its renewed certificate",
            "The old certificate is used until it expires. The log says what is wrong with the files.",
        ),
    }
    yield {
        "alert": "BlamespanDown",
        "expr": f"up{_TARGETS} == 0\nor absent(up{_TARGETS})",
        "for": pending,
        "labels": {"severity": "page"},
        "annotations": _annotations(
            "blamespan does not answer",
            "Prometheus cannot scrape it, or has no target whose job has blamespan in its name."
            " Meanwhile no failure raises an alert.",
        ),
    }


_TARGETS: Final = '{job=~".*blamespan.*"}'
"""blamespan's scrape targets, whatever a release or a job is called; the chart puts its own release here."""
BASE: Final = "{{ or $externalLabels.blamespan_url `http://localhost:8500` }}"
"""Where links begin."""
_RUNS: Final = (
    "/runs?status=attributed&service={{ $labels.service | urlquery }}&agent={{ $labels.agent | urlquery }}"
)


def _annotations(summary: str, description: str, path: str = "/health") -> dict[str, str]:
    return {"summary": summary, "description": description, "link": BASE + path}


def _failures(window: str) -> str:
    return f"clamp_min(sum by (service, agent) ({_net('failures', window)}), 0)"


def _tasks(window: str) -> str:
    return f"clamp_min(sum by (service, agent) ({_net('tasks', window)}), 0)"


def _net(what: str, window: str) -> str:
    """Return what was counted less what corrections took back, in this window."""
    name = f"blamespan_agent_{what}"
    return f"increase({name}_total[{window}]) - increase({name}_withdrawn_total[{window}])"


def _days(seconds: int) -> str:
    return f"{seconds // 86_400} days" if seconds % 86_400 == 0 else _span(seconds)


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
