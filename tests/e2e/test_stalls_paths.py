"""No public path blocks the event loop, whatever run it is asked about: OTLP, API and pages.

``test_stalls_commands.py`` has the gateway and the MCP server. The runs are those of ``growth``: long, deep,
wide, nested, and with long histories. A path of the API's description or a page that is not asked here fails
the test. ``pytest -s`` prints the longest stalls.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection
from itertools import product
from pathlib import Path
from typing import Final
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import ProxyHandler, Request, build_opener

import pytest

from analyzer.web.app import make_app, openapi
from collector_processor.otlp import Signal
from collector_processor.otlp.otlp_json import to_json
from collector_processor.rebuild.encode import encode
from tests.backends.postgresql import postgresql
from tests.big_traces import SHAPES
from tests.e2e.traffic import WAYS, send
from tests.e2e.watching import LONG_S, Found, Watched, announced_in, failed, probed, require, watched
from tests.web.stage import open_stage

pytestmark = pytest.mark.timeout(2_700)
METHODS: Final = {"get", "post", "delete", "put"}
NOWHERE: Final = "a text that no run contains"
ENDLESS: Final = {"GET /events"}
"""Streams that never end: many browsers read them while runs are judged."""
READERS: Final = 100
TOKEN: Final = "the-token-of-the-pages"
BY_BROWSER: Final = {
    "GET /try/{job_id}",
    "GET /try/{job_id}/state",
    "POST /try/{job_id}/cancel",
    "POST /try",
}
"""Asked by ``test_stalls.py``, which uploads a file as a browser does."""
SIGNED_IN: Final = {"GET /sign-in", "POST /sign-in", "POST /sign-out", "GET /static/{name}"}
"""These read nothing of a run; forms are sent to the pages alone, which have a token."""
FORMS: Final = {
    "right": f"token={TOKEN}&next=/runs",
    "long": "token=" + "x" * 60_000,
    "escaped": "token=" + "%41" * 20_000,
    "many fields": "&".join(f"f{number}=1" for number in range(6_000)),
    "endless": "token=" + "x" * 4_000_000,
}

RUNS: Final = {shape: 100 + number for number, shape in enumerate(SHAPES)}
NAMES: Final = {shape: f"{trace:032x}" for shape, trace in RUNS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Requests of one endpoint: ``METHOD /path`` as routed, and what is filled in."""

    route: str
    query: tuple[Mapping[str, str], ...] = ({},)
    body: object = None
    form: str = ""
    """Sent in place of ``body``, as a browser sends forms."""


