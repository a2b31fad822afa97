"""The table of recurring failures, on narrow and wide terminals."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from analyzer.cli.commands.learn.issues import _table

DOCUMENT = {
    "id": "0123456789abcdef",
    "state": "new",
    "muted": False,
    "title": "researcher: made_up_data in web_search",
    "service": "solar",
    "count": 12,
    "trend": [{"count": number} for number in range(14)],
    "last_seen": "2026-11-21T18:00:00Z",
    "share": {
        "told": "25% [10%, 40%], by the method alone",
        "estimate": 0.25,
        "low": 0.1,
        "high": 0.4,
        "alarm": True,
    },
}


@pytest.mark.parametrize(("width", "has_bars"), [(80, False), (140, True)])
def test_on_a_narrow_terminal_the_agent_is_read_whole_and_the_bars_give_way(
    width: int,
    has_bars: bool,  # noqa: FBT001
) -> None:
    screen = Console(file=io.StringIO(), width=width)
    screen.print(_table([DOCUMENT], is_wide=has_bars))
    text = screen.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in text
    assert "researcher" in text
    assert ("14 days" in text) is has_bars
