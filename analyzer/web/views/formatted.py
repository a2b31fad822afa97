"""Safe rendering of a step's texts: Markdown and JSON as HTML, everything from the text escaped. Pure.

Markdown is rendered by markdown-it-py without raw HTML and without images; links lead to http and https only.
JSON is indented token by token, so that numbers, duplicate keys and their order stay as they were recorded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

from analyzer.inquiry.visible import visible

MOST_FORMATTED: Final = 20_000
"""Characters of the longest text that is formatted; longer ones are shown as they are."""
MOST_MARKDOWN: Final = 8_000
"""The same for Markdown, whose time grows faster than its length: 8,000 times ``[`` takes up to 0.3 s."""
_REMEMBERED: Final = 512
"""Rendered texts; messages recur in each later call of a conversation."""
_DEEPEST_INDENT: Final = 12
_LOOKS_LIKE_MARKDOWN: Final = re.compile(
    r"^#{1,6} \S|^[ \t]*(?:[-*+]|\d{1,4}[.)]) +\S|^[ \t]*(?:```|~~~)|^\|.+\|[ \t]*$"
    r"|\*\*[^*\n]+\*\*|\[[^\[\]\n]+\]\(https?:",
    re.MULTILINE,
)
_JSON_TOKEN: Final = re.compile(
    r'(?P<string>"(?:[^"\\]|\\.)*+")|(?P<mark>[\[\]{},:])|(?P<word>[^\s"\[\]{},:]+)'
)
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Formatted:
    """A text as HTML."""

    kind: str
    """``Markdown`` or ``JSON``."""
    html: Markup
    is_marked: bool = True
    """Whether everything that the verdict quotes from the text is marked."""


def shown_text(text: str) -> str:
    """Return a text that a page can hold: no invisible characters, no lone surrogates."""
    return _SURROGATES.sub("\ufffd", visible(text))


def formatted(text: str, quotes: Sequence[str] = (), *, is_prose: bool = True) -> Formatted | None:
    """Return a text as HTML if it is JSON, or, for prose, Markdown; ``None`` to show it as it is."""
    if not text or len(text) > MOST_FORMATTED:
        return None
    indented = json_html(text)
    if indented is not None:
        return Formatted(kind="JSON", html=indented, is_marked=not quotes)
    if is_prose and len(text) <= MOST_MARKDOWN and _LOOKS_LIKE_MARKDOWN.search(text):
        return _markdown_of(text, tuple(quotes))
    return None


def clear_formatted() -> None:
    """Drop all rendered texts in memory."""
    _markdown_of.cache_clear()


def json_html(text: str) -> Markup | None:
    """Return a JSON object or list, indented; ``None`` if the text is neither, or nested too deep."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    tokens = list(_JSON_TOKEN.finditer(text))
    parts: list[str] = []
    depth = 0
    for number, token in enumerate(tokens):
        following = tokens[number + 1][0] if number + 1 < len(tokens) else ""
        if token["string"]:
            parts.append(_string(token[0], is_key=following == ":"))
            continue
        match token[0]:
            case "{" | "[" as opening:
                depth += 1
                parts += (opening, "" if following in "]}" else _line(depth))
            case "}" | "]" as closing:
                depth -= 1
                parts += ("" if tokens[number - 1][0] in "[{" else _line(depth), closing)
            case ",":
                parts += (",", _line(depth))
            case ":":
                parts.append(": ")
            case word:
                parts.append(str(escape(word)))
    return Markup("".join(parts))  # noqa: S704 - each part is ours or escaped


def _line(depth: int) -> str:
    return "\n" + "  " * min(depth, _DEEPEST_INDENT)


def _string(token: str, *, is_key: bool) -> str:
    """Return a JSON string with its escapes of letters decoded, as people write them."""
    decoded = json.dumps(shown_text(json.loads(token)), ensure_ascii=False)
    return f'<span class="key">{escape(decoded)}</span>' if is_key else str(escape(decoded))


@lru_cache(maxsize=_REMEMBERED)
def _markdown_of(text: str, quotes: tuple[str, ...]) -> Formatted:
    """Return Markdown as HTML without headings, images, inline styles, or links to anything but the web."""
    tokens = _MARKDOWN.parse(text)
    found: set[str] = set()
    _adapt(tokens, quotes, found)
    html = Markup(_MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {}))  # noqa: S704 - raw HTML is off
    return Formatted(kind="Markdown", html=html, is_marked=len(found) == len(set(quotes)))


def _adapt(tokens: Sequence[Token], quotes: Sequence[str], found: set[str]) -> None:
    """Change tokens for a page with headings of its own, and a policy that forbids inline styles."""
    for token in tokens:
        quoted = [quote for quote in quotes if quote in token.content] if token.type == "text" else []
        if quoted:
            _mark(token, max(quoted, key=len))
            found |= {quote for quote in quoted if quote in max(quoted, key=len)}
        style = token.attrs.pop("style", None)
        if style == "text-align:right":
            token.attrs["class"] = "number"
        if token.type == "heading_open":
            token.tag, token.attrs["class"] = "p", "heading"
        elif token.type == "heading_close":
            token.tag = "p"
        elif token.type == "th_open":
            token.attrs["scope"] = "col"
        elif token.type == "link_open":
            token.attrs |= {"rel": "noreferrer noopener nofollow", "title": token.attrs.get("href", "")}
        elif token.type == "fence":
            token.info = ""  # the language would become a class
        _adapt(token.children or (), quotes, found)


def _mark(token: Token, quote: str) -> None:
    """Mark what is quoted, in a token whose content becomes HTML that is ours and escaped."""
    before, _, after = token.content.partition(quote)
    token.type = "html_inline"
    token.content = str(Markup("{}<mark>{}</mark>{}").format(before, quote, after))


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.netloc)


class _Markdown(MarkdownIt):
    """A parser whose links lead to the web only."""

    def validateLink(self, url: str) -> bool:  # noqa: N802 - the library's name
        return _is_web_address(url)


def _markdown() -> _Markdown:
    rules: dict[str, Any] = {"html": False, "maxNesting": 20}
    parser = _Markdown("commonmark", rules)
    parser.enable(["table", "strikethrough"])
    parser.disable(["image", "html_block", "html_inline"])
    return parser


_MARKDOWN: Final = _markdown()