_ORDERS: Final = ("newest", "longest", "most_steps", "costliest", "surest")
_SEARCHES: Final = (
    *({"sort": sort} for sort in _ORDERS),
    {"q": NOWHERE},
    {"agent": "solo"},
    {"min_steps": "1"},
)
_PAIRS: Final = tuple(
    {"a": NAMES[a], "b": NAMES[b]} for a, b in product(("wide", "history", "nested"), repeat=2)
)
_WORKFLOW: Final = {"service": "test", "workflow": "invoke_workflow"}
ASKED: Final = (
    Ask(route="GET /"),
    Ask(route="GET /healthz"),
    Ask(route="GET /readyz"),
    Ask(route="GET /metrics"),
    Ask(route="GET /health"),
    Ask(route="GET /api/openapi.json"),
    Ask(route="GET /try"),
    Ask(route="GET /runs", query=(*_SEARCHES, {"part": "rows"})),
    Ask(route="GET /api/runs", query=_SEARCHES),
    Ask(route="GET /queue"),
    Ask(route="GET /api/queue"),
    Ask(route="GET /issues"),
    Ask(route="GET /api/issues"),
    Ask(route="GET /workflows"),
    Ask(route="GET /api/workflows"),
    Ask(route="GET /workflow", query=(_WORKFLOW,)),
    Ask(route="GET /api/workflow", query=(_WORKFLOW,)),
    Ask(route="GET /issues/{issue_id}"),
    Ask(route="GET /api/issues/{issue_id}/fix"),
    Ask(route="GET /compare", query=_PAIRS),
    Ask(route="GET /api/compare", query=(*_PAIRS, {"a": NAMES["wide"]})),
    Ask(route="GET /runs/{run_id}"),
    Ask(route="GET /runs/{run_id}/report.html"),
    Ask(route="GET /runs/{run_id}/run.json"),
    Ask(route="GET /runs/{run_id}/steps/{step}"),
    Ask(route="GET /runs/{run_id}/steps/{step}/span.json"),
    Ask(route="GET /api/runs/{run_id}"),
    Ask(route="GET /api/runs/{run_id}/steps", query=({"limit": "1000"},)),
    Ask(route="GET /api/runs/{run_id}/otlp"),
    Ask(route="POST /api/runs/{run_id}/opinions", body={"method": "signals"}),
    Ask(route="POST /api/runs/{run_id}/confirm", body={}),
    Ask(route="POST /api/runs/{run_id}/reject", body={}),
    Ask(route="POST /api/runs/{run_id}/label", body={"step": 1}),
    Ask(route="POST /api/issues/{issue_id}/mute", body={"for_s": 60}),
    Ask(route="POST /api/issues/{issue_id}/resolve", body={}),
    Ask(route="GET /runs/{run_id}/again"),
    Ask(route="POST /runs/{run_id}/again", form="method=signals"),
    Ask(route="POST /runs/{run_id}/label", form="answer=step&step=1"),
    Ask(route="POST /issues/{issue_id}/mute"),
    Ask(route="POST /issues/{issue_id}/resolve"),
)
UPLOADED: Final = {
    "POST /api/analyse",
    "GET /api/analyse/{job_id}",
    "DELETE /api/analyse/{job_id}",
    "POST /try",
}
DELETED: Final = ("DELETE /api/runs/{run_id}", "DELETE /api/runs")


