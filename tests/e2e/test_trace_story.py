"""Later verdicts in a real Jaeger: corrected by a person, and of joined runs."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode
from urllib.request import ProxyHandler, build_opener
from uuid import uuid4

from collector_processor.rebuild.decode import decode
from collector_processor.rebuild.encode import encode
from semconv.attributes import (
    ERROR,
    FAILURE_AGENT_NAME,
    FAILURE_CONFIDENCE,
    FAILURE_DECISIVE,
    FAILURE_ID,
    FAILURE_METHOD,
    FAILURE_STATUS,
    FAILURE_STEP_TRACE_ID,
    FAILURE_SUPERSEDES,
    FAILURE_VERSION,
    FAILURE_WITHDRAWN_AGENT_NAME,
    FAILURE_WITHDRAWN_VERSION,
    RUN_ROOT_TRACE_ID,
    RUN_URL,
)
from semconv.model import Link, Span, TraceId
from tests.backends.jaeger_query import JaegerSpan
from tests.backends.processes import RunningJaeger
from tests.e2e.in_jaeger import Seen, look, tags, trace_ids
from tests.e2e.line import Line, StartLine
from tests.e2e.test_labels import cli, label_over_http
from tests.e2e.test_line_jaeger import settings_for
from tests.e2e.traffic import CARRIERS, DEMO_SPANS, Played, play_demo, send, span_id
from tools.markdown_blocks import DOCS, blocks

HASTE_MS: Final = 300
WITHDRAWALS: Final = 2
"""Places of a withdrawal: beside the old mark and under the root."""
NAMES: Final = ["calculator: wrong computation", "failure: calculator (wrong computation)"]
PAGES: Final = "https://blame.example"


def started(start_line: StartLine, jaeger: RunningJaeger, **settings: str | int) -> Line:
    return start_line(**{"root_grace": HASTE_MS, **settings_for(jaeger, "grpc"), **settings})


def played() -> Played:
    return play_demo(service=f"solar-{uuid4().hex}")


def service_of(seen: Seen) -> str:
    (name,) = {process["serviceName"] for process in seen.trace["processes"].values()}
    return name


def story(seen: Seen) -> list[tuple[str, str, int]]:
    """Return each carrier's name, parent and version, ordered by version."""
    told = [
        (one["operationName"], one["references"][0]["spanID"], tags(one)[FAILURE_VERSION])
        for one in seen.carriers()
    ]
    return sorted(told, key=lambda one: one[2])


def named(seen: Seen, name: str) -> list[JaegerSpan]:
    return [one for one in seen.carriers() if one["operationName"] == name]


def blamed_now(jaeger: RunningJaeger, service: str, agent: str) -> list[str]:
    """Return the traces in which the agent is currently blamed, according to the page's script."""
    (script,) = [one.text for one in blocks(DOCS / "backends" / "jaeger.md") if "max_by" in one.text]
    program = script[script.index("'.data") + 1 : script.rindex("'")].replace('"calculator"', f'"{agent}"')
    asked = {"service": service, "tags": json.dumps({FAILURE_AGENT_NAME: agent}), "lookback": "1h"}
    url = f"{jaeger.query.base_url}/api/traces?{urlencode(asked)}"
    with build_opener(ProxyHandler({})).open(url, timeout=60) as answer:
        reply: bytes = answer.read()
    said = subprocess.run(["jq", "-r", program], input=reply, capture_output=True, check=True)
    return said.stdout.decode().split()


def found(jaeger: RunningJaeger, service: str, **asked: str) -> list[str]:
    return trace_ids(jaeger.query.find_traces(service, tags=asked))


