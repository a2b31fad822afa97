"""Receivers of notices are those of the settings, and their URLs are shown to nobody.

Services behind apprise are played by a local HTTP server (``json://``), not by the real ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from analyzer.cli.checks import Health, check_notifiers
from analyzer.issues.notifier import Fate, opened_session
from analyzer.issues.receivers import (
    AppriseSender,
    Links,
    open_service,
    plain_message,
    receiver_names,
    receivers_of,
)
from analyzer.issues.recurrence import NoticeKind
from collector_processor.settings import Settings, SettingsError, load_settings
from tests.unit.test_notifiers import HOSTILE, notice

# Its plugins still import a module of Python's that is to go.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")

SECRET: Final = "T0k3nHidden"
SLACK: Final = f"https://hooks.slack.com/services/T1/B1/{SECRET}"


def settings_of(notify_url: str) -> Settings:
    return load_settings({"BLAMESPAN_NOTIFY_URL": notify_url})


@dataclass(slots=True)
class Service:
    """An HTTP server that keeps what it is sent."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    took: list[dict[str, Any]] = field(default_factory=list)
    port: int = 0

    async def handle(self, request: web.Request) -> web.Response:
        self.took.append({"path": request.path, **json.loads(await request.read() or b"{}")})
        return web.Response(status=self.status, headers=self.headers)

    @property
    def url(self) -> str:
        return f"json://127.0.0.1:{self.port}/{SECRET}"

    def sender(self, within_s: float = 60.0) -> AppriseSender:
        links = Links(base="https://blame.example")
        return AppriseSender(service=open_service("json", self.url), links=links, within_s=within_s)


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    pytest.importorskip("apprise", reason="the extra `notify` is not installed")
    played = Service()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", played.handle)
    async with TestServer(app) as server:
        assert server.port
        played.port = server.port
        yield played


@pytest.mark.parametrize(
    ("setting", "names"),
    [
        ("", []),
        ("https://pager.example/hook", ["webhook"]),
        ("http://127.0.0.1:9/hook", ["webhook"]),
        (SLACK, ["slack"]),
        ("HTTPS://Hooks.Slack.com/services/x", ["slack"]),
        ("https://hooks.slack.com.evil.example/x", ["webhook"]),
        (f"{SLACK}, https://a.example/,https://b.example/?to=x,y", ["slack", "webhook", "webhook-2"]),
        ("mailto://u:p@x.example?to=a@x.example,b@x.example,pagerduty://K@S", ["mailto", "pagerduty"]),
        ("slack://a/b/c/#general," + SLACK, ["slack", "slack-2"]),
    ],
)
def test_a_receiver_is_named_by_its_kind_and_its_position(setting: str, names: list[str]) -> None:
    found = receiver_names(settings_of(setting))
    assert list(found) == names
    assert ",".join(found.values()) == setting.replace(" ", ""), "nothing is lost or changed"


@pytest.mark.parametrize(
    ("setting", "position"),
    [
        ("hooks.example", 1),
        ("://x", 1),
        ("https://pager.example,hooks.example", 1),
        ("https://pager.example/, https://user:hidden@x/", 2),
        ("https://pager.example/,json://x,http://hidden/#f", 3),
        ("https://pager.example/,http://hidden:99999/", 2),
        ("http:// hidden", 1),
        ("https://pager.example/,json://hidden b", 2),
        ("json://hidden\x00,json://x", 1),
        ("https://ü.example", 1),
    ],
)
def test_an_invalid_url_is_refused_by_its_position_without_being_shown(setting: str, position: int) -> None:
    with pytest.raises(SettingsError) as refused:
        settings_of(setting)
    assert str(refused.value).startswith("BLAMESPAN_NOTIFY_URL=…: ")
    assert f"URL {position}: " in str(refused.value)
    assert not [word for word in ("hidden", "pager", "hooks", "ü") if word in str(refused.value)]


def test_more_receivers_than_the_metrics_bound_are_refused() -> None:
    assert len(receiver_names(settings_of(",".join([SLACK] * 10)))) == 10
    with pytest.raises(SettingsError, match="at most 10 URLs, got 11"):
        settings_of(",".join([SLACK] * 11))


def test_slack_and_webhooks_need_no_apprise_and_show_no_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    settings = settings_of(f"{SLACK},https://pager.example/{SECRET}")
    receivers = receivers_of(settings)
    assert [one.name for one in receivers] == ["slack", "webhook"]
    assert SECRET not in repr(receivers) + repr(settings)


