"""``blamespan mcp --port``: requests of strangers, hostile bodies and arguments, and a flood of sessions."""

from __future__ import annotations

import http.client
import json
import socket
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Final

import pytest

from collector_processor.core.records import Commit, StoredVerdict
from collector_processor.otlp import Tenant
from collector_processor.settings import load_settings
from collector_processor.store.verdicts import RunStore
from semconv.record import replace as replace_record
from tests.backends.supervise import Server, free_ports, listens, running
from tests.e2e.line import environment
from tests.e2e.test_mcp_hostile import HELLO, READY, REFUSED, UNREADABLE, call
from tests.web.stage import verdict_of
from tests.web.test_pages import RUN, blame

mcp_http = pytest.importorskip("analyzer.api.mcp_http", reason="an extra")

TOKEN: Final = "a-token-of-the-operator"
JSON: Final = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
SESSION: Final = "mcp-session-id"
PATHS: Final = (
    "/mcp",
    "/mcp/",
    "//mcp",
    "/MCP",
    "/",
    "/mcp/../mcp",
    "/%6dcp",
    "/docs",
    "/mcp?token=" + TOKEN,
)
METHODS: Final = ("GET", "POST", "DELETE", "PUT", "OPTIONS", "HEAD")
WITHOUT_THE_TOKEN: Final[tuple[dict[str, str], ...]] = (
    {},
    {"Authorization": "Bearer wrong"},
    {"Authorization": TOKEN},
    {"Authorization": f"Basic {TOKEN}"},
    {"Authorization": f"Bearer {TOKEN}x"},
    {"Authorization": f"Bearer {TOKEN[:-1]}"},
    {"Authorization": "Bearer "},
    {"Cookie": f"token={TOKEN}"},
    {"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": "localhost", "Host": "localhost"},
)
OTHER_HOSTS: Final = (
    "evil.example",
    "evil.example:80",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "localhost@evil.example",
    "evil.example#localhost",
    "[::1].evil.example",
    "127.0.0.1 evil.example",
    "xn--localhost-evil",
    "127.0.0.1:80@evil.example",
)
OTHER_PAGES: Final[tuple[dict[str, str], ...]] = (
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://localhost:1"},
    {"Origin": "http://localhost.evil.example"},
    {"Origin": "file://"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: int
    session: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A running server."""

    port: int
    server: Server

    def ask(self, body: bytes = b"{}", method: str = "POST", path: str = "/mcp", **headers: str) -> Answer:
        """Send one request; ``headers`` with underscores for hyphens."""
        told = JSON | {name.replace("_", "-"): value for name, value in headers.items()}
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)) as connection:
            connection.putrequest(method, path, skip_host="Host" in told, skip_accept_encoding=True)
            for name, value in (told | {"Content-Length": str(len(body))}).items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return Answer(
                status=answer.status,
                session=answer.getheader(SESSION, ""),
                text=answer.read().decode(errors="replace"),
            )

    def greet(self) -> Answer:
        """Begin a session."""
        return self.ask(HELLO)


@contextmanager
def opened(
    folder: Path, *options: str, verdicts: Sequence[StoredVerdict] = (), **settings: str
) -> Iterator[Opened]:
    """Start the command over a store; it must neither die nor write a traceback."""
    place = load_settings({}, directory=folder, data_dir=folder).store_place
    assert isinstance(place, Path)
    with closing(RunStore(place)) as store:
        store.commit(Commit(analysed=(), verdicts=tuple(verdicts)))
    (port,) = free_ports(1)
    words = [sys.executable, "-m", "analyzer", "mcp", "--data-dir", str(folder), "--port", str(port)]
    words += options
    log = folder / "log"
    with running(
        "mcp", words, log=log, is_ready=lambda: listens(port), environ=environment(**settings)
    ) as server:
        yield Opened(port=port, server=server)
        assert server.process.poll() is None
        assert "Traceback" not in log.read_text(errors="replace"), server.tail()


def test_without_the_token_no_path_and_no_method_is_answered(tmp_path: Path) -> None:
    """Several at a time: each answer takes ``WRONG_TOKEN_S``."""
    with opened(tmp_path, token=TOKEN) as mcp:

        def asked(told: tuple[dict[str, str], str, str]) -> int:
            headers, path, method = told
            return mcp.ask(
                HELLO, method, path, **{key.replace("-", "_"): word for key, word in headers.items()}
            ).status

        every = list(product(WITHOUT_THE_TOKEN, PATHS, METHODS))
        with ThreadPoolExecutor(16) as pool:
            answers = list(zip(every, pool.map(asked, every), strict=True))
        assert [(told, status) for told, status in answers if status != 401] == []
        assert mcp.ask(HELLO, Authorization=f"Bearer {TOKEN}").status == 200


def test_without_a_token_neither_another_name_nor_another_sites_page_is_answered(tmp_path: Path) -> None:
    with opened(tmp_path) as mcp:
        for host in OTHER_HOSTS:
            for path in PATHS:
                assert mcp.ask(HELLO, path=path, Host=host).status in {400, 403}, (host, path)
        for headers in OTHER_PAGES:
            told = {name.replace("-", "_"): value for name, value in headers.items()}
            assert mcp.ask(HELLO, **told).status == 403, headers
        assert mcp.greet().status == 200


def test_hostile_bodies_and_arguments_are_refused_briefly(tmp_path: Path) -> None:
    with opened(tmp_path) as mcp:
        session = {SESSION.replace("-", "_"): mcp.greet().session}
        assert mcp.ask(READY, **session).status == 202
        bodies = [*UNREADABLE, *REFUSED.values(), b"[" + b",".join([READY] * 10_000) + b"]", b"{}" * 100_000]
        for body in bodies:
            answer = mcp.ask(body, **session)
            assert answer.status < 500, (body[:80], answer)
            assert len(answer.text) < 10_000
        for number, body in REFUSED.items():
            answer = mcp.ask(body, **session)
            is_refused = '"isError":true' in answer.text.replace(" ", "")
            assert is_refused or (answer.status == 413 and len(body) > mcp_http.MOST_BODY_BYTES), number
        assert mcp.ask(b" " * (mcp_http.MOST_BODY_BYTES + 1), **session).status == 413
        for odd in ("none", "x" * 4_000, "../../etc", "%00"):
            assert mcp.ask(call(1, "list_issues"), mcp_session_id=odd).status in {400, 404}
        assert '"isError":true' not in mcp.ask(call(2, "list_issues"), **session).text.replace(" ", "")


def test_sessions_are_bounded_and_open_ones_go_on(tmp_path: Path) -> None:
    with opened(tmp_path) as mcp:
        first = {SESSION.replace("-", "_"): mcp.greet().session}
        statuses = [mcp.greet().status for _ in range(mcp_http.MOST_SESSIONS + 5)]
        assert statuses.count(200) == mcp_http.MOST_SESSIONS - 1
        assert set(statuses) == {200, 503}
        assert mcp.ask(READY, **first).status == 202
        assert "issues" in json.dumps(mcp.ask(call(2, "list_issues"), **first).text)
        assert mcp.ask(b"", "DELETE", **first).status == 200
        assert mcp.greet().status == 200


def test_no_header_and_no_session_leads_to_another_tenants_runs(tmp_path: Path) -> None:
    """The server's tenant is fixed when it starts, whatever a client's own headers say."""
    verdicts = []
    for name, tenant in (("mine", "x-scope-orgid=shop"), ("theirs", "x-scope-orgid=bank")):
        one = replace_record(RUN, run_id=name)
        verdicts.append(replace(verdict_of(one, blame(one, 2), "shop", 1), tenant=Tenant(tenant)))
    options = ("--tenant", "x-scope-orgid=shop", "--allow-writes")
    bank = {"X_Scope_OrgID": "bank"}
    with opened(tmp_path, *options, verdicts=verdicts) as mcp:
        for greeting, later in product(({}, bank), repeat=2):
            session = mcp.ask(HELLO, **greeting).session
            told = {**later, SESSION.replace("-", "_"): session}
            assert mcp.ask(READY, **told).status == 202
            listed = mcp.ask(call(2, "list_failed_runs", since="1970-01-02T00:00:00Z", limit=50), **told)
            assert "mine" in listed.text
            assert "theirs" not in listed.text
            for tool in ("get_verdict", "get_steps", "label_run"):
                labelled = {"step": 1} if tool == "label_run" else {}
                answer = mcp.ask(call(3, tool, run_id="theirs", **labelled), **told)
                assert '"isError":true' in answer.text.replace(" ", ""), answer


def test_a_client_that_never_finishes_its_request_is_disconnected_without_the_token_too(
    tmp_path: Path,
) -> None:
    whole = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    body = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n"
    bearer = f"Authorization: Bearer {TOKEN}\r\n\r\n{{".encode()
    with opened(tmp_path, token=TOKEN) as mcp, ExitStack() as stack:
        unfinished = []
        for sent in (b"", b"GET / HTTP/1.1\r\nHost", whole + b"GET /", body + bearer):
            client = socket.create_connection(("127.0.0.1", mcp.port), timeout=10 * mcp_http.REQUEST_S)
            stack.enter_context(closing(client)).sendall(sent)
            unfinished.append(client)
        session = mcp.ask(HELLO, Authorization=f"Bearer {TOKEN}").session
        for client in unfinished:
            assert _ends(client)
        told = {"Authorization": f"Bearer {TOKEN}", SESSION.replace("-", "_"): session}
        assert mcp.ask(READY, **told).status == 202


def test_connections_are_bounded(tmp_path: Path) -> None:
    with opened(tmp_path) as mcp, ExitStack() as stack:
        for _ in range(mcp_http.MOST_CONNECTIONS):
            stack.enter_context(closing(socket.create_connection(("127.0.0.1", mcp.port), timeout=60)))
        with closing(socket.create_connection(("127.0.0.1", mcp.port), timeout=60)) as beyond:
            assert _ends(beyond)


def _ends(client: socket.socket) -> bool:
    """Read until the server closes the connection."""
    try:
        while client.recv(1 << 16):
            pass
    except ConnectionError:
        pass
    return True
