"""Access to the pages: with a token users sign in once; a session belongs to one browser and ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer, make_mocked_request
from aiohttp.web import Application, Request

from analyzer.web.app import make_app
from analyzer.web.guard import COOKIE, LIFETIME_S, MOST, Sessions, SignedOut, session_key
from tests.web.stage import Stage

Client = TestClient[Request, Application]
OURS = {"Sec-Fetch-Site": "same-origin"}
BROWSER = {"Accept": "text/html,*/*"}


async def entering(stage: Stage) -> Client:
    return TestClient(TestServer(make_app(replace(stage.parts(), token="s3cret"))))


async def test_a_browser_is_redirected_to_sign_in_and_back(stage: Stage) -> None:
    async with await entering(stage) as client:
        async with client.get("/runs?q=x", headers=BROWSER, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "/sign-in?next=/runs?q%3Dx")
        form = {"token": "s3cret", "next": "/runs?q=x"}
        async with client.post("/sign-in", data=form, headers=OURS, allow_redirects=False) as answer:
            cookie = answer.headers["Set-Cookie"]
            assert answer.headers["Location"] == "/runs?q=x"
        assert "HttpOnly" in cookie
        assert "SameSite=Lax" in cookie
        assert "s3cret" not in cookie
        async with client.get("/runs", headers=BROWSER) as answer:
            assert answer.status == 200
        async with client.post("/sign-out", headers=OURS):
            pass
        async with client.get("/runs", headers=BROWSER, allow_redirects=False) as answer:
            assert answer.status == 303


@pytest.mark.parametrize("token", ["", "wrong", "s3cret ", "sécret"])
async def test_a_wrong_token_opens_nothing(stage: Stage, token: str) -> None:
    async with await entering(stage) as client:
        async with client.post("/sign-in", data={"token": token}, headers=OURS) as answer:
            assert answer.status == 401
            assert COOKIE not in answer.cookies
        async with client.get("/health", headers=BROWSER, allow_redirects=False) as answer:
            assert answer.status == 303


@pytest.mark.parametrize(
    "path",
    ["/runs", "/runs/x", "/health", "/issues", "/workflows", "/queue", "/try", "/events", "/try/x/state"],
)
async def test_without_the_token_no_page_is_shown(stage: Stage, path: str) -> None:
    async with await entering(stage) as client:
        async with client.get(path, allow_redirects=False) as answer:
            assert answer.status == 401
        forged = {"Cookie": f"{COOKIE}=guessed"}
        async with client.get(path, headers=forged, allow_redirects=False) as answer:
            assert answer.status == 401


async def test_another_sites_form_signs_nobody_in(stage: Stage) -> None:
    async with await entering(stage) as client:
        form = {"token": "s3cret"}
        for headers in ({}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}):
            async with client.post("/sign-in", data=form, headers=headers) as answer:
                assert answer.status == 403


def carrying(id_: str) -> web.Request:
    return make_mocked_request("GET", "/runs", headers={"Cookie": f"{COOKIE}={id_}"})


def test_a_session_is_accepted_by_every_process_with_the_token_until_it_expires() -> None:
    wall = [1e9]

    def process(token: str) -> Sessions:
        return Sessions(clock=lambda: 0.0, key=session_key(token), wall_s=lambda: wall[0])

    first, second = process("s3cret"), process("s3cret")
    id_ = first.begin(web.Response(), signed_in=True)
    assert second.is_signed_in(carrying(id_))
    assert not process("another").is_signed_in(carrying(id_))
    assert not Sessions(clock=lambda: 0.0).is_signed_in(carrying(id_))
    text, _, signature = id_.rpartition(".")
    begun, _, ends_s = text.rpartition(".")
    changed = ("0" if signature[0] != "0" else "1") + signature[1:]
    for forged in (
        f"{begun}.{int(ends_s) + 1}.{signature}",
        f"{text}.{changed}",
        f"{begun}..{signature}",
        text,
    ):
        assert not process("s3cret").is_signed_in(carrying(forged))
    wall[0] += LIFETIME_S
    assert not process("s3cret").is_signed_in(carrying(id_))


def test_using_a_signed_session_does_not_prolong_it_in_any_process() -> None:
    now = [0.0]
    first, second = (
        Sessions(clock=lambda: now[0], key=session_key("s3cret"), wall_s=lambda: 1e9 + now[0]) for _ in "ab"
    )
    id_ = first.begin(web.Response(), signed_in=True)
    for _ in range(11):
        now[0] += 3600
        assert first.is_signed_in(carrying(id_))
        assert second.is_signed_in(carrying(id_))
    now[0] = LIFETIME_S
    assert not first.is_signed_in(carrying(id_))
    assert not second.is_signed_in(carrying(id_))


def test_a_session_that_was_ended_is_refused_and_one_of_an_upload_is_never_signed() -> None:
    sessions = Sessions(clock=lambda: 0.0, key=session_key("s3cret"))
    id_ = sessions.begin(web.Response(), signed_in=True)
    sessions.end(carrying(id_), web.Response())
    assert not sessions.is_signed_in(carrying(id_))
    upload = sessions.begin(web.Response(), signed_in=False)
    assert not Sessions(clock=lambda: 0.0, key=session_key("s3cret")).is_signed_in(carrying(upload))


def test_a_session_that_was_ended_stays_out_after_a_restart(tmp_path: Path) -> None:
    wall = [1e9]

    def process() -> Sessions:
        ended = SignedOut(path=tmp_path / "signed-out", wall_s=lambda: wall[0])
        return Sessions(clock=lambda: 0.0, key=session_key("s3cret"), wall_s=lambda: wall[0], ended=ended)

    before = process()
    out, stays = (before.begin(web.Response(), signed_in=True) for _ in "ab")
    before.end(carrying(out), web.Response())
    assert not process().is_signed_in(carrying(out))
    assert process().is_signed_in(carrying(stays))
    assert out not in (tmp_path / "signed-out").read_text()
    wall[0] += LIFETIME_S
    process()
    assert (tmp_path / "signed-out").read_text() == ""


@pytest.mark.parametrize("damage", ["", "\0" * 5_000, "a b c\n" * 10, "x 99999999999999999999999\n", "é\n"])
def test_a_damaged_file_of_ended_sessions_forgets_them_and_goes_on(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "signed-out"
    path.write_text(damage)
    ended = SignedOut(path=path)
    ended.add("an id", 4e9)
    assert "an id" in SignedOut(path=path)
    path.unlink()
    path.mkdir()  # no file can be written
    SignedOut(path=path).add("another", 4e9)


def test_the_session_of_an_upload_is_not_signed_in() -> None:
    sessions = Sessions(clock=lambda: 0.0)
    id_ = sessions.begin(web.Response(), signed_in=False)
    assert id_ in sessions._known
    assert not sessions._known[id_].is_signed_in


def test_sessions_are_bounded_and_end() -> None:
    now = [0.0]
    sessions = Sessions(clock=lambda: now[0])
    first = sessions.begin(web.Response(), signed_in=True)
    for _ in range(MOST):
        sessions.begin(web.Response(), signed_in=True)
    assert len(sessions._known) == MOST
    assert sessions._find(first) is None
    last = next(reversed(sessions._known))
    now[0] = LIFETIME_S - 1
    assert sessions._find(last) is not None
    now[0] += LIFETIME_S + 1
    assert sessions._find(last) is None
