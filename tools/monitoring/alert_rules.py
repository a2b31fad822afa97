"""``python -m tools.monitoring.alert_rules``: writes the rules for Prometheus, and the Helm chart's copy.

The shipped rules, promtool's tests and the live test, in which an hour takes
seconds, use the same template with different ``Durations``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from tools.monitoring.alert_text import BASE, SHIPPED, Durations, Rule, alert_texts, span
from tools.monitoring.service_alerts import alerts_on_line, alerts_on_service

__all__ = ["BASE", "SHIPPED", "Durations", "Rule"]

_DEPLOY: Final = Path(__file__).parents[2] / "deploy"
FILE: Final = _DEPLOY / "prometheus" / "rules" / "blamespan.yaml"
CHART_FILE: Final = _DEPLOY / "helm" / "blamespan" / "files" / "rules.yaml"
"""A copy of ``FILE``: a chart can include only files from its own folder."""
_HEAD: Final = """\
# Alert rules of blamespan. Made by `python -m tools.monitoring.alert_rules`; do not edit.
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
"""Fewest failures in the last hour for a page. Fewer are reported as issues."""
MIN_TASKS: Final = 20
"""Fewest tasks in the last hour for a page; with fewer, a share is not meaningful."""
MIN_USUAL_TASKS: Final = 100
"""Fewest tasks in the preceding week for a usual share; without one, failures raise tickets, not pages."""
SHARE: Final = 0.10
"""Lowest share of failures that pages, even if failures were rare before."""
TICKET_SHARE: Final = 0.30
"""An agent that breaks this share of its runs needs a ticket, whatever its usual share."""
STILL: Final = 0.5
"""A firing alert continues above this fraction of its threshold, so that chance does not repeat it."""
RISE: Final = 2
"""A page needs this many times the usual share, or a share above halfway between the usual share and 100
%."""
DEVIATIONS: Final = 4
"""Deviation from the usual failures needed for a page. Twice the difference of the square roots of two counts
has a standard deviation of 1, even for small counts. An alert evaluated every 30 seconds reaches three by
chance within weeks, and four once in about 2,000 weeks per agent (``tests/unit/test_alert_chance.py``)."""


def rule_file(durations: Durations = SHIPPED) -> dict[str, Any]:
    """Return the rule file's content: the alerts, then their recording rules."""
    alerts = [
        *_agents(durations),
        *_suspected(durations),
        *_news(durations),
        *_surely(durations),
        *_releases(durations),
    ]
    alerts += alerts_on_line(durations)
    alerts += alerts_on_service(durations)
    interval = span(durations.interval)
    groups = (("blamespan", alerts), ("blamespan-shares", list(_recorded(durations))))
    return {"groups": [{"name": name, "interval": interval, "rules": rules} for name, rules in groups]}


def inlined(expr: str, durations: Durations = SHIPPED) -> str:
    """Return an expression with its recorded series inlined."""
    for rule in reversed(list(_recorded(durations))):
        expr = expr.replace(rule["record"], f"({rule['expr']})")
    return expr


def write(durations: Durations = SHIPPED) -> str:
    """Return the rule file as YAML."""
    return _HEAD + yaml.dump(rule_file(durations), Dumper=_Readable, sort_keys=False, width=1000)


