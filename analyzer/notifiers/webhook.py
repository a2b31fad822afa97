"""A notice as JSON for a program of the user's own. Pure."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from analyzer.notifiers.links import Links
from analyzer.recurrence.notice import Notice

VERSION = 1
"""Of the document; a key may be added to it, one that changes its meaning makes it another."""


def webhook_message(notice: Notice, links: Links) -> bytes:
    """Return the body, always with the same keys."""
    document = {
        "version": VERSION,
        "kind": notice.kind.value,
        "at": datetime.fromtimestamp(notice.at_ns / 1e9, tz=UTC).isoformat(timespec="milliseconds"),
        "tenant": notice.tenant,
        "service": notice.service,
        "agent": notice.agent,
        "title": notice.title,
        "mode": notice.mode,
        "count": notice.count,
        "issue_id": notice.issue_id,
        "run_id": notice.run_id,
        "run_url": links.run(notice.run_id),
        "issues_url": links.issues,
        "text": notice.text,
    }
    return json.dumps(document).encode()
