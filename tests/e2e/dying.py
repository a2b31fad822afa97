"""``blamespan serve`` that dies between two commits: ``python -m tests.e2e.dying MOMENT COUNT FOLDER``.

What is known of a run stands in two files: that it is to be counted in an issue is noted in
one, its verdict committed to the other, and then it is counted in the first. The process kills
itself at a moment between them, the COUNT-th time that it gets there; ``never`` lets it live.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from analyzer.issue_desk import IssueDesk
from analyzer.issues.counting import IssueCounting
from analyzer.json_lines import configure_logging
from tests.e2e.fickle import serve


def die_when_noted(reached: Callable[[], None]) -> None:
    """Runs are noted, and none of their verdicts is committed."""
    keep = IssueDesk.keep_noted

    async def noted(desk: IssueDesk, *what: Any) -> None:
        await keep(desk, *what)
        reached()

    IssueDesk.keep_noted = noted  # type: ignore[assignment,method-assign] # no seam is here but for this test


def die_when_decided(reached: Callable[[], None]) -> None:
    """Verdicts are committed, and none of their runs is counted."""
    committed = IssueDesk.committed

    def decided(desk: IssueDesk, *what: Any) -> None:
        committed(desk, *what)
        reached()

    IssueDesk.committed = decided  # type: ignore[assignment,method-assign] # as above


def die_when_counted(reached: Callable[[], None]) -> None:
    """Runs are counted, and nobody was told."""
    settle = IssueCounting.settle

    def counted(counting: IssueCounting, now_ns: int) -> int:
        count = settle(counting, now_ns)
        if count:
            reached()
        return count

    IssueCounting.settle = counted  # type: ignore[assignment,method-assign] # as above


def live(_reached: Callable[[], None]) -> None:
    """Never die."""


MOMENTS: Final[Mapping[str, Callable[[Callable[[], None]], None]]] = {
    "noted": die_when_noted,
    "decided": die_when_decided,
    "counted": die_when_counted,
    "never": live,
}


def main(moment: str, count: int, folder: Path) -> None:
    """Serve until then."""
    left = count

    def reached() -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    MOMENTS[moment](reached)
    asyncio.run(serve(folder))


if __name__ == "__main__":
    configure_logging()
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
