"""Metrics of issues, alarms, workflows and notices; part of ``metric_table.METRICS``."""

from __future__ import annotations

from typing import Final

from analyzer.telemetry.metric import counter, gauge

MAX_WORKFLOWS: Final = 50
"""Number of workflows, those with the latest runs, that have series."""
MAX_STANDING: Final = 100
"""Number of the newest issues and of the newest alarms that have a series of their own."""

ISSUES: Final = gauge(
    "blamespan_issues{state}", "{issue}", "Recurring failures by state: new, ongoing, resolved, regressed."
)
STANDING: Final = gauge(
    "blamespan_issue_standing{service, agent, mode, issue, state}",
    "{issue}",
    "1 for each new or regressed issue that is not muted; only the newest issues.",
    bound=MAX_STANDING,
)
ALARM: Final = gauge(
    "blamespan_agent_alarm{service, agent}",
    "{alarm}",
    "1 while an agent is blamed more often than before; only the newest alarms.",
    bound=MAX_STANDING,
)
SHARE_LOW: Final = gauge(
    "blamespan_agent_share_low{service, agent}",
    "1",
    "Lower bound of the 95 % interval of the agent's failure rate over seven days, corrected for the method's"
    " errors by people's labels. No series without labels.",
    bound=MAX_STANDING,
)
WORKFLOW_REGRESSED: Final = gauge(
    "blamespan_workflow_regressed{service, workflow, release}",
    "{alarm}",
    "1 while the newest version of a workflow fails more often than the runs before it; read every five"
    " minutes.",
    bound=MAX_WORKFLOWS,
)
WORKFLOW_PASSED: Final = gauge(
    "blamespan_workflow_passed_share{service, workflow}",
    "1",
    "Share of a workflow's newest 100 runs that passed, counting only runs whose outcome an evaluator, a"
    " check or a person stated; read every five minutes.",
    bound=MAX_WORKFLOWS,
)
REPEATED: Final = counter(
    "blamespan_issue_repetitions",
    "{run}",
    "Failed runs of an issue that was already announced; they cause no new notification.",
)
NOTICES: Final = tuple(
    counter(f"blamespan_notices_{what}{{receiver}}", unit, meaning)
    for what, unit, meaning in (
        ("sent", "{message}", "Messages that a receiver accepted."),
        ("failed", "{message}", "Failed sends of messages; each is retried."),
        ("merged", "{notice}", "Notices sent within another message because of the hourly limit."),
        ("dropped", "{notice}", "Notices dropped: permanently rejected, or older than a day."),
    )
)
