"""Notices reach their receivers once, signed and escaped, and receivers cannot harm us."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from analyzer.analyses.composition import notice_text
from analyzer.issues.issue_store import IssueStore
from analyzer.issues.notifier import Answer, Fate, Notifier, NotifierRules, Poster, opened_session
from analyzer.issues.receivers import Links, counting_rules, slack_message, webhook_message
from analyzer.issues.recurrence import Fingerprint, Notice, NoticeKind, read_notice, safe_title
from collector_processor.settings import load_settings

START = 20_000 * 86_400 * 10**9
HOUR = 3600 * 10**9
LINKS = Links(base="https://blame.example")
HOSTILE = (
    "<!channel> <https://evil.example|click> @here `rm` https://evil.example [x](http://evil)\n\x1b[31m&"
)


def notice(number: int = 0, **fields: Any) -> Notice:
    defaults: dict[str, Any] = {
        "kind": NoticeKind.NEW,
        "tenant": "",
        "at_ns": START + number,
        "service": "shop",
        "agent": "clerk",
        "issue_id": f"{number:016x}",
        "title": f"clerk: ValueError in add-{number}",
        "run_id": f"run-{number}",
    }
    return Notice(**(defaults | fields))


@dataclass(slots=True)
class Receiver:
    """A real HTTP server with scripted answers, the last one repeated."""

    answers: list[int] = field(default_factory=lambda: [200])
    headers: dict[str, str] = field(default_factory=dict)
    took: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    was_told: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        status = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.took.append((dict(request.headers), body))
        self.was_told.set()
        return web.Response(status=status, headers=self.headers)

    @property
    def documents(self) -> list[Any]:
        return [json.loads(body) for _, body in self.took]


@dataclass(slots=True)
class Clock:
    ns: int = START

    def __call__(self) -> int:
        return self.ns


@dataclass(slots=True)
class Stage:
    """A notifier between a store and a receiver."""

    store: IssueStore
    receiver: Receiver
    url: str
    session: ClientSession
    clock: Clock = field(default_factory=Clock)
    disk_answers: asyncio.Event = field(default_factory=asyncio.Event)
    """Set at the start; while cleared, writes after the receiver was notified wait."""
    disk_is_asked: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.disk_answers.set()

    def notifier(self, per_hour: int = 20) -> Notifier:
        rules = NotifierRules(name="hook", per_hour=per_hour)
        poster = Poster(url=self.url, session=self.session, secret="s3cret", wall_s=lambda: 1_700_000_000.5)

        async def send(one: Notice, delivery: str) -> Answer:
            return await poster.post(webhook_message(one, LINKS), delivery)

        return Notifier(rules, send, self.store, self.in_db, self.clock)

    async def in_db(self, call: Callable[..., Any], *args: Any) -> Any:
        if self.receiver.was_told.is_set() and not self.disk_answers.is_set():
            self.disk_is_asked.set()
            await self.disk_answers.wait()
        return call(*args)

    def owe(self, *notices: Notice) -> None:
        with self.store.transaction():
            for one in notices:
                self.store.queue_notice("hook", one)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[IssueStore]:
    opened = IssueStore(tmp_path / "store.sqlite")
    yield opened
    opened.close()


@pytest.fixture
async def stage(store: IssueStore) -> AsyncIterator[Stage]:
    receiver = Receiver()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", receiver.handle)
    async with TestServer(app) as server, opened_session() as session:
        yield Stage(store=store, receiver=receiver, url=str(server.make_url("/hook")), session=session)


async def test_a_notice_is_sent_once_with_a_link_to_the_run(stage: Stage) -> None:
    stage.owe(notice())
    assert await stage.notifier().send_due() is None
    assert await stage.notifier().send_due() is None
    (document,) = stage.receiver.documents
    assert (document["kind"], document["agent"], document["version"]) == ("new", "clerk", 1)
    assert document["run_url"] == "https://blame.example/runs/run-0"


async def test_a_notice_is_signed_with_the_time(stage: Stage) -> None:
    stage.owe(notice())
    await stage.notifier().send_due()
    headers, body = stage.receiver.took[0]
    expected = hmac.new(b"s3cret", b"1700000000." + body, sha256).hexdigest()
    assert headers["X-Blamespan-Timestamp"] == "1700000000"
    assert headers["X-Blamespan-Signature"] == f"v1={expected}"


async def test_a_receiver_that_is_down_is_tried_again_later_and_later_also_after_a_restart(
    stage: Stage,
) -> None:
    stage.receiver.answers = [503, 500, 200]
    stage.owe(notice())
    first = await stage.notifier().send_due()
    assert first is not None
    assert 0.5 <= first <= 1
    assert await stage.notifier().send_due() == pytest.approx(first), "not before its time"
    stage.clock.ns += int(1.1 * 10**9)
    second = await stage.notifier().send_due()
    assert second is not None
    assert 1 <= second <= 2
    stage.clock.ns += 3 * 10**9
    assert await stage.notifier().send_due() is None
    ids = {headers["X-Blamespan-Delivery"] for headers, _ in stage.receiver.took}
    assert (len(stage.receiver.took), len(ids)) == (3, 1)


async def test_a_receivers_retry_after_is_obeyed(stage: Stage) -> None:
    stage.receiver.answers, stage.receiver.headers = [429], {"Retry-After": "120"}
    stage.owe(notice())
    assert await stage.notifier().send_due() == 120


@pytest.mark.parametrize("status", [301, 302, 307, 308, 400, 401, 404, 410])
async def test_a_refused_notice_is_not_sent_again_and_no_redirect_is_followed(
    stage: Stage, status: int
) -> None:
    stage.receiver.answers, stage.receiver.headers = [status], {"Location": stage.url + "/elsewhere"}
    stage.owe(notice(), notice(1))
    notifier = stage.notifier()
    assert await notifier.send_due() is None
    assert (len(stage.receiver.took), notifier.counters.dropped, notifier.counters.sent) == (2, 2, 0)


async def test_a_notice_to_an_unreachable_receiver_is_sent_later() -> None:
    async with opened_session() as session:
        answer = await Poster(url="http://127.0.0.1:1/hook?token=hidden", session=session, secret=None).post(
            b"{}", "1"
        )
    assert answer.fate is Fate.LATER
    assert "hidden" not in answer.reason


async def test_notices_beyond_the_hourly_limit_are_merged_into_one(stage: Stage) -> None:
    stage.owe(*(notice(number) for number in range(50)))
    wait_s = await stage.notifier(per_hour=3).send_due()
    assert wait_s is None, "nothing is owed"
    kinds = [document["kind"] for document in stage.receiver.documents]
    assert kinds == ["new", "new", "more"]
    assert stage.receiver.documents[-1]["count"] == 48
    stage.owe(notice(51))
    stage.clock.ns += HOUR // 2
    assert await stage.notifier(per_hour=3).send_due() == pytest.approx(1800)
    stage.clock.ns += HOUR // 2
    assert await stage.notifier(per_hour=3).send_due() is None
    assert len(stage.receiver.took) == 4


async def test_a_notice_older_than_a_day_is_dropped(stage: Stage) -> None:
    stage.owe(notice())
    stage.clock.ns += 25 * HOUR
    await stage.notifier().send_due()
    assert stage.receiver.took == []
    assert stage.store.unsent("hook") == []


async def test_the_notifier_runs_until_cancelled_and_wakes(stage: Stage) -> None:
    notifier = stage.notifier()
    task = asyncio.create_task(notifier.run())
    await asyncio.sleep(0.05)
    stage.owe(notice())
    notifier.wake()
    async with asyncio.timeout(60):
        await stage.receiver.was_told.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_shutdown_stores_which_notices_were_sent(stage: Stage) -> None:
    stage.owe(notice())
    stage.disk_answers.clear()
    task = asyncio.create_task(stage.notifier().run())
    async with asyncio.timeout(60):
        await stage.disk_is_asked.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    stage.disk_answers.set()
    await asyncio.sleep(0)
    assert await stage.notifier().send_due() is None
    assert len(stage.receiver.took) == 1


def test_slack_shows_hostile_text_as_plain_text() -> None:
    message = json.loads(slack_message(notice(title=HOSTILE, service=HOSTILE, text=HOSTILE), LINKS))
    text = message["text"]
    assert text.count("<") == 1, "our own link"
    assert text.startswith("New issue: <https://blame.example/runs/run-0|&lt;!channel&gt;")
    assert text.count("://") == 1
    assert "@here" not in text
    assert "`" not in text
    assert "](" not in text
    assert "\x1b" not in text
    assert text.count("\n") == 1
    assert (message["unfurl_links"], message["unfurl_media"]) == (False, False)


def test_a_text_is_cut_before_it_is_sent() -> None:
    text = json.loads(slack_message(notice(title="<" * 100_000, text="&" * 100_000), LINKS))["text"]
    assert len(text) < 8_000


@pytest.mark.parametrize("run_id", ["../../admin", "a/b?c#d", "x|y>z", "\ud800", "run 1"])
def test_whatever_a_runs_id_is_the_link_stays_on_our_page(run_id: str) -> None:
    link = LINKS.run(run_id)
    assert link.startswith("https://blame.example/runs/")
    assert not set("/?#|<> ") & set(link.removeprefix("https://blame.example/runs/"))
    assert webhook_message(notice(run_id=run_id), LINKS).isascii()


def test_without_a_web_url_there_is_no_link() -> None:
    document = json.loads(webhook_message(notice(), Links(base="")))
    assert (document["run_url"], document["issues_url"]) == ("", "")
    assert "<" not in json.loads(slack_message(notice(), Links(base="")))["text"]


def test_a_notice_is_read_back_as_it_was() -> None:
    assert read_notice(notice(title=HOSTILE).to_json()) == notice(title=HOSTILE)


@pytest.mark.parametrize(
    ("error", "title"),
    [
        ("ValueError", "clerk: ValueError in add"),
        ("HTTP 503", "clerk: HTTP 503 in add"),
        ("no row # in table #", "clerk: wrong result in add"),
    ],
)
def test_a_sent_title_contains_no_text_of_an_error(error: str, title: str) -> None:
    mark = Fingerprint(service="s", agent="clerk", mode="wrong_result", kind="tool", tool="add", error=error)
    assert safe_title(mark) == title


def settings_of(**variables: str) -> Any:
    return load_settings({f"BLAMESPAN_{name.upper()}": value for name, value in variables.items()})


def test_a_verdicts_texts_are_sent_only_if_the_setting_says_so() -> None:
    secret = "the key sk-proj-" + "a1B2" * 12
    for level, expected in (("", ""), ("none", ""), ("full", secret)):
        settings = settings_of(notify_text=level)
        assert notice_text(settings)(secret) == expected
    settings = settings_of(notify_text="redacted", upstream_sampling="tail")
    assert "a1B2" not in notice_text(settings)(secret)
    assert not counting_rules(settings).is_fair_sample