class _Readable(yaml.SafeDumper):
    """YAML dumper that keeps line breaks."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Readable.add_representer(str, _text)


F: Final = "blamespan:agent_failures:recent"
"""Recorded series: runs of the last hour that an agent broke."""
T: Final = "blamespan:agent_tasks:recent"
"""Recorded series: runs of the last hour that it took part in."""
USUAL_TASKS: Final = "blamespan:agent_tasks:usual"
"""Recorded series: its runs of the week before that hour, if there are enough for a share."""
USUAL: Final = "blamespan:agent_share:usual"
"""Recorded series: the share of those that it broke."""


F_NOW: Final = "blamespan:agent_failures:now"
"""Recorded series: runs of the last 15 minutes that it broke."""
_KEEPS_FAILING: Final = "BlamespanAgentKeepsFailing"
_FAILURE_SHARE: Final = "BlamespanAgentFailureShare"
_SUSPECTED: Final = "BlamespanAgentKeepsBeingSuspected"
NOW: Final = "blamespan:agent_share:now"
"""Recorded series: the share of the runs of those 15 minutes that it broke."""


def _recorded(durations: Durations) -> Iterator[Rule]:
    """Yield the recording rules; without them each alert would sum a week of samples every 30 seconds."""
    recent, now = span(durations.recent), span(durations.now)
    week = f"[{span(durations.usual)}:{recent}]"
    yield {"record": F, "expr": _failures(recent)}
    yield {"record": T, "expr": _tasks(recent)}
    yield {"record": F_NOW, "expr": _failures(now)}
    yield {"record": NOW, "expr": f"{F_NOW} / {_tasks(now)}"}
    before = f"{week} offset {recent}"
    yield {"record": USUAL_TASKS, "expr": f"sum_over_time({T}{before}) >= {MIN_USUAL_TASKS}"}
    # Plus one failure in two runs, so that an agent that never failed has a share to compare with.
    yield {"record": USUAL, "expr": f"(sum_over_time({F}{before}) + 1) / ({USUAL_TASKS} + 2)"}


def _agents(durations: Durations) -> Iterator[Rule]:
    recent, now = span(durations.recent), span(durations.now)
    # Of the few runs in 15 minutes, a single one may fail even after the repair.
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
        "for": span(durations.settling),
        "keep_firing_for": span(durations.keep_firing),
        "labels": {"severity": "ticket"},
        "annotations": alert_texts(
            "{{ $labels.agent }} of {{ $labels.service }} keeps failing",
            f"It broke about {{{{ $value }}}} runs within {recent}, over {TICKET_SHARE:.0%} of its own,"
            f" and some within the last {now}.",
            _RUNS,
        ),
    }
    yield {
        "alert": _FAILURE_SHARE,
        "expr": _risen(durations, goes_on),
        "for": span(durations.settling),
        "keep_firing_for": span(durations.keep_firing),
        "labels": {"severity": "page"},
        "annotations": alert_texts(
            "{{ $labels.agent }} of {{ $labels.service }} breaks {{ $value | humanizePercentage }} of tasks,"
            " more than it did",
            f"Over {SHARE:.0%} of at least {MIN_TASKS} tasks within {recent} and within the last {now},"
            f" and over {RISE} times its usual share of {_days(durations.usual)}.",
            _RUNS,
        ),
    }


def _risen(durations: Durations, goes_on: str) -> str:
    """Return the condition: the share is high, significantly above usual, current, and not a daily rhythm.

    Once it pages, a high share is enough to go on. So it ends with the last failures, as the ticket that it
    inhibits does, and not before it: the ticket would then be sent as news of a problem that is over.
    """
    share = f"{F} / {T}"
    above = f"2 * ({F} ^ 0.5 - ({T} * {USUAL}) ^ 0.5) / (1 + {T} / {USUAL_TASKS}) ^ 0.5"
    at_this_time = [_share_before(durations, ago) for ago in (durations.day, 2 * durations.day)]
    daily = " and ".join(f"{share} < {RISE} * {before}" for before in at_this_time)
    weekly = f"{share} < {RISE} * {_share_before(durations, durations.usual)}"
    return "\n".join(
        (
            "(",
            f"  {share} > {SHARE}",
            f"  and floor({T}) >= {MIN_TASKS} and floor({F}) >= {MIN_FAILURES}",
            f"  and ({share} > {RISE} * {USUAL} or {share} > (1 + {USUAL}) / 2)",
            f"  and {above} > {DEVIATIONS}  # more than chance",
            f"  or {share} > {SHARE} and on (service, agent) {_firing(_FAILURE_SHARE)}",
            ")",
            f"and {goes_on}",
            "# Unless it is a rhythm: as high at this time yesterday and the day before, or a week ago.",
            f"unless ({daily})",
            f"unless ({weekly})",
        )
    )


def _suspected(durations: Durations) -> Iterator[Rule]:
    """Yield the alert on an agent whose runs report success and look wrong, again and again."""
    recent, now = span(durations.recent), span(durations.now)
    found, found_now = _suspicions(recent), _suspicions(now)
    yield {
        "alert": _SUSPECTED,
        "expr": f"floor({found}) >= {MIN_FAILURES}\n"
        f"and {_stays(f'{found} / {T}', TICKET_SHARE, _SUSPECTED)}\n"
        f"and floor({found_now}) >= 1  # it still happens",
        "for": span(durations.settling),
        "keep_firing_for": span(durations.keep_firing),
        "labels": {"severity": "ticket"},
        "annotations": alert_texts(
            "{{ $labels.agent }} of {{ $labels.service }} keeps giving results that look wrong",
            f"About {{{{ $value }}}} runs within {recent} ended normally and are suspected, over"
            f" {TICKET_SHARE:.0%} of its own. They do not count as failures until a person confirms them.",
            _RUNS.replace("attributed", "suspected"),
        ),
    }


def _suspicions(window: str) -> str:
    return f"clamp_min(sum by (service, agent) ({_net('suspicions', window)}), 0)"


def _stays(value: str, limit: float, alert: str) -> str:
    """Return the condition: the value exceeds its limit, or half of it while the alert is firing."""
    return f"({value} > {limit} or {value} > {STILL * limit:g} and on (service, agent) {_firing(alert)})"


def _firing(alert: str) -> str:
    return f'ALERTS{{alertname="{alert}", alertstate="firing"}}'


def _share_before(durations: Durations, ago: int) -> str:
    """Return the largest hourly share around this time, ``ago`` seconds earlier."""
    hours = f"{span(2 * durations.recent)}:{span(durations.recent)}"
    around = f"[{hours}] offset {span(ago - durations.recent)}"
    return f"max_over_time(({F} / ({T} >= {MIN_TASKS})){around})"


def _news(durations: Durations) -> Iterator[Rule]:
    """Yield the alerts on issues and watches; each fires while its state lasts."""
    told = (
        ("BlamespanNewIssue", "new", "fails in a way that was never seen before"),
        ("BlamespanRegressedIssue", "regressed", "fails again in a way that was resolved"),
    )
    for alert, state, summary in told:
        yield {
            "alert": alert,
            # One alert per issue, even if several replicas of the service show it.
            "expr": f'max by (service, agent, mode, issue) (blamespan_issue_standing{{state="{state}"}}) > 0',
            "keep_firing_for": span(durations.keep_firing),
            "labels": {"severity": "ticket"},
            "annotations": alert_texts(
                f"{{{{ $labels.agent }}}} of {{{{ $labels.service }}}} {summary}",
                "Issue {{ $labels.issue }}, {{ $labels.mode }}; until it is a day old, resolved or muted.",
                _RUNS,
            ),
        }
    yield {
        "alert": "BlamespanAgentFailsMore",
        # An alarm stays until runs show that it is over; without runs, nobody needs to be paged.
        "expr": f"max by (service, agent) (blamespan_agent_alarm) > 0\nunless on (service, agent) {T} == 0",
        "keep_firing_for": span(durations.keep_firing),
        "labels": {"severity": "page"},
        "annotations": alert_texts(
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
        "for": span(durations.pending),
        "keep_firing_for": span(durations.keep_firing),
        "labels": {"severity": "ticket"},
        "annotations": alert_texts(
            "{{ $labels.agent }} of {{ $labels.service }} breaks at least"
            " {{ $value | humanizePercentage }} of its runs",
            "Over seven days: the lower end of a 95 % interval that allows for the method's errors.",
            _RUNS,
        ),
    }


def _releases(durations: Durations) -> Iterator[Rule]:
    """Yield the alert on a workflow that fails more often since its newest version."""
    yield {
        "alert": "BlamespanWorkflowRegressed",
        "expr": "max by (service, workflow, release) (blamespan_workflow_regressed) > 0",
        "for": span(durations.pending),
        "keep_firing_for": span(durations.keep_firing),
        "labels": {"severity": "ticket"},
        "annotations": alert_texts(
            "{{ $labels.workflow }} of {{ $labels.service }} fails more often since its newest version",
            "Its prompts, tools, models or release ({{ $labels.release }}) changed, and more of its runs fail"
            " than before. `blamespan workflows` compares the versions.",
            "/runs?service={{ $labels.service | urlquery }}",
        ),
    }


_RUNS: Final = (
    "/runs?status=attributed&service={{ $labels.service | urlquery }}&agent={{ $labels.agent | urlquery }}"
)


def _failures(window: str) -> str:
    return f"clamp_min(sum by (service, agent) ({_net('failures', window)}), 0)"


def _tasks(window: str) -> str:
    return f"clamp_min(sum by (service, agent) ({_net('tasks', window)}), 0)"


def _net(what: str, window: str) -> str:
    """Return the expression for counts minus withdrawn counts in this window."""
    name = f"blamespan_agent_{what}"
    return f"increase({name}_total[{window}]) - increase({name}_withdrawn_total[{window}])"


def _days(seconds: int) -> str:
    return f"{seconds // 86_400} days" if seconds % 86_400 == 0 else span(seconds)


if __name__ == "__main__":
    for file in (FILE, CHART_FILE):
        file.parent.mkdir(exist_ok=True)
        file.write_text(write(), encoding="utf-8")
