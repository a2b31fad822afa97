"""The searches in the table of docs/backends/jaeger.md."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tools.markdown_blocks import DOCS

PAGE: Final = DOCS / "backends" / "jaeger.md"
_ROW: Final = re.compile(r"^\| ([^|]+) \| `(blamespan\.[^`]+)` \|$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """One search."""

    find: str
    tags: dict[str, str]


def searches() -> list[Search]:
    """Return the searches in the page's order."""
    rows = _ROW.findall(PAGE.read_text(encoding="utf-8"))
    return [Search(find=find, tags=dict(tag.split("=", 1) for tag in tags.split())) for find, tags in rows]