async def test_without_apprise_the_install_command_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    settings = settings_of(f"{SLACK},pagerduty://key@{SECRET}")
    with pytest.raises(SettingsError) as refused:
        receivers_of(settings)
    assert str(refused.value) == (
        "BLAMESPAN_NOTIFY_URL: the URL of pagerduty needs apprise:"
        " pip install '.[server,notify]' in a checkout"
    )
    (finding,) = await check_notifiers({"pagerduty": f"pagerduty://key@{SECRET}"})
    assert (finding.health, finding.detail) == (Health.FAILED, str(refused.value))


@pytest.mark.parametrize("url", [f"nosuchservice://{SECRET}", f"pagerduty://{SECRET}"])
def test_a_url_that_apprise_does_not_accept_is_refused_without_being_shown(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("apprise", reason="the extra `notify` is not installed")
    with pytest.raises(SettingsError, match="apprise does not accept") as refused:
        receivers_of(settings_of(url))
    assert SECRET not in str(refused.value) + caplog.text


async def test_each_notice_reaches_the_service_once_with_its_kind_and_link(service: Service) -> None:
    receivers = receivers_of(settings_of(f"{service.url},{SLACK}"))
    assert SECRET not in repr(receivers)
    async with opened_session() as session:
        send = receivers[0].open(session)
        for kind in (NoticeKind.NEW, NoticeKind.FAILS_MORE, NoticeKind.CALM_AGAIN):
            assert (await send(notice(kind=kind), "1")).fate is Fate.TAKEN
    assert [(one["path"], one["title"], one["type"]) for one in service.took] == [
        (f"/{SECRET}", "blamespan: New issue", "warning"),
        (f"/{SECRET}", "blamespan: Alarm", "failure"),
        (f"/{SECRET}", "blamespan: Calm again", "success"),
    ]


@pytest.mark.parametrize("status", [301, 307, 400, 429, 503])
async def test_a_notice_that_a_service_does_not_accept_is_sent_again_and_no_redirect_is_followed(
    service: Service, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    service.status = status
    service.headers = {"Location": f"http://127.0.0.1:{service.port}/elsewhere"}
    sender = service.sender()
    answer = await sender(notice(), "1")
    assert (answer.fate, [one["path"] for one in service.took]) == (Fate.LATER, [f"/{SECRET}"])
    assert SECRET not in repr(answer) + repr(sender) + caplog.text


async def raw_answer(answer: bytes, sender_of: Any) -> Any:
    """Return what a sender says of a server that answers with these bytes, then waits."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
        closed.set()

    closed = asyncio.Event()
    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        service = Service(port=server.sockets[0].getsockname()[1])
        found = await sender_of(service)
        await closed.wait()  # apprise gives up after 4 s
        return found


async def test_a_server_that_answers_nonsense_gets_no_secret_into_our_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pytest.importorskip("apprise", reason="the extra `notify` is not installed")
    with caplog.at_level(logging.DEBUG):
        bad = b"HTTP/1.1 500 x\r\nno header at all\r\n\xff: \xff\r\nContent-Length: 0\r\n\r\n"
        answer = await raw_answer(bad, lambda service: service.sender()(notice(), "1"))
    assert answer.fate is Fate.LATER
    assert SECRET not in caplog.text + answer.reason


async def test_a_service_that_never_answers_is_waited_for_once() -> None:
    pytest.importorskip("apprise", reason="the extra `notify` is not installed")

    async def twice(service: Service) -> list[str]:
        sender = service.sender(within_s=0.2)
        return [(await sender(notice(number), str(number))).reason for number in range(2)]

    reasons = await raw_answer(b"", twice)
    assert reasons == ["TimeoutError", "the previous message is still being sent"]


def test_services_show_hostile_text_as_plain_text() -> None:
    message = plain_message(
        notice(title=HOSTILE, service=HOSTILE, text=HOSTILE), Links(base="https://blame.example")
    )
    assert message.title == "blamespan: New issue"
    *said, link = message.body.split("\n")
    assert (link, len(said)) == ("https://blame.example/runs/run-0", 2)
    text = "".join(said)
    assert not [mark for mark in ("<", ">", "://", "@here", "`", "](", "\x1b") if mark in text]


def test_a_message_without_links_or_service_has_a_body() -> None:
    message = plain_message(notice(service=""), Links(base=""))
    assert message.body == "clerk: ValueError in add-0"
    assert len(plain_message(notice(title="<" * 100_000, text="&" * 100_000), Links(base="")).body) < 2_000
