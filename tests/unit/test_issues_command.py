"""Recurring failures at the command line: their table on any terminal, and how long one is muted."""

from __future__ import annotations

import io
import json
import time
from datetime import datetime
from pathlib import Path

import pytest
from rich.console import Console

from analyzer.cli.commands.issues import _table
from analyzer.cli.main import run
from tests.issues import Bench

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
def test_a_narrow_terminal_shows_whole_agent_names_and_shorter_bars(width: int, has_bars: bool) -> None:
    screen = Console(file=io.StringIO(), width=width)
    screen.print(_table([DOCUMENT], is_wide=has_bars))
    text = screen.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in text
    assert "researcher" in text
    assert ("14 days" in text) is has_bars


@pytest.mark.parametrize(("told", "seconds"), [("30m", 1_800), ("12h", 43_200), ("2w", 14 * 86_400)])
def test_a_muted_issue_is_muted_for_as_long_as_was_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], told: str, seconds: int
) -> None:
    bench = Bench(folder=tmp_path)
    bench.judge(1, "clerk", at=time.time_ns())
    (issue,) = bench.all(time.time_ns())
    bench.close()
    begun_ns = time.time_ns()
    asked = ["issues", "mute", issue.fingerprint.id, "--for", told, "--format", "json"]
    assert run([*asked, "--data-dir", str(tmp_path)]) == 0
    until = datetime.fromisoformat(json.loads(capsys.readouterr().out)["muted_until"]).timestamp()
    assert 0 <= until - begun_ns / 10**9 - seconds + 1 < 60
