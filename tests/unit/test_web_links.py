"""Links into other pages: of the users' own addresses, and nothing of a trace leaves its place."""

from __future__ import annotations

import json
from urllib.parse import parse_qs, urlsplit

import pytest

from analyzer.web.links import TraceLinks
from analyzer.web.side_pages import local

LINKS = TraceLinks(jaeger="http://jaeger:16686/", grafana="https://g.example/sub", tempo_uid="t1")


def test_jaeger_is_asked_for_the_trace_and_shows_the_span() -> None:
    name, address = LINKS.to("ab" * 16, "cd" * 8)[0]
    assert (name, address) == ("Jaeger", f"http://jaeger:16686/trace/{'ab' * 16}?uiFind={'cd' * 8}")


def test_grafana_explores_the_trace_in_tempo() -> None:
    _, address = LINKS.to("ab" * 16, None)[1]
    parts = urlsplit(address)
    assert (parts.netloc, parts.path) == ("g.example", "/sub/explore")
    (pane,) = json.loads(parse_qs(parts.query)["panes"][0]).values()
    assert (pane["datasource"], pane["queries"][0]["query"]) == ("t1", "ab" * 16)


def test_a_trace_id_cannot_leave_its_place() -> None:
    address = LINKS.to("../../x?y#z", None)[0][1]
    assert address == "http://jaeger:16686/trace/..%2F..%2Fx%3Fy%23z"


def test_without_a_trace_or_an_address_there_is_no_link() -> None:
    assert LINKS.to(None, None) == ()
    assert TraceLinks().to("ab" * 16, None) == ()


@pytest.mark.parametrize(
    "path",
    ["//evil.example", "/\\evil.example", "https://evil.example", "", "/a\nb", "javascript:x", "/x\\y"],
)
def test_nobody_is_sent_to_another_site_after_signing_in(path: str) -> None:
    assert local(path) == "/runs"


def test_after_signing_in_one_is_where_one_wanted_to_be() -> None:
    assert local("/runs/abc?from=3") == "/runs/abc?from=3"
