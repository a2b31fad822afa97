"""Every attribute in the pages' searches is one that blamespan writes."""

from __future__ import annotations

import re
from typing import Final

import yaml

from semconv import attributes
from tests.docs.jaeger_searches import searches
from tools.markdown_blocks import DOCS

TRACEQL: Final = DOCS / "backends" / "traceql.yaml"
KNOWN: Final = {value for value in vars(attributes).values() if isinstance(value, str)}
ATTRIBUTE: Final = re.compile(r"\bspan\.([a-z_.]+)")


def queries() -> list[str]:
    return [one["query"] for one in yaml.safe_load(TRACEQL.read_text(encoding="utf-8"))]


def test_traceql_asks_for_attributes_that_are_written() -> None:
    asked = {name for query in queries() for name in ATTRIBUTE.findall(query)}
    assert asked
    assert asked - KNOWN == set()


def test_traceql_is_balanced() -> None:
    for query in queries():
        assert query.startswith("{ "), query
        assert all(query.count(left) == query.count(right) for left, right in ("{}", "()")), query
        assert query.count('"') % 2 == 0, query


def test_searches_in_jaeger_ask_for_attributes_that_are_written() -> None:
    asked = {name for search in searches() for name in search.tags}
    assert asked
    assert asked - KNOWN == set()


def test_a_table_of_traceql_stands_in_one_file_only() -> None:
    pages = [page for page in DOCS.rglob("*.md") if "{ span." in page.read_text(encoding="utf-8")]
    assert pages == [], "write it into docs/backends/traceql.yaml"
