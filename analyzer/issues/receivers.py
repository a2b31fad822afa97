"""The receivers of notices that ``notify_url`` names, and how each gets its messages.

| URL | what is sent | needs |
|---|---|---|
| ``https://hooks.slack.com/…`` | a Slack message | nothing |
| other ``https://…``, ``http://…`` | JSON, signed (``Poster``) | nothing |
| any other scheme | a message without markup, through apprise | extra ``notify`` |

A URL is a secret. A receiver's name is made from its kind and its position: it is what logs, metrics,
``doctor`` and the store show. Addresses come only from the settings, never from a trace.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Thread
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import aiohttp

from analyzer.issues.counting import CountingRules
from analyzer.issues.notice_messages import Links, PlainMessage, plain_message, slack_message, webhook_message
from analyzer.issues.notifier import Answer, Fate, Poster, Send
from analyzer.issues.recurrence.issue import Notice, NoticeKind
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
