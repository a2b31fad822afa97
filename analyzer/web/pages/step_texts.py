"""A step's texts: messages, prompts and payloads, with the evidence marked, as they are or formatted. Pure.

Texts are shortened and freed of invisible characters here; the templates always escape them. Markdown is
rendered by markdown-it-py without raw HTML and without images; links lead to http and https only. JSON is
indented token by token, so that numbers, duplicate keys and their order stay as they were recorded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

from analyzer.inquiry.visible import visible
from analyzer.inquiry.whole_run import StepMessage, WholeStep
from collector_processor.rebuild.redaction import count_replaced

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
MOST_TEXT: Final = 6_000
"""Characters shown of one text; evidence beyond them is shown with its surroundings."""
MOST_WHOLE: Final = 2_000_000
"""Characters shown of one text that is requested in full."""
_CUT: Final = re.compile(r"\[[0-9]+ characters left out\]")
_AROUND: Final = 400
INPUT: Final = "input"
OUTPUT: Final = "output"
SYSTEM: Final = "system"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A piece of a step's text."""

    text: str
    is_evidence: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownText:
    """One text of a step."""

    name: str
    pieces: tuple[Piece, ...]
    role: str = ""
    """Speaker of a message; else empty."""
    formatted: Formatted | None = None
    left_out: int = 0
    """Number of characters that are kept but not shown."""
    replaced: int = 0
    """Number of secrets replaced in it."""
    is_cut: bool = False
    """Whether part of it was too long to be kept."""

    @property
    def is_best_formatted(self) -> bool:
        """Whether to show it formatted first: no evidence is lost by that."""
        return self.formatted is not None and self.formatted.is_marked

    @property
    def has_evidence(self) -> bool:
        """Whether the verdict quotes it."""
        return any(piece.is_evidence for piece in self.pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTool:
    """A tool that was offered to a model."""

    name: str
    description: str
    schema: Formatted | None
    """JSON Schema of its parameters."""


def texts_of(step: WholeStep, quotes: Sequence[str], limit: int) -> tuple[ShownText, ...]:
    """Return a step's texts in reading order.

    Args:
        step: with its messages in full, if its span is kept.
        quotes: texts to mark as evidence.
        limit: characters shown of each.
    """
    wanted = [visible(quote) for quote in quotes]
    sources = [
        *_sources(INPUT, step.messages, step.input, step),
        *_sources(OUTPUT, step.answers, step.output, step),
    ]
    if step.error:
        sources.append(_Source(name="error", text=shown_text(step.error)))
    shown = [_shown(source, wanted, limit) for source in sources if source.text]
    found = {quote for quote in wanted if any(quote in source.text for source in sources)}
    missing = [quote for quote in wanted if quote.strip() and quote not in found]
    for name, text in (("input as it was analysed", step.input), ("output as it was analysed", step.output)):
        if any(quote in text for quote in missing):
            shown.append(_shown(_Source(name=name, text=shown_text(text)), missing, limit))
    return tuple(shown)


def prompt_of(step: WholeStep, quotes: Sequence[str], limit: int) -> ShownText | None:
    """Return a step's system prompt, if recorded; arguments as for ``texts_of``."""
    if not step.instructions:
        return None
    wanted = [visible(quote) for quote in quotes]
    return _shown(_Source(name="system prompt", text=shown_text(step.instructions)), wanted, limit)


def tools_of(step: WholeStep) -> tuple[ShownTool, ...]:
    """Return the tools offered to a step's model; without their schemas if only their names are kept."""
    if not step.offered:
        lines = [shown_text(line).partition(": ") for line in step.tools.splitlines()]
        return tuple(ShownTool(name=name, description=said, schema=None) for name, _, said in lines)
    return tuple(
        ShownTool(
            name=shown_text(tool.name),
            description=shown_text(tool.description),
            schema=formatted(tool.parameters, is_prose=False),
        )
        for tool in step.offered
    )


def text_length(step: WholeStep) -> int:
    """Return about how many characters a step's texts take on a page."""
    messages = (*step.messages, *step.answers)
    if not messages:
        return min(len(step.input), MOST_TEXT) + min(len(step.output), MOST_TEXT)
    return sum(
        min(len(one.text) + sum(len(call.arguments) for call in one.calls), MOST_TEXT) for one in messages
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """A text with its heading."""

    name: str
    text: str
    role: str = ""


def _sources(name: str, messages: Sequence[StepMessage], text: str, step: WholeStep) -> Iterator[_Source]:
    """Yield messages, else the one text; the system prompt has a place of its own."""
    prompt = step.instructions.strip()
    spoken = [one for one in messages if one.role != SYSTEM or one.text.strip() != prompt]
    if not messages:
        yield _Source(name=name, text=shown_text(text))
    is_payload = len(spoken) == 1 and spoken[0].role in {"input", "output"}
    for message in spoken:
        role = message.role + (f" ({message.name})" if message.name else "")
        yield _Source(name=name, text=shown_text(message.text), role="" if is_payload else shown_text(role))
        for call in message.calls:
            calls = f"{message.role} calls {call.name}"
            yield _Source(name=name, text=shown_text(call.arguments or "()"), role=shown_text(calls))


def _shown(source: _Source, quotes: Sequence[str], limit: int) -> ShownText:
    pieces = highlighted(source.text, quotes)
    quoted = [quote for quote in quotes if quote.strip() and quote in source.text]
    text = ShownText(
        name=source.name,
        role=source.role,
        pieces=pieces,
        replaced=count_replaced(source.text),
        is_cut=bool(_CUT.search(source.text)),
        formatted=formatted(source.text, quoted, is_prose=source.name != "error"),
    )
    if len(source.text) <= limit:
        return text
    shortened = tuple(_shortened(piece) for piece in pieces)
    shown = sum(len(piece.text) for piece in shortened)
    return replace(text, pieces=shortened, left_out=max(0, len(source.text) - shown), formatted=None)


def highlighted(text: str, quotes: Iterable[str]) -> tuple[Piece, ...]:
    """Split a text where quotes begin and end; overlapping quotes form one piece."""
    found = sorted(
        (at, at + len(quote)) for quote in quotes if quote.strip() and (at := text.find(quote)) >= 0
    )
    pieces: list[Piece] = []
    done = 0
    for start, end in _joined(found):
        if start > done:
            pieces.append(Piece(text=text[done:start]))
        pieces.append(Piece(text=text[start:end], is_evidence=True))
        done = end
    if done < len(text):
        pieces.append(Piece(text=text[done:]))
    return tuple(pieces)


def _joined(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _shortened(piece: Piece) -> Piece:
    """Shorten a piece of a long text: evidence stays whole, other text keeps its ends."""
    if piece.is_evidence or len(piece.text) <= MOST_TEXT // 2:
        return Piece(text=piece.text[:MOST_TEXT], is_evidence=piece.is_evidence)
    head, tail = piece.text[: MOST_TEXT // 2 - _AROUND], piece.text[-_AROUND:]
    return Piece(text=f"{head}\n […] \n{tail}")
