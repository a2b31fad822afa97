"""The receivers of notices that ``notify_url`` names: how each gets its messages, and in which format.

| URL | what is sent | needs |
|---|---|---|
| ``https://hooks.slack.com/…`` | a Slack message | nothing |
| other ``https://…``, ``http://…`` | JSON, signed (``Poster``) | nothing |
| any other scheme | a message without markup, through apprise | extra ``notify`` |

A URL is a secret. A receiver's name is made from its kind and its position: it is what logs, metrics,
``doctor`` and the store show. Addresses come only from the settings, never from a trace.

Messages link to blamespan's own pages. Slack requires ``&``, ``<`` and ``>`` to be escaped, which is enough
to neutralise its markup (docs.slack.dev, "Formatting message text"). Others, such as Mattermost, also read
Markdown, ``@channel`` and bare addresses, so these are broken up with a zero-width space. A service behind
apprise may read any markup: angle brackets become look-alikes, which no markup reads.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Thread
from typing import Any, Final, TypeAlias
from urllib.parse import quote, urlsplit

import aiohttp

from analyzer.inquiry.present import plain
from analyzer.issues.counting import CountingRules
from analyzer.issues.notifier import Answer, Fate, Poster, Send
from analyzer.issues.recurrence import Notice, NoticeKind
from collector_processor.settings import Settings, SettingsError
from collector_processor.settings.value_types import is_http

INSTALL_NOTIFY: Final = "pip install '.[server,notify]' in a checkout"
_SLACK: Final = frozenset({"hooks.slack.com", "hooks.slack-gov.com"})

Open: TypeAlias = Callable[[aiohttp.ClientSession], Send]


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """A receiver of notices."""

    name: str
    """Name under which its notices are stored and counted; not secret."""
    open: Open = field(repr=False)


def receiver_names(settings: Settings) -> Mapping[str, str]:
    """Return the receivers' URLs by name, in the order of the setting. The URLs are secret."""
    found: dict[str, str] = {}
    seen: Counter[str] = Counter()
    for url in settings.notify_urls:
        kind = _kind(url)
        seen[kind] += 1
        found[kind if seen[kind] == 1 else f"{kind}-{seen[kind]}"] = url
    return found


def receivers_of(settings: Settings) -> tuple[Receiver, ...]:
    """Return the receivers, ready to be opened.

    Raises:
        SettingsError: a URL needs apprise, which is not installed, or apprise does not accept it.
    """
    links = Links(base=(settings.web_url or "").rstrip("/"))
    return tuple(
        Receiver(name=name, open=_opener(name, url, links, settings.notify_secret))
        for name, url in receiver_names(settings).items()
    )


def counting_rules(settings: Settings) -> CountingRules:
    """Return the rules for counting runs and notifying receivers."""
    return CountingRules(is_fair_sample=settings.is_fair_sample, targets=tuple(receiver_names(settings)))


def _kind(url: str) -> str:
    scheme = url.partition("://")[0].lower()
    if not is_http(url):
        return scheme
    return "slack" if urlsplit(url).hostname in _SLACK else "webhook"


def _opener(name: str, url: str, links: Links, secret: str | None) -> Open:
    if not is_http(url):
        service = open_service(name, url)
        return lambda _session: AppriseSender(service=service, links=links)
    write = slack_message if _kind(url) == "slack" else webhook_message

    def opened(session: aiohttp.ClientSession) -> Send:
        poster = Poster(url=url, session=session, secret=secret)
        return lambda notice, delivery: poster.post(write(notice, links), delivery)

    return opened


Service: TypeAlias = Any
"""Apprise's sender to one service; its ``notify`` blocks and returns whether the message was accepted."""

_LOGGERS: Final = ("apprise", "urllib3")
"""Loggers that may write a service's URL, or the answer of its server."""


def open_service(name: str, url: str) -> Service:
    """Return apprise's sender for a receiver's URL; connects to nothing.

    Raises:
        SettingsError: apprise is not installed, or does not accept the URL.
    """
    try:
        import apprise  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise SettingsError(
            f"BLAMESPAN_NOTIFY_URL: the URL of {name} needs apprise: {INSTALL_NOTIFY}"
        ) from error
    for logger in _LOGGERS:
        logging.getLogger(logger).setLevel(logging.CRITICAL + 1)
    asset = apprise.AppriseAsset(
        app_id="blamespan", app_desc="blamespan", app_url="", storage_mode="memory", http_redirects=False
    )
    service = apprise.Apprise.instantiate(url, asset=asset)
    if service is None:
        raise SettingsError(
            f"BLAMESPAN_NOTIFY_URL: apprise does not accept the URL of {name};"
            " `apprise --dry-run -vv URL` says why"
        )
    return service


SEND_S: Final = 60.0
"""Bound on one message: apprise pauses for up to 5.5 s between requests, and waits 4 s for each answer."""
_TYPES: Final[Mapping[NoticeKind, str]] = {
    # Only the alarm is a failure, as only it pages with Prometheus: services page by this word.
    NoticeKind.NEW: "warning",
    NoticeKind.REGRESSED: "warning",
    NoticeKind.FAILS_MORE: "failure",
    NoticeKind.CALM_AGAIN: "success",
    NoticeKind.EARLY: "warning",
    NoticeKind.MORE: "info",
}


@dataclass(slots=True, kw_only=True)
class AppriseSender:
    """Sends messages through apprise, one at a time, on a thread of its own.

    The thread is a daemon: apprise cannot be cancelled, and a server that answers one byte at a time must not
    hold up a shutdown. A message that is still being sent at a timeout may arrive twice.
    """

    service: Service = field(repr=False)
    links: Links
    within_s: float = SEND_S
    _is_sending: bool = False

    async def __call__(self, notice: Notice, delivery: str) -> Answer:
        """Send one notice; ``delivery`` is unused, since services have no place for it."""
        del delivery
        if self._is_sending:
            return Answer(fate=Fate.LATER, reason="the previous message is still being sent")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()

        def finish(found: Answer) -> None:
            if not answer.done():
                answer.set_result(found)

        def work() -> None:
            found = _notify(self.service, plain_message(notice, self.links), _TYPES[notice.kind])
            self._is_sending = False
            if not loop.is_closed():  # the process ends
                loop.call_soon_threadsafe(finish, found)

        self._is_sending = True
        Thread(target=work, name="blamespan-notify", daemon=True).start()
        try:
            async with asyncio.timeout(self.within_s):
                return await answer
        except TimeoutError:
            return Answer(fate=Fate.LATER, reason="TimeoutError")


def _notify(service: Service, message: PlainMessage, kind: str) -> Answer:
    try:
        accepted = service.notify(
            title=message.title, body=message.body, notify_type=kind, body_format="text"
        )
    except Exception as error:  # noqa: BLE001 - 140 plugins of others; its text may hold the URL
        return Answer(fate=Fate.LATER, reason=type(error).__name__)
    # Apprise does not tell a refusal from a failure to connect.
    return Answer(fate=Fate.TAKEN) if accepted else Answer(fate=Fate.LATER, reason="not accepted")


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
