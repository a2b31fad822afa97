"""Verdicts on all recordings stay as good as promised. In-distribution: dialects were written with them."""

from __future__ import annotations

from functools import cache

import pytest

from benchmarks.dialects.frameworks import Seen, recordings, tables


@cache
def seen() -> tuple[Seen, ...]:
    return tuple(recordings())


def share(found: list[bool]) -> float:
    return sum(found) / len(found)


def test_steps_agents_and_order_are_exact() -> None:
    assert share([one.share.is_exact for one in seen()]) >= 0.95


@pytest.mark.parametrize(("story", "least"), [("figure", 0.8), ("failure", 0.9)])
def test_both_stories_are_noticed(story: str, least: float) -> None:
    assert share([one.is_noticed for one in seen() if one.story == story]) >= least


def test_the_right_agent_is_blamed() -> None:
    noticed = [one for one in seen() if one.story != "passing" and one.is_noticed]
    assert share([one.is_agent_right for one in noticed]) >= 0.9
    assert share([one.is_step_right for one in noticed]) >= 0.9


def test_passing_twins_give_no_alarms() -> None:
    assert share([alarm for one in seen() for alarm in one.twin_alarms]) <= 0.02


def test_the_table_has_a_row_for_every_group() -> None:
    rows = list(tables(seen()))
    assert all(any(row.startswith(f"| {one.group} |") for row in rows) for one in seen())