def test_every_route_is_asked(tmp_path: Path) -> None:
    """A new path must be added here, unless a line above says why not."""
    app = make_app(open_stage(tmp_path).parts())
    served = {
        f"{route.method} {route.resource.canonical}"
        for route in app.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    asked = {one.route for one in ASKED} | UPLOADED | set(DELETED)
    described = openapi()["paths"]
    served |= {
        f"{method.upper()} {path}" for path, told in described.items() for method in told if method in METHODS
    }
    assert served == asked | ENDLESS | BY_BROWSER | SIGNED_IN


def test_no_path_of_the_service_stalls_its_loop(tmp_path: Path) -> None:
    require(_of_the_service, tmp_path)


def _of_the_service(folder: Path) -> Found:
    found = Found()
    with watched(folder, root_grace=100) as one:
        for number, (shape, way) in enumerate(product(SHAPES, WAYS)):
            body = encode(failed(shape, 1_000 + number))
            with found.during(one, f"{shape}, {way}", rest_s=0.1):
                send(one.line, body, way=way)
        for shape, trace in RUNS.items():
            with found.during(one, f"verdict on {shape}", rest_s=0.1):
                send(one.line, encode(failed(shape, trace)), way="grpc")
                one.verdict(trace)
        issues = json.loads(_ask(one, "GET /api/issues")[1])["issues"]
        names = {"issue_id": issues[0]["id"] if issues else "0" * 16}
        for ask in ASKED:
            with found.during(one, ask.route, rest_s=0.05):
                paths = product(_paths(ask.route, names), ask.query)
                statuses = {_ask(one, path, query, *_sent(ask))[0] for path, query in paths}
            assert max(statuses) < 500, (ask.route, statuses)
            assert 200 in statuses, (ask.route, statuses)
        _upload_all(one, found)
        _listen(one, found)
        for route in DELETED:
            with found.during(one, route, rest_s=0.05):
                for path in _paths(route, names):
                    assert _ask(one, path, {"all": "yes"})[0] in {200, 404}
    return found


def test_no_path_of_the_pages_alone_stalls_their_loop(tmp_path: Path) -> None:
    require(_of_pages_alone, tmp_path)


def _of_pages_alone(folder: Path) -> Found:
    found, log = Found(), folder / "log-web"
    with postgresql() as server:
        with watched(folder, root_grace=100, store_url=server.url()) as service:
            for shape, trace in RUNS.items():
                send(service.line, encode(failed(shape, trace)), way="grpc")
                service.verdict(trace)
        command, announced = ["serve", "pages", "--format", "json"], partial(announced_in, log, "web")
        with probed(log, command, announced, store_url=server.url(), token=TOKEN) as one:
            for name, form in FORMS.items():
                with found.during(one, f"POST /sign-in, {name}", rest_s=0.05):
                    sent = {"Content-Type": "application/x-www-form-urlencoded"}
                    assert _ask(one, "POST /sign-in", {}, form.encode(), sent)[0] < 500
            _read_all(one, found)
    return found


def _read_all(one: Watched, found: Found) -> None:
    """Ask the pages alone for all that can be read of a run."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    for ask in (one for one in ASKED if one.route.startswith("GET ") and "{issue_id}" not in one.route):
        with found.during(one, f"alone: {ask.route}", rest_s=0.05):
            statuses = {
                _ask(one, path, query, None, headers)[0]
                for path, query in product(_paths(ask.route, {}), ask.query)
            }
        assert max(statuses) < 500, (ask.route, statuses)
        assert 200 in statuses, (ask.route, statuses)


def _listen(one: Watched, found: Found) -> None:
    """Have many browsers listen while runs are judged; each hears of them."""
    readers = [HTTPConnection(one.line.web.removeprefix("http://"), timeout=LONG_S) for _ in range(READERS)]
    for reader in readers:
        reader.request("GET", "/events")
    streams = [reader.getresponse() for reader in readers]
    with found.during(one, f"GET /events, {READERS} readers", rest_s=0.5):
        for number, shape in enumerate(SHAPES, start=6_000):
            send(one.line, encode(failed(shape, number)), way="grpc")
            one.verdict(number)
        for stream in streams:
            assert any(line.startswith(b"event: runs") for line in stream)
    for reader in readers:
        reader.close()


def _paths(route: str, names: Mapping[str, str]) -> Iterator[str]:
    """Yield the route for every run, and for the first and a late step of it."""
    for run in NAMES.values() if "{run_id}" in route else ("",):
        for step in ("0", "90") if "{step}" in route else ("",):
            yield route.format(run_id=run, step=step, **names)


def _upload_all(one: Watched, found: Found) -> None:
    for shape in SHAPES:
        body = encode(failed(shape, 5_000))
        for kind, data in (("x-protobuf", body), ("json", to_json(Signal.TRACES, body))):
            with found.during(one, f"upload of {shape}, {kind}", rest_s=0.05):
                headers = {"Content-Type": f"application/{kind}"}
                status, text = _ask(
                    one, "POST /api/analyse", {"failed": "true", "wait_s": "60"}, data, headers
                )
                assert status in {200, 413}, text[:300]
                job = json.loads(text)["id"] if status == 200 else "none"
                for method in ("GET", "DELETE"):
                    _ask(one, f"{method} /api/analyse/{job}")


def _sent(ask: Ask) -> tuple[bytes | None, dict[str, str]]:
    """Return the body of a request, and its headers."""
    if ask.form:
        return ask.form.encode(), {"Content-Type": "application/x-www-form-urlencoded"}
    return None if ask.body is None else json.dumps(ask.body).encode(), {}


def _ask(
    one: Watched,
    asked: str,
    query: Mapping[str, str] | None = None,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, bytes]:
    """Send ``METHOD /path``; return status and body."""
    method, _, path = asked.partition(" ")
    told = {"Content-Type": "application/json", "Origin": one.line.web, **(headers or {})}
    url = f"{one.line.web}{path}?{urlencode(query or {})}"
    request = Request(url, data=body if method != "GET" else None, headers=told, method=method)
    try:
        with build_opener(ProxyHandler({})).open(request, timeout=LONG_S) as answer:
            return int(answer.status), answer.read()
    except HTTPError as error:
        with error:
            return error.code, error.read()
