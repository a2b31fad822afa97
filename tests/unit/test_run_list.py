"""Filters of the API's list: what they mean, and that nothing else is accepted."""

from __future__ import annotations

import pytest

from analyzer.web.reads.run_query import (
    FILTERS,
    Bounds,
    InvalidFilter,
    Measure,
    RunKey,
    RunQuery,
    Sort,
    read_filters,
    write_key,
)
from collector_processor.otlp import NO_TENANT, Tenant
from semconv.model import Status

NOW_NS = 1_790_000_000 * 10**9
KEY = RunKey(at=5, tenant=Tenant("x=ä"), run_id="run/1")


def test_without_filters_the_newest_hundred_are_asked_for() -> None:
    assert read_filters({}, NO_TENANT, NOW_NS) == RunQuery(limit=100)


def test_filters_are_read() -> None:
    asked = {
        "status": "attributed,suspected", "q": " Freiburg ", "service": "shop", "agent": "clerk",
        "since": "24h",
        "until": "2026-09-21T14:13:20+02:00", "min_confidence": "0.5", "max_confidence": "1",
        "workflow": "refunds", "min_duration_s": "1.5", "max_tokens": "2e3", "min_cost_usd": "0",
        "sort": "costliest",
        "limit": "7", "after": write_key(KEY, Sort.COSTLIEST),
    }  # fmt: skip
    assert read_filters(asked, Tenant("t"), NOW_NS) == RunQuery(
        tenant=Tenant("t"), statuses=(Status.ATTRIBUTED, Status.SUSPECTED), text="Freiburg", service="shop",
        agent="clerk", since_ns=NOW_NS - 86_400 * 10**9, until_ns=1_789_992_800 * 10**9, workflow="refunds",
        bounds=(
            Bounds(of=Measure.CONFIDENCE, least=0.5, most=1.0), Bounds(of=Measure.DURATION, least=1.5e9),
            Bounds(of=Measure.TOKENS, most=2000.0), Bounds(of=Measure.COST, least=0.0),
        ),
        sort=Sort.COSTLIEST, limit=7, before=KEY,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("agnet", "clerk"),
        ("", ""),
        ("status", "broken"),
        ("status", "attributed,nope"),
        ("sort", "price"),
        ("since", "yesterday"),
        ("since", "2026-01-01"),
        ("since", "2026-01-01T00:00:00"),
        ("since", "1960-01-01T00:00:00Z"),
        ("since", "9999-12-31T23:59:59Z"),
        ("until", "0h"),
        ("until", "9" * 400 + "d"),
        ("min_confidence", "nan"),
        ("min_confidence", "-0.1"),
        ("max_confidence", "1.1"),
        ("max_confidence", "1e400"),
        ("max_confidence", "½"),
        ("min_tokens", "-1"),
        ("max_tokens", "inf"),
        ("min_cost_usd", "1e10"),
        ("max_duration_s", ""),
        ("workflow", "x" * 201),
        ("sort", "costliest "),
        ("after", write_key(KEY, Sort.COSTLIEST)),
        ("after", write_key(RunKey(at=1 << 63, tenant=Tenant(""), run_id=""))),
        ("after", write_key(RunKey(at=float("nan"), tenant=Tenant(""), run_id=""))),
        ("q", "x" * 201),
        ("q", "a\0b"),
        ("agent", "x" * 201),
        ("service", "a\x1b[31m"),
        ("limit", "0"),
        ("after", "no key"),
        ("after", "WzEsIngiLCJ5"),
    ],
)
def test_an_invalid_filter_is_refused_with_what_was_expected(name: str, value: str) -> None:
    with pytest.raises(InvalidFilter) as refused:
        read_filters({name: value}, NO_TENANT, NOW_NS)
    assert "expected" in str(refused.value)
    assert len(str(refused.value)) < 400


def test_the_refusal_of_an_unknown_filter_names_the_known_ones() -> None:
    with pytest.raises(InvalidFilter) as refused:
        read_filters({"agnet": "clerk"}, NO_TENANT, NOW_NS)
    assert all(name in str(refused.value) for name in ("agnet", *FILTERS))
