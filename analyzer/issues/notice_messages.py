"""A notice in the formats of webhooks, of Slack and of apprise, with links to blamespan's own pages. Pure.

Slack requires ``&``, ``<`` and ``>`` to be escaped, which is enough to neutralise its markup (docs.slack.dev,
"Formatting message text"). Others, such as Mattermost, also read Markdown, ``@channel`` and bare addresses,
so these are broken up with a zero-width space. A service behind apprise may read any markup: angle brackets
become look-alikes, which no markup reads.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

from analyzer.inquiry.present import plain
from analyzer.issues.recurrence.issue import Notice, NoticeKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Makes links below one base address."""

    base: str
    """Base URL of the web page as users reach it, without a trailing slash; empty for no links."""

    def run(self, run_id: str) -> str:
        """Return the link to a run; the id is escaped, so that it stays one path segment."""
        part = quote(run_id, safe="", errors="replace")
        return f"{self.base}/runs/{part}" if self.base and run_id else ""

    @property
    def issues(self) -> str:
        """The link to the page of issues."""
        return f"{self.base}/issues" if self.base else ""


_WORDS: Final = {
    NoticeKind.NEW: "New issue",
    NoticeKind.REGRESSED: "Came back",
    NoticeKind.FAILS_MORE: "Alarm",
    NoticeKind.CALM_AGAIN: "Calm again",
    NoticeKind.EARLY: "Early warning",
    NoticeKind.MORE: "Held back",
}
_GAP: Final = "\u200b"
_TITLE: Final = 200
_TEXT: Final = 1_000


def slack_message(notice: Notice, links: Links) -> bytes:
    """Return the body: one line with a link, and one with the verdict's prose, if it may be sent."""
    title = escaped(notice.title, _TITLE)
    link = links.run(notice.run_id) or links.issues
    head = f"<{link}|{title}>" if link else title
    where = f" ({escaped(notice.service, 100)})" if notice.service else ""
    lines = [f"{_WORDS[notice.kind]}: {head}{where}"]
    if notice.text:
        lines.append(f"> {escaped(notice.text, _TEXT)}")
    return json.dumps({"text": "\n".join(lines), "unfurl_links": False, "unfurl_media": False}).encode()


def escaped(text: str, limit: int) -> str:
    """Return one line that Slack and compatible services show as plain text."""
    return _inert(text, limit, {"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def _inert(text: str, limit: int, brackets: dict[str, str]) -> str:
    shown = plain(text, limit)
    for char, inert in (brackets | {"`": "'"}).items():
        shown = shown.replace(char, inert)
    return shown.replace("@", f"@{_GAP}").replace("://", f":{_GAP}//").replace("](", f"]{_GAP}(")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainMessage:
    """A message without markup; neither part is empty."""

    title: str
    body: str


def plain_message(notice: Notice, links: Links) -> PlainMessage:
    """Return what changed, where and why, and the link on a line of its own."""
    brackets = {"<": "\u2039", ">": "\u203a"}  # single angle quotation marks
    where = f" ({_inert(notice.service, 100, brackets)})" if notice.service else ""
    lines = [
        f"{_inert(notice.title, _TITLE, brackets)}{where}",
        _inert(notice.text, _TEXT, brackets),
        links.run(notice.run_id) or links.issues,
    ]
    return PlainMessage(
        title=f"blamespan: {_WORDS[notice.kind]}", body="\n".join(line for line in lines if line)
    )


VERSION = 1
"""Version of the document; adding a key keeps it, changing a key's meaning increases it."""


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