def test_corrected_by_a_person_twice_the_trace_says_each_time_who_it_was_and_who_it_was_not(
    start_line: StartLine, jaeger: RunningJaeger, tmp_path: Path
) -> None:
    line, run = started(start_line, jaeger, web_url=PAGES), played()
    send(line, run.body)
    first = look(jaeger, run.trace_id, spans=DEMO_SPANS + CARRIERS)
    service = service_of(first)

    given = label_over_http(line, run.trace_id, "label", {"step": 0})
    assert (given["trace_follows"], given["trace_obstacle"]) == (True, None)
    agent = given["agent"]
    assert agent != "calculator"
    now = line.verdict(run.trace_id)
    assert (now["version"], now["agent"], now["method"]) == (2, agent, "person")
    expected = DEMO_SPANS + 2 * CARRIERS + WITHDRAWALS
    corrected = look(jaeger, run.trace_id, spans=expected)

    decisive, root = span_id(run.decisive), span_id(run.root)
    withdrawn = f"withdrawn: calculator → {agent}"
    assert sorted(story(corrected)[2:]) == sorted(
        [
            (f"{agent}: decisive error", given["span_id"], 2),
            (f"failure: {agent}, replaces verdict 1", root, 2),
            (withdrawn, decisive, 2),
            (withdrawn, root, 2),
        ]
    )
    (of_root,) = named(corrected, f"failure: {agent}, replaces verdict 1")
    assert tags(of_root)[ERROR] is True
    assert tags(of_root)[RUN_URL] == f"{PAGES}/runs/{run.trace_id}"
    assert (tags(of_root)[FAILURE_METHOD], tags(of_root)[FAILURE_CONFIDENCE]) == ("person", 1)
    for one in named(corrected, withdrawn):
        assert tags(one)[FAILURE_STATUS] == "withdrawn"
        assert (tags(one)[FAILURE_WITHDRAWN_AGENT_NAME], tags(one)[FAILURE_WITHDRAWN_VERSION]) == (
            "calculator",
            1,
        )
        assert tags(one)[FAILURE_SUPERSEDES] == tags(first.decisive()[0])[FAILURE_ID]
        assert FAILURE_DECISIVE not in tags(one)
    assert corrected.warnings() == []
    if shutil.which("jq"):
        assert blamed_now(jaeger, service, agent) == [run.trace_id]
        assert blamed_now(jaeger, service, "calculator") == []

    label_over_http(line, run.trace_id, "label", {"step": 0})  # the same again changes nothing
    said = cli(tmp_path / "data", "label", run.trace_id, "--did-not-fail", "--format", "json")
    assert said.json["trace_follows"] is True
    assert line.verdict(run.trace_id, version=3)["status"] == "no_failure"
    ended = look(jaeger, run.trace_id, spans=expected + 1 + WITHDRAWALS)
    assert sorted(story(ended)[6:]) == sorted(
        [
            ("no failure found, replaces verdict 2", root, 3),
            (f"withdrawn: {agent}", given["span_id"], 3),
            (f"withdrawn: {agent}", root, 3),
        ]
    )
    if shutil.which("jq"):
        assert blamed_now(jaeger, service, agent) == []
    assert found(jaeger, service, **{FAILURE_STATUS: "withdrawn"}) == [run.trace_id]


def apart(run: Played, agent: str) -> tuple[list[Span], list[Span]]:
    """Return the run as two traces: one agent's part, and all the rest, to which it links."""
    spans = decode(run.body).spans
    top = next(one for one in spans if one.name == f"invoke_agent {agent}")
    link = Link(trace_id=top.trace_id, span_id=span_id(run.root))
    other = TraceId(uuid4().hex)
    taken = {top.span_id}
    while grown := {one.span_id for one in spans if one.parent_id in taken} - taken:
        taken |= grown
    part = [
        replace(one, trace_id=other, parent_id=None, links=(link,))
        if one is top
        else replace(one, trace_id=other)
        for one in spans
        if one.span_id in taken
    ]
    return [one for one in spans if one.span_id not in taken], part


def test_of_a_joined_run_the_culprits_trace_and_the_roots_both_name_it_and_each_other(
    start_line: StartLine, jaeger: RunningJaeger
) -> None:
    line, run = started(start_line, jaeger, root_grace=5_000), played()  # both are sent before it is over
    rest, part = apart(run, "calculator")
    send(line, encode(part))  # first: it is due first, and says whom it waits for
    send(line, encode(rest))
    ids: dict[str, Any] = {FAILURE_STEP_TRACE_ID: part[0].trace_id, RUN_ROOT_TRACE_ID: run.trace_id}
    names = dict(zip((part[0].trace_id, run.trace_id), NAMES, strict=True))

    for spans in (rest, part):
        seen = look(jaeger, spans[0].trace_id, spans=len(spans) + 1)
        (one,) = [span for span in seen.carriers() if tags(span)[FAILURE_STATUS] == "attributed"]
        assert one["operationName"] == names[spans[0].trace_id]
        assert (tags(one)[FAILURE_AGENT_NAME], tags(one)[ERROR]) == ("calculator", True)
        assert {name: tags(one)[name] for name in ids} == ids
