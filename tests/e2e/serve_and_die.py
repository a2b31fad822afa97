"""``blamespan serve`` that kills itself around a commit: ``python -m tests.e2e.serve_and_die MOMENT COUNT
FOLDER``.

A run is handed over, counted in the transaction of its verdict, and the verdict is committed. The process
dies at one of these moments when it reaches it for the COUNT-th time; ``never`` lets it live.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from analyzer.issues.beside_verdicts import BesideVerdicts
from analyzer.issues.counting import IssueCounting
from analyzer.issues.issue_service import IssueService
from analyzer.telemetry.json_lines import configure_logging
from tests.e2e.inconsistent_analyst import serve


def die_when_noted(reached: Callable[[], None]) -> None:
    """Runs are handed over; none of their verdicts is committed."""
    add = BesideVerdicts.add

    def noted(beside: BesideVerdicts, *what: Any) -> None:
        add(beside, *what)
        reached()

    BesideVerdicts.add = noted  # type: ignore[assignment,method-assign] # no seam is here but for this test


def die_when_decided(reached: Callable[[], None]) -> None:
    """Verdicts are committed with their counts; nothing was announced."""
    committed = IssueService.committed

    def decided(service: IssueService, *what: Any) -> None:
        committed(service, *what)
        reached()

    IssueService.committed = decided  # type: ignore[assignment,method-assign] # as above


def die_when_counted(reached: Callable[[], None]) -> None:
    """Runs are counted; the transaction with their verdicts is open."""
    count = IssueCounting.count

    def counted(counting: IssueCounting, *what: Any) -> None:
        count(counting, *what)
        reached()

    IssueCounting.count = counted  # type: ignore[assignment,method-assign] # as above


def live(_reached: Callable[[], None]) -> None:
    """Never die."""


MOMENTS: Final[Mapping[str, Callable[[Callable[[], None]], None]]] = {
    "noted": die_when_noted,
    "decided": die_when_decided,
    "counted": die_when_counted,
    "never": live,
}


def main(moment: str, count: int, folder: Path) -> None:
    """Serve until that moment."""
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
