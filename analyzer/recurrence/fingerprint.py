"""Which failures are the same: a hash of what happened, never of what a model wrote about it.

A model words the same failure differently each time; service, agent, failure mode,
kind of step, tool and type of error are words of the system's own.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from semconv.model import Blame, Step

VERSION: Final = 1
"""Of the recipe; issues of another version are other issues."""
_MAX_WORDS: Final = 8
_ERROR_TYPE: Final = re.compile(r"\b[A-Za-z_][\w.]*(?:Error|Exception|Exceeded|Timeout|Interrupt|Failure)\b")
_STATUS: Final = re.compile(r"\b(?:HTTP|status|code)\W{0,3}(\d{3})\b", re.IGNORECASE)
_VARIABLE: Final = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8,}|\d+(?:[.,]\d+)*|'[^']*'|\"[^\"]*\"", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What a recurring failure is known by."""

    service: str
    agent: str
    mode: str
    """The failure mode; empty where the method tells none."""
    kind: str
    """Of the decisive step."""
    tool: str
    """The tool called or the agent handed over to; empty for others."""
    error: str
    """The type of error, without what changes from time to time; empty where there was none."""
    version: int = VERSION

    @property
    def id(self) -> str:
        """16 hex digits; the same wherever and whenever it is computed."""
        parts = (str(self.version), self.service, self.agent, self.mode, self.kind, self.tool, self.error)
        return hashlib.sha256("\x1f".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @property
    def title(self) -> str:
        """One line for people."""
        what = self.error or self.mode.replace("_", " ") or "wrong step"
        return f"{self.agent}: {what} in {self.tool}" if self.tool else f"{self.agent}: {what}"


def fingerprint(service: str, blame: Blame, step: Step) -> Fingerprint:
    """Return what the failure is known by.

    Args:
        service: what emitted the run.
        blame: the verdict; only its agent and mode count.
        step: the decisive step.
    """
    return Fingerprint(
        service=service,
        agent=blame.agent,
        mode=blame.mode,
        kind=step.kind.value,
        tool=step.target or "",
        error=error_type(step.error),
    )


def error_type(error: str) -> str:
    """Return what kind of error it was: its class or HTTP status, else its first words without variables."""
    if found := _ERROR_TYPE.search(error):
        return found[0].rpartition(".")[2]
    if found := _STATUS.search(error):
        return f"HTTP {found[1]}"
    return " ".join(_VARIABLE.sub("#", error).lower().split()[:_MAX_WORDS])
