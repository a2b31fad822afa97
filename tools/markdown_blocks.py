"""What stands in the pages: fenced blocks, links and headings, as a Markdown parser sees them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
_PARSER: Final = MarkdownIt("commonmark").enable("table")
_PROMPT: Final = "$ "
_ID: Final = re.compile(r'<a id="([^"]+)">')
_NO_WORD: Final = re.compile(r"[^\w\- ]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block."""

    language: str
    text: str


def pages() -> list[Path]:
    """Return every page of the site."""
    return sorted(DOCS.rglob("*.md"))


def blocks(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page, in order."""
    for token in _PARSER.parse(page.read_text(encoding="utf-8")):
        if token.type == "fence":
            yield Block(language=token.info.partition(" ")[0], text=token.content)


def session(page: Path) -> str:
    """Return the console blocks of a page as one script; what follows a command belongs to it."""
    lines = "".join(block.text for block in blocks(page) if block.language == "console").splitlines()
    return "\n".join(line.removeprefix(_PROMPT) for line in lines) + "\n"


def targets(page: Path) -> Iterator[str]:
    """Yield where the links and pictures of a page point to."""
    for token in _inline(page):
        target = token.attrGet("href") if token.type == "link_open" else None
        target = token.attrGet("src") if token.type == "image" else target
        if target is not None:
            yield str(target)


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the ids of a page's headings, as GitHub and the site make them, and those set by hand."""
    tokens = _PARSER.parse(page.read_text(encoding="utf-8"))
    headings = (after for token, after in pairwise(tokens) if token.type == "heading_open")
    made = {_slug("".join(child.content for child in heading.children or ())) for heading in headings}
    return frozenset(made).union(_ID.findall(page.read_text(encoding="utf-8")))


def _inline(page: Path) -> Iterator[Token]:
    for token in _PARSER.parse(page.read_text(encoding="utf-8")):
        yield from token.children or ()


def _slug(heading: str) -> str:
    return _NO_WORD.sub("", heading.lower()).strip().replace(" ", "-")
