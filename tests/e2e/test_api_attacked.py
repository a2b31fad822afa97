"""Every endpoint of the API's description, attacked by schemathesis in a running service.

Bodies and parameters follow the description or violate it. Every answer has a described status, content type
and schema; none is a server error, and the service neither dies nor logs a traceback. The same holds for a
service that requires a token, with and without it: without it every answer is 401. Only the first bytes of
the endless stream of events are read.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final
from urllib.request import ProxyHandler, build_opener

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable

from analyzer.web.guard import OPEN_PATHS
from tests.backends.supervise import wait_until
from tests.deploy.shifts import work
from tests.e2e.line import Line, starting

schemathesis: Any = pytest.importorskip("schemathesis", reason="needs requirements/dev.txt of this version")
requests: Any = pytest.importorskip("requests", reason="schemathesis brings it")
openapi_checks: Any = pytest.importorskip("schemathesis.specs.openapi.checks")

EXAMPLES: Final = 20
FEW: Final = 3
"""Examples where a token is missing: nothing else of a request is looked at, and each wrong one waits."""
CHECKS: Final = [
    pytest.importorskip("schemathesis.checks").not_a_server_error,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_schema_conformance,
    openapi_checks.negative_data_rejection,
    openapi_checks.unsupported_method,
]
FITS: Final = schemathesis.GenerationMode.POSITIVE
BREAKS: Final = schemathesis.GenerationMode.NEGATIVE
_ENDLESS: Final = "/events"
TOKEN: Final = "a-token-of-the-operator"
_SLOW: Final = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    """A service with a failed run, a run that passed, and an issue."""
    with starting(tmp_path_factory.mktemp("attacked")) as start:
        opened = start(root_grace=100)
        for failing in ("clerk", None, "clerk"):
            opened.verdict(work(opened, "planner", "clerk", failing=failing))
        wait_until(lambda: asked(opened, "/api/issues")["issues"], what="an issue")
        yield opened
        assert opened.server.process.poll() is None, opened.server.tail()
        said = opened.server.log.read_text(errors="replace")
        assert "Traceback" not in said, said[said.index("Traceback") - 500 :][:3000]


def asked(line: Line, path: str) -> Any:
    with build_opener(ProxyHandler({})).open(line.web + path, timeout=300) as answer:
        return json.loads(answer.read())


@pytest.fixture(scope="module")
def names(line: Line) -> dict[str, str]:
    """Existing ids: random ones are never found."""
    run, issue = asked(line, "/api/runs")["runs"][0], asked(line, "/api/issues")["issues"][0]
    return {"run_id": run["run_id"], "issue_id": issue["id"]}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    """A service that requires a token and has no runs."""
    with starting(tmp_path_factory.mktemp("guarded")) as start:
        opened = start(token=TOKEN)
        yield opened
        assert opened.server.process.poll() is None, opened.server.tail()
        assert "Traceback" not in opened.server.log.read_text(errors="replace")


def schema_of(line: Line, headers: Mapping[str, str]) -> Any:
    return schemathesis.openapi.from_url(f"{line.web}/api/openapi.json", headers=dict(headers))


def operations(line: Line, headers: Mapping[str, str] = MappingProxyType({})) -> list[Any]:
    schema = schema_of(line, headers).exclude(path=_ENDLESS)
    return [found.ok() for found in schema.get_all_operations()]


def attacked(
    line: Line, operation: Any, mode: Any, headers: Mapping[str, str], examples: int = EXAMPLES, **how: Any
) -> Counter[int]:
    """Send generated requests of one operation, compare the answers with the description; return statuses."""
    statuses: Counter[int] = Counter()

    @given(operation.as_strategy(generation_mode=mode, **how))
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=_SLOW)
    def attack(case: Any) -> None:
        response = case.call(base_url=line.web, timeout=3000, headers=dict(headers))
        statuses[response.status_code] += 1
        case.validate_response(response, checks=CHECKS)

    with suppress(Unsatisfiable):  # a request without a parameter or body fits in any form
        attack()
    return statuses


@pytest.mark.parametrize("mode", [FITS, BREAKS], ids=["fits", "breaks"])
def test_every_answer_is_described_whatever_is_asked(line: Line, names: dict[str, str], mode: Any) -> None:
    statuses: Counter[int] = Counter()
    for operation in operations(line):
        known = {name: value for name, value in names.items() if f"{{{name}}}" in operation.path}
        for path_parameters in ({}, known) if known else ({},):
            statuses += attacked(line, operation, mode, {}, path_parameters=path_parameters)
    wanted = {200, 400, 404} if mode is FITS else {200, 400}
    assert wanted <= set(statuses), statuses


@pytest.mark.parametrize("mode", [FITS, BREAKS], ids=["fits", "breaks"])
def test_every_answer_is_described_where_a_token_is_required(guarded: Line, mode: Any) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    statuses: Counter[int] = Counter()
    for operation in operations(guarded, headers):
        statuses += attacked(guarded, operation, mode, headers)
    assert 401 not in statuses
    assert {200, 400} <= set(statuses), statuses


def test_without_the_token_nothing_is_answered(guarded: Line) -> None:
    for operation in operations(guarded, {"Authorization": f"Bearer {TOKEN}"}):
        if operation.path in OPEN_PATHS:
            continue
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            assert set(attacked(guarded, operation, FITS, headers, FEW)) == {401}, operation.label


@pytest.mark.parametrize("mode", [FITS, BREAKS], ids=["fits", "breaks"])
def test_the_stream_of_events_begins_as_described_whatever_is_asked(line: Line, mode: Any) -> None:
    operation = schema_of(line, {})[_ENDLESS]["GET"]

    @given(operation.as_strategy(generation_mode=mode))
    @settings(max_examples=3, deadline=None, database=None, suppress_health_check=_SLOW)
    def listen(case: Any) -> None:
        asked = case.as_transport_kwargs(base_url=line.web)
        with requests.request(**asked, stream=True, timeout=300) as response:
            assert response.status_code in {200, 400}
            if response.status_code == 200:
                assert response.headers["Content-Type"].startswith("text/event-stream")
                assert next(response.iter_content(None)).startswith(b"retry: ")

    with suppress(Unsatisfiable):
        listen()
    assert "runs" in asked(line, "/api/runs"), "the service goes on"  # others of these delete all


def test_a_stream_of_events_needs_the_token_too(guarded: Line) -> None:
    assert requests.get(guarded.web + _ENDLESS, timeout=300).status_code == 401
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with requests.get(guarded.web + _ENDLESS, headers=headers, stream=True, timeout=300) as response:
        assert response.status_code == 200
