"""Who is told of issues and alarms without a Prometheus between: webhook, Slack, Alertmanager.

A receiver's address comes from the settings and from nowhere else; what comes from a
trace is text, cut short and escaped for whoever reads it. Telemetry never waits for a
receiver: what is owed stands in the store (``courier.py``) or follows from it
(``standing.py``), and is sent from a task of its own.
"""

from __future__ import annotations

from analyzer.notifiers.courier import Courier, CourierRules
from analyzer.notifiers.links import Links
from analyzer.notifiers.sending import Poster, opened_session
from analyzer.notifiers.slack import slack_message
from analyzer.notifiers.standing import Standing
from analyzer.notifiers.tally import NoticeTally
from analyzer.notifiers.webhook import webhook_message

__all__ = [
    "Courier",
    "CourierRules",
    "Links",
    "NoticeTally",
    "Poster",
    "Standing",
    "opened_session",
    "slack_message",
    "webhook_message",
]
