"""SQL of a query of the list of runs: conditions, order and columns. Pure.

The query reads only ``run_totals``, whose rows are compact; documents of verdicts are read for one page only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from analyzer.telemetry.metric import CUT
from analyzer.web.reads.page_records import Measure, RunKey, RunQuery, Sort
from collector_processor.core.records import StoredVerdict
from collector_processor.core.runs import RunTotals

VERDICT: Final = tuple(StoredVerdict.__dataclass_fields__)
TOTALS: Final = tuple(RunTotals.__dataclass_fields__)
TIME: Final = "decided_ns"
_ORDERS: Final[Mapping[Sort, tuple[str, str]]] = {
    Sort.NEWEST: (TIME, "DESC"),
    Sort.OLDEST: (TIME, "ASC"),
    Sort.LONGEST: (Measure.DURATION, "DESC"),
    Sort.SHORTEST: (Measure.DURATION, "ASC"),
    Sort.MOST_STEPS: (Measure.STEPS, "DESC"),
    Sort.FEWEST_STEPS: (Measure.STEPS, "ASC"),
    Sort.MOST_TOKENS: (Measure.TOKENS, "DESC"),
    Sort.FEWEST_TOKENS: (Measure.TOKENS, "ASC"),
    Sort.COSTLIEST: (Measure.COST, "DESC"),
    Sort.CHEAPEST: (Measure.COST, "ASC"),
    Sort.SUREST: (Measure.CONFIDENCE, "DESC"),
    Sort.LEAST_SURE: (Measure.CONFIDENCE, "ASC"),
}
_INDEXES: Final = {
    TIME: "time",
    Measure.DURATION: "duration",
    Measure.STEPS: "steps",
    Measure.TOKENS: "tokens",
    Measure.COST: "cost",
    Measure.CONFIDENCE: "confidence",
}


class Condition(NamedTuple):
    """Part of a WHERE clause, with its values."""

    sql: str
    values: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An order of the list, as SQL."""

    column: str
    direction: str
    """``ASC`` or ``DESC``."""
    index: str
    """Name of the index with this order; a tenant's newest runs have one of their own."""

    @staticmethod
    def of(query: RunQuery) -> Order:
        """Return the order of a query."""
        column, direction = _ORDERS[query.sort]
        name = "tenant" if query.tenant and column == TIME else _INDEXES[column]
        return Order(column=str(column), direction=direction, index=f"run_totals_by_{name}")

    @property
    def by(self) -> str:
        """The ORDER BY clause."""
        names = (self.column, "tenant", "run_id")
        return f"ORDER BY {', '.join(f'run_totals.{name} {self.direction}' for name in names)}"

    def after(self, key: RunKey) -> Condition:
        """Return the condition on places after a given one."""
        return self._against(">" if self.direction == "ASC" else "<", key)

    def within(self, key: RunKey) -> Condition:
        """Return the condition on places up to a given one."""
        return self._against("<=" if self.direction == "ASC" else ">=", key)

    def _against(self, sign: str, key: RunKey) -> Condition:
        names = f"run_totals.{self.column}, run_totals.tenant, run_totals.run_id"
        return Condition(f"({names}) {sign} (?, ?, ?)", (key.at, key.tenant, key.run_id))


def joined(conditions: Sequence[Condition]) -> tuple[str, list[Any]]:
    """Return a WHERE clause and its values."""
    where = " AND ".join(condition.sql for condition in conditions)
    return f"WHERE {where}" if where else "", [value for one in conditions for value in one.values]


def on_index(query: RunQuery) -> list[Condition]:
    """Return the conditions that the index of the order decides, without reading a row."""
    order = Order.of(query)
    found = [] if order.column == TIME else [Condition(f"run_totals.{order.column} IS NOT NULL")]
    if query.tenant:
        found.append(Condition("run_totals.tenant = ?", (query.tenant,)))
    return [*found, *_within_time(query)] if order.column == TIME else found


def on_row(query: RunQuery) -> list[Condition]:
    """Return the conditions that need a row of ``run_totals``."""
    found = [] if Order.of(query).column == TIME else _within_time(query)
    if query.statuses:
        marks = ", ".join("?" for _ in query.statuses)
        found.append(Condition(f"run_totals.status IN ({marks})", tuple(one.value for one in query.statuses)))
    for name in ("service", "agent", "workflow"):
        if wanted := getattr(query, name):
            found.append(
                Condition(f"lower(run_totals.{name}) LIKE lower(?) ESCAPE '\\'", (_labelled(wanted),))
            )
    for bounds in query.bounds:
        for sign, bound in ((">=", bounds.least), ("<=", bounds.most)):
            if bound is not None:
                found.append(Condition(f"run_totals.{bounds.of} {sign} ?", (bound,)))
    return found


def totals_in(row: Sequence[Any]) -> RunTotals | None:
    """Return the totals in a row's columns ``TOTALS``; ``None`` if they are not known."""
    told = dict(zip(TOTALS, row, strict=True))
    return None if told["steps"] is None else RunTotals(**told)


def _within_time(query: RunQuery) -> list[Condition]:
    bounds = ((">=", query.since_ns), ("<", query.until_ns))
    return [Condition(f"run_totals.{TIME} {sign} ?", (ns,)) for sign, ns in bounds if ns is not None]


def _labelled(name: str) -> str:
    """Return the ``LIKE`` pattern of a name from the metrics, which truncate long names."""
    return f"{_literal(name[:-1])}%" if name.endswith(CUT) else _literal(name)


def _literal(text: str) -> str:
    """Escape text for a LIKE pattern."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
