"""What a recording keeps, what is removed from it, and which changes are reported."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from tests.frameworks.catalogue import FOLDER, RunScript
from tests.frameworks.changes import changes
from tests.frameworks.record import LARGEST
from tests.frameworks.scrub import PORT, scrub
from tests.frameworks.server import Happening
from tests.frameworks.truth import Truth, expected_steps

FIXTURES: Final = sorted((FOLDER / "fixtures").glob("*.json.gz"))
RUN: Final = RunScript(name="some", framework="some", instrumentation="some")


def span(number: int, name: str, **attributes: str) -> dict[str, Any]:
    return {
        "traceId": "0af7651916cd43dd8448eb211c80319c",
        "spanId": f"{number:016x}",
        "name": name,
        "startTimeUnixNano": str(10**18 + number),
        "endTimeUnixNano": str(10**18 + number + 1),
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()],
    }


def request(*spans: dict[str, Any], resource: Mapping[str, str] | None = None, version: str = "1") -> Any:
    about = [{"key": key, "value": {"stringValue": value}} for key, value in (resource or {}).items()]
    scope = {"name": "some.scope", "version": version}
    groups = [{"scope": scope, "spans": list(spans)}]
    return {"resourceSpans": [{"resource": {"attributes": about}, "scopeSpans": groups}]}


def fixture(document: Any) -> bytes:
    return gzip.compress(json.dumps(document).encode())


def truth(*log: Happening, **versions: str) -> Truth:
    return Truth(variant="normal", recorded="2026-01-01", versions=versions, log=log)


def test_the_machine_is_taken_out_and_the_service_stays() -> None:
    resource = {"service.name": "office", "host.name": "kiwi", "process.pid": "7", "os.type": "linux"}
    document = request(
        span(1, "x", url="http://127.0.0.1:4711/v1", file="/srv/me/lib/a.py"), resource=resource
    )

    line = scrub(document, port=4711, names={"/srv/me": "/venv"})

    assert "office" in line
    assert f"http://127.0.0.1:{PORT}/v1" in line
    assert "/venv/lib/a.py" in line
    assert not re.search(r"kiwi|process|linux|4711|/srv", line)


def test_the_servers_port_is_taken_out_as_a_number_too() -> None:
    document = request(span(1, "x"))
    attribute = {"key": "server.port", "value": {"intValue": "4711"}}
    document["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["attributes"].append(attribute)

    assert f'"intValue":"{PORT}"' in scrub(document, port=4711, names={})


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.name)
def test_a_fixture_is_small_and_tells_nothing_of_the_machine(path: Any) -> None:
    text = gzip.decompress(path.read_bytes()).decode()

    assert path.stat().st_size <= LARGEST
    assert not re.findall(r"host\.name|process\.pid|process\.command|os\.type", text)
    assert set(re.findall(r"127\.0\.0\.1:(\d+)", text)) <= {str(PORT)}
    # Files in stack traces; the folders are those that `scrub` was told to write.
    files = re.findall(r"(?<![\w.:/-])(/[\w.-]+)/[\w@./-]*\.(?:py|m?js|go|java)\b", text)
    assert set(files) <= {"/venv", "/app", "/usr", "/tmp"}


def test_a_recording_of_the_same_shape_has_not_changed() -> None:
    old = fixture(request(span(1, "chat", model="a")))
    new = fixture(request(span(2, "chat", model="b")))

    assert changes(old, new, (truth(some="1"), truth(some="1"))) == []


def test_versions_scopes_spans_and_attributes_that_changed_are_named() -> None:
    old = fixture(request(span(1, "chat", model="a", gone="b"), span(2, "old name")))
    new = fixture(request(span(1, "chat", model="a", new="b"), span(2, "new name"), version="2"))

    told = changes(old, new, (truth(some="1"), truth(some="2")))

    assert set(told) >= {
        "- version some 1",
        "+ version some 2",
        "- scope some.scope 1",
        "+ scope some.scope 2",
        "- span old name (unset)",
        "+ span new name (unset)",
        "- attribute of 'chat': gone",
        "+ attribute of 'chat': new",
    }


def llm(agent: str, began: int, ended: int, *calls: str, target: str | None = None) -> Happening:
    return Happening(kind="llm", agent=agent, began=began, ended=ended, calls=calls, target=target)


def test_a_transfer_is_a_handoff_and_a_call_that_only_asks_an_agent_is_no_step() -> None:
    passing = llm("a", 1, 2, "transfer_to_b", target="b")
    asking = llm("a", 1, 2, "ask_b", target="b")

    assert [each.kind for each in expected_steps(RUN, truth(passing))] == ["llm", "handoff"]
    assert [each.kind for each in expected_steps(RUN, truth(asking))] == ["llm"]


def test_a_word_more_of_the_agent_that_handed_over_is_no_step_but_its_next_act_is() -> None:
    passing, word = llm("a", 1, 2, "transfer_to_b", target="b"), llm("a", 3, 4)
    acting = llm("a", 3, 4, "look_up")

    assert [each.kind for each in expected_steps(RUN, truth(passing, word))] == ["llm", "handoff"]
    assert [each.kind for each in expected_steps(RUN, truth(passing, acting))] == ["llm", "handoff", "llm"]


def test_what_overlaps_is_one_group_and_what_follows_another() -> None:
    happened = truth(llm("a", 1, 3), llm("b", 2, 4), llm("c", 5, 6))

    first, second, third = expected_steps(RUN, happened)

    assert first.group == second.group
    assert third.group > second.group


def test_steps_that_the_spans_cannot_show_are_left_out() -> None:
    happened = truth(llm("a", 1, 2), llm("b", 3, 4))

    def shown(*hidden: str) -> list[str]:
        run = replace(RUN, hidden=dict.fromkeys(hidden, "no span"))
        return [each.agent for each in expected_steps(run, happened)]

    assert shown("a.llm") == ["b"]
    assert shown("normal.a.llm") == ["b"]
    assert shown("crash.a.llm", "tool") == ["a", "b"]
    assert shown("llm") == []
