"""A notice as Slack's incoming webhooks take it, and what is compatible with them. Pure.

Slack asks for ``&``, ``<`` and ``>`` to be escaped, which is all that its markup needs to
be inert (docs.slack.dev, "Formatting message text"). Others, such as Mattermost, also
read Markdown, ``@channel`` and bare addresses, so these are broken with a space of no width.
"""

from __future__ import annotations

import json
from typing import Final

from analyzer.notifiers.links import Links
from analyzer.present import plain
from analyzer.recurrence.notice import Notice, NoticeKind

_WORDS: Final = {
    NoticeKind.NEW: "New issue",
    NoticeKind.REGRESSED: "Came back",
    NoticeKind.FAILS_MORE: "Alarm",
    NoticeKind.CALM_AGAIN: "Calm again",
    NoticeKind.MORE: "Held back",
}
_GAP: Final = "\u200b"
_TITLE: Final = 200
_TEXT: Final = 1_000


def slack_message(notice: Notice, links: Links) -> bytes:
    """Return the body: one line with a link, and one with what the verdict says, where that may go out."""
    title = escaped(notice.title, _TITLE)
    link = links.run(notice.run_id) or links.issues
    head = f"<{link}|{title}>" if link else title
    where = f" ({escaped(notice.service, 100)})" if notice.service else ""
    lines = [f"{_WORDS[notice.kind]}: {head}{where}"]
    if notice.text:
        lines.append(f"> {escaped(notice.text, _TEXT)}")
    return json.dumps({"text": "\n".join(lines), "unfurl_links": False, "unfurl_media": False}).encode()


def escaped(text: str, limit: int) -> str:
    """Return one line of text that is nothing but text to Slack and its like."""
    shown = plain(text, limit)
    for char, inert in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("`", "'")):
        shown = shown.replace(char, inert)
    return shown.replace("@", f"@{_GAP}").replace("://", f":{_GAP}//").replace("](", f"]{_GAP}(")
