"""Template rendering: everything escaped, no inline script or style, nothing from other sites."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from io import BytesIO
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from aiohttp import web
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from analyzer.inquiry.present import is_unsaid, plain
from analyzer.inquiry.visible import visible
from collector_processor.core.runs import RunTotals
from collector_processor.otlp import Tenant
from semconv.model import (
    Status,
    agent_in_prose,
    agent_label,
)

_AT_ONCE: Final = 256 << 10
"""Bytes of a body sent at once. Longer bodies are sent in pieces, between which the event loop does other
work: to send 30 MB at once takes 0.1 s."""
HERE: Final = Path(__file__).parent
STATIC: Final = HERE / "static"
PAGE_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    # Not "no-referrer": with it, browsers omit a form's origin, which the guard requires.
    "Referrer-Policy": "same-origin",
}
STATUS_WORDS: Final = {
    "attributed": "failed",
    "suspected": "suspected",
    "no_failure": "no failure",
    "undetermined": "undetermined",
    "waiting": "waiting",
    "cancelled": "cancelled",
    "unreadable": "not readable",
    "error": "not analysed",
}
_SPARK: Final = (6, 20)
"""Width of a day's bar and height of the tallest, in pixels."""


async def long_answer(
    make: Callable[[], str | bytes],
    content_type: str,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """Return a response with the text that ``make`` returns.

    Args:
        make: called on a thread; whatever it raises is raised here.
        content_type: without a charset; texts are UTF-8.
        status: the response's status.
        headers: further headers.
    """

    def made() -> bytes:
        found = make()
        return found.encode() if isinstance(found, str) else found

    body = await asyncio.to_thread(made)
    told = {"Content-Type": f"{content_type}; charset=utf-8", **(headers or {})}
    return web.Response(body=BytesIO(body) if len(body) > _AT_ONCE else body, status=status, headers=told)


class Renderer:
    """Renders pages from templates."""

    def __init__(self) -> None:
        """Read the templates and the static files from the package."""
        self.files: Final = {path.name: path.read_bytes() for path in STATIC.iterdir() if path.is_file()}
        digest = hashlib.sha256(b"".join(self.files[name] for name in sorted(self.files)))
        self._env: Final = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._env.globals["assets"] = digest.hexdigest()[:12]
        self._env.globals["status_words"] = STATUS_WORDS
        self._env.globals["workflow_path"] = workflow_path
        filters: dict[str, Callable[..., Any]] = {
            "when": when,
            "percent": percent,
            "usd": usd,
            "usd_more": usd_more,
            "seconds": seconds,
            "duration": duration,
            "compact": compact,
            "groupby_in_order": grouped,
            "token_count": token_count,
            "utc": utc,
            "segment": lambda text: quote(str(text), safe=""),
            "plain": plain,
            "in_prose": agent_in_prose,
            "label": agent_label,
            "visible": visible,
            "svg": Markup,  # used only for ``picture.py`` and our own style sheet
            "spark": spark,
            "outcome": outcome,
            "telling": telling,
        }
        self._env.filters.update(filters)

    def prepare(self) -> None:
        """Compile all templates, so that no request waits for it."""
        for name in self._env.list_templates():
            self._env.get_template(name)

    def text(self, template: str, **values: Any) -> str:
        """Return a page as text."""
        return self._env.get_template(template).render(values)

    async def page(
        self, template: str, *, status: int = 200, headers: Mapping[str, str] | None = None, **values: Any
    ) -> web.Response:
        """Return a page; rendered in a thread, since a long run takes a while."""
        return await long_answer(
            lambda: self.text(template, **values),
            "text/html",
            status=status,
            headers={**PAGE_HEADERS, **(headers or {})},
        )

    def style(self) -> str:
        """Return the style sheets of a run, for a self-contained page."""
        return self.files["page.css"].decode() + self.files["run.css"].decode()


@cache
def renderer() -> Renderer:
    """Return the renderer that all pages of this process share: compiling the templates takes 0.2 s."""
    return Renderer()


def outcome(verdict: Mapping[str, Any]) -> str:
    """Return the outcome of a run without blame: ``passed`` only with evidence of success."""
    if verdict["status"] != Status.NO_FAILURE:
        return STATUS_WORDS.get(verdict["status"], str(verdict["status"]))
    return "no sign of failure" if is_unsaid(verdict["reason"]) else "passed"


def when(time_ns: int) -> Markup:
    """Return a time as an element that the script converts to the reader's time zone."""
    moment = datetime.fromtimestamp(time_ns / 1e9, UTC)
    exact, written = moment.isoformat(timespec="seconds"), moment.strftime("%Y-%m-%d %H:%M:%S")
    return Markup(f'<time datetime="{exact}">{written} UTC</time>')  # noqa: S704 - numbers only


def utc(time_ns: int) -> str:
    """Return a time as text."""
    return datetime.fromtimestamp(time_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M UTC")


def token_count(totals: RunTotals | None) -> str:
    """Return the tokens of a run, in and out together; a dash if they are not known."""
    known = () if totals is None else (totals.input_tokens, totals.output_tokens)
    counts = [count for count in known if count is not None]
    if not counts:
        return "-"
    total = sum(counts)
    return f"{total:,}" if total < 100_000 else f"{total / 1000:,.0f} k"


def percent(share: float | None) -> str:
    """Return a share in whole percent; a dash if there is none."""
    return "-" if share is None else f"{share:.0%}"


def usd(amount: float | None) -> str:
    """Return an amount of money; ``None`` means an unknown price.

    Four decimals; below $0.001 two significant digits, so that a cheap model's call does not look free.
    """
    if not amount:
        return "unknown" if amount is None else "$0"
    if 0 < amount < 1e-6:
        return "<$0.000001"
    decimals = 1 - math.floor(math.log10(amount)) if 0 < amount < 1e-3 else 4
    return f"${amount:.{decimals}f}"


def usd_more(amount: float) -> str:
    """Return a difference between two amounts of money, with its sign."""
    return f"{'-' if amount < 0 else '+'}{usd(abs(amount))}"


def seconds(duration: float | None) -> str:
    """Return a duration in a suitable unit."""
    if duration is None:
        return "-"
    return f"{duration * 1000:.0f} ms" if duration < 1 else f"{duration:.1f} s"


def duration(length_s: float) -> str:
    """Return the length of a step or a run in two units at most."""
    if length_s < 120:
        return seconds(length_s)
    minutes, rest = divmod(round(length_s), 60)
    return f"{minutes} min {rest} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def compact(count: int) -> str:
    """Return a count in about four characters."""
    for unit, size in (("M", 10**6), ("k", 10**3)):
        if count >= size:
            return f"{count / size:.1f}{unit}" if count < 100 * size else f"{count // size}{unit}"
    return str(count)


def grouped(items: Iterable[Any], name: str) -> list[tuple[Any, list[Any]]]:
    """Return neighbours with the same value of an attribute together, in their order."""
    return [(value, list(each)) for value, each in groupby(items, key=attrgetter(name))]


def spark(counts: Sequence[int]) -> Markup:
    """Return a small bar chart of counts; the last bar is today's."""
    width, height = _SPARK
    most = max([*counts, 1])
    bars = "".join(
        f'<rect x="{width * day}" y="{height - tall}" width="{width - 1}" height="{tall}"/>'
        for day, count in enumerate(counts)
        if (tall := round(height * count / most))
    )
    label = f"failures a day, oldest first: {', '.join(map(str, counts))}"
    return Markup(  # noqa: S704 - numbers only
        f'<svg class="spark" width="{width * len(counts)}" height="{height}" role="img"'
        f' aria-label="{label}">{bars}</svg>'
    )


def telling(evidence: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return distinct quotes, without those contained in another of the same step."""
    kept: list[Mapping[str, Any]] = []
    for found in evidence:
        longer = (one["quote"] for one in evidence if one["step"] == found["step"])
        is_part = any(found["quote"] in quote != found["quote"] for quote in longer)
        if not is_part and found not in kept:
            kept.append(found)
    return kept


def workflow_path(service: str, workflow: str, tenant: Tenant) -> str:
    """Return the path of a workflow's page."""
    path = f"/workflow?service={quote(service, safe='')}&workflow={quote(workflow, safe='')}"
    return f"{path}&tenant={quote(tenant, safe='')}" if tenant else path
