"""Where a notice can be read on: addresses of our own pages. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Makes links below one address of ours."""

    base: str
    """Of the web page as people reach it, without a slash at its end; empty makes no links."""

    def run(self, run_id: str) -> str:
        """Return where a run is shown; whatever is in the id stays one part of a path."""
        part = quote(run_id, safe="", errors="replace")
        return f"{self.base}/runs/{part}" if self.base and run_id else ""

    @property
    def issues(self) -> str:
        """Where the issues are shown."""
        return f"{self.base}/issues" if self.base else ""
