"""Every attribute in the searches of the pages and of Jaeger's skill is one that blamespan writes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import yaml

from semconv import attributes
from semconv.model import Status
from tests.docs.jaeger_searches import searches
from tools.markdown_blocks import DOCS

TRACEQL: Final = DOCS / "backends" / "traceql.yaml"
KNOWN: Final = {value for value in vars(attributes).values() if isinstance(value, str)}
SKILLS: Final = Path(__file__).parents[2] / "deploy" / "jaeger" / "skills"
MOUNTED: Final = "custom/"
"""Where Jaeger serves the folder of ``ai.mcp.skills_dir``; links are relative to the parent of this."""
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


def skill(path: Path) -> tuple[dict[str, Any], str]:
    """Return a skill's front matter and text."""
    before, front, text = path.read_text(encoding="utf-8").split("---\n", 2)
    assert before == ""
    found: dict[str, Any] = yaml.safe_load(front)
    return found, text


def test_jaegers_index_links_each_skill_by_its_description() -> None:
    _, index = skill(SKILLS / "SKILL.md")
    links = re.findall(r"^- \[([a-z-]+)\]\(([^)]+)\) — (.+?)(?=\n- |\Z)", index, re.MULTILINE | re.DOTALL)
    files = sorted(path for path in SKILLS.rglob("*.md") if path.parent != SKILLS)
    assert [SKILLS / link.removeprefix(MOUNTED) for _, link, _ in links] == files
    for (name, link, line), path in zip(links, files, strict=True):
        front, _ = skill(path)
        assert link.startswith(MOUNTED)
        assert (front["name"], path.parent.name) == (name, name)
        assert " ".join(line.split()) == " ".join(front["description"].split())
        # The Agent Skills specification's bounds.
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
        assert len(name) <= 64
        assert len(front["description"]) <= 1024


def test_jaegers_skill_has_the_searches_of_the_page() -> None:
    _, text = skill(SKILLS / "blamed-agent" / "SKILL.md")
    rows = re.findall(r"^\| ([^|]+) \| `(\{[^|]+\})` \|$", text, re.MULTILINE)
    assert {find: json.loads(tags) for find, tags in rows} == {one.find: one.tags for one in searches()}


def test_jaegers_skill_names_only_what_blamespan_writes_and_all_ways_to_end() -> None:
    _, text = skill(SKILLS / "blamed-agent" / "SKILL.md")
    named = set(re.findall(r"blamespan\.[a-z_.]*[a-z_]", text))
    assert named
    assert named - KNOWN == set()
    assert [status for status in Status if f"`{status}`" not in text] == []
