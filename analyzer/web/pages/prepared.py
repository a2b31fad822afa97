"""The long parts of pages, prepared once: lists of steps and of runs, two runs side by side. Not pure.

A list of a thousand steps takes 50 ms to make, and most requests ask for one that was made before: people
come back from a step, open the link that a colleague sent, answer and reload. A part's
key contains the kept run as it was read (another object once the run has changed), and the fields of the
verdict that the part depends on.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from markupsafe import Markup

from analyzer.history.run_diff import compare_runs
from analyzer.inquiry.whole_run import WholeRun
from analyzer.issues.recurrence import Issue
from analyzer.lineage.memory import forget_texts
from analyzer.web.reads.archive import RunArchive
from analyzer.web.reads.page_records import RunName, RunRow, Trend
from analyzer.web.reads.whole_runs import WholeRuns
from analyzer.web.remembered import Remembered
from analyzer.web.rendering import Renderer
from analyzer.web.requested_analyses import Jobs
from analyzer.web.views.formatted import clear_formatted
from analyzer.web.views.run_listing import Asked, view_of_trend
from analyzer.web.views.run_page import RunView, TraceLink, Wanted, view
from analyzer.web.views.side_by_side import ShownComparison, view_of
from collector_processor.otlp import Tenant

MOST: Final = 64
MOST_CHARACTERS: Final = 16_000_000
"""Characters of HTML; what it was made from takes about as much memory again."""
MOST_ROWS: Final = 2_000
"""Rows of the list of runs: those of 40 pages."""
MOST_ROWS_CHARACTERS: Final = 8_000_000
_FIELDS: Final = ("run_id", "status", "step", "confidence", "ranking", "evidence")
"""Fields of a verdict that the list of steps depends on."""
V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRun:
    """A run's view and its list of steps."""

    shown: RunView
    steps: Markup


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedComparison:
    """A comparison and its part of the page."""

    shown: ShownComparison
    body: Markup


@dataclass(frozen=True, slots=True)
class _Made:
    """A result, with the runs whose object identity is in its key: they live as long as the result."""

    result: Any
    runs: tuple[WholeRun, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageMemory:
    """All data of stored runs that the pages hold in memory; dropped when a run is deleted."""

    runs: RunArchive
    whole: WholeRuns
    prepared: PreparedPages
    jobs: Jobs | None = None

    async def forget(self, tenant: Tenant, run_id: str | None) -> None:
        """Drop all texts, and the second opinions on a tenant's run, or on all its runs for ``None``.

        A request that read the run before it was deleted may keep a part of it again; nothing leads to that
        part, and newer ones displace it.
        """
        if self.jobs is not None:
            self.jobs.forget(tenant, run_id)
        await self.runs.clear()
        await asyncio.to_thread(self._clear)

    def _clear(self) -> None:
        self.whole.clear()
        self.prepared.clear()
        clear_formatted()
        forget_texts()


class PreparedPages:
    """Prepares parts of pages in a thread and remembers them."""

    def __init__(self, renderer: Renderer, trace_link: TraceLink) -> None:
        """``trace_link`` leads from a step to the user's backend."""
        self._renderer: Final = renderer
        self._trace_link: Final = trace_link
        self._made: Final[Remembered[_Made]] = Remembered(MOST, MOST_CHARACTERS)
        self._rows: Final[Remembered[Markup]] = Remembered(MOST_ROWS, MOST_ROWS_CHARACTERS)

    def clear(self) -> None:
        """Drop all parts in memory."""
        self._made.clear()
        self._rows.clear()

    async def run(self, whole: WholeRun, document: Mapping[str, Any], wanted: Wanted) -> PreparedRun:
        """Return a part of a run, with a verdict."""

        def make() -> tuple[PreparedRun, int]:
            shown = view(whole, document, wanted)
            steps = self._renderer.text(
                "_steps.html", run=document, shown=shown, pager=True, trace_link=self._trace_link
            )
            return PreparedRun(shown=shown, steps=Markup(steps)), len(steps)  # noqa: S704 - from a template

        verdict = json.dumps([document.get(name) for name in _FIELDS])
        return await self._of((id(whole), verdict, wanted), (whole,), make)

    async def comparison(self, left: WholeRun, right: WholeRun) -> PreparedComparison:
        """Return two runs side by side."""

        def make() -> tuple[PreparedComparison, int]:
            shown = view_of(compare_runs(left, right), left, right)
            body = self._renderer.text("_compared.html", shown=shown)
            return PreparedComparison(shown=shown, body=Markup(body)), len(body)  # noqa: S704 - from a template

        return await self._of((id(left), id(right)), (left, right), make)

    async def rows(self, rows: Sequence[RunRow], issues: Mapping[RunName, Issue]) -> tuple[Markup, ...]:
        """Return the rows of a list of runs, with the issues that they are counted in."""
        return await asyncio.to_thread(
            lambda: tuple(self._row(row, issues.get((row.key.tenant, row.key.run_id))) for row in rows)
        )

    def _row(self, row: RunRow, issue: Issue | None) -> Markup:
        mark = None if issue is None else (issue.state, issue.fingerprint)
        key = (row.verdict, row.task, row.said, row.totals, mark)
        known = self._rows.get(key)
        if known is None:
            known = Markup(self._renderer.text("_row.html", row=row, issue=issue))  # noqa: S704 - from a template
            self._rows.put(key, known, len(known) + len(row.verdict.document))
        return known

    async def trend(self, trend: Trend, asked: Asked) -> Markup:
        """Return the trend above a list of runs; empty without runs."""

        def make() -> tuple[Markup, int]:
            shown = view_of_trend(trend, asked)
            figure = "" if shown is None else self._renderer.text("_trend.html", trend=shown, asked=asked)
            return Markup(figure), len(figure)  # noqa: S704 - from a template

        filters = tuple(sorted((name, value) for name, value in asked.fields.items() if name != "after"))
        return await self._of((trend, filters), (), make)

    async def _of(
        self, key: tuple[Any, ...], runs: tuple[WholeRun, ...], make: Callable[[], tuple[V, int]]
    ) -> V:
        known = self._made.get(key)
        if known is not None:
            return cast("V", known.result)  # the key determines the type that ``make`` returned
        result, size = await asyncio.to_thread(make)
        self._made.put(key, _Made(result, runs), size)
        return result
