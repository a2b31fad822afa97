"""Links to other pages use only the users' own addresses, and a trace's text cannot break out of them."""

from __future__ import annotations

import pytest

from analyzer.web.pages.front import TraceLink, local

JAEGER = TraceLink(template="http://jaeger:16686/trace/{trace_id}?uiFind={span_id}")


def test_the_template_leads_to_the_trace_and_its_span() -> None:
    trace, span = "ab" * 16, "cd" * 8
    assert JAEGER.to(trace, span) == f"http://jaeger:16686/trace/{trace}?uiFind={span}"
    assert JAEGER.to(trace, None) == f"http://jaeger:16686/trace/{trace}?uiFind="
    assert TraceLink(template="https://g/x#{trace_id}").to(trace, span) == f"https://g/x#{trace}"


def test_a_trace_id_cannot_change_the_rest_of_the_link() -> None:
    address = JAEGER.to("../../x?y#z{span_id}", None)
    assert address == "http://jaeger:16686/trace/..%2F..%2Fx%3Fy%23z%7Bspan_id%7D?uiFind="


def test_without_a_trace_or_a_template_there_is_no_link() -> None:
    assert JAEGER.to(None, None) == ""
    assert TraceLink().to("ab" * 16, None) == ""


@pytest.mark.parametrize(
    "path",
    ["//evil.example", "/\\evil.example", "https://evil.example", "", "/a\nb", "javascript:x", "/x\\y"],
)
def test_signing_in_redirects_to_no_other_site(path: str) -> None:
    assert local(path) == "/runs"


def test_signing_in_leads_back_to_the_requested_page() -> None:
    assert local("/runs/abc?from=3") == "/runs/abc?from=3"
