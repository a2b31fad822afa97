"""What somebody is told: an issue is new or came back, an agent fails more than it did. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum

from analyzer.recurrence.fingerprint import Fingerprint


class NoticeKind(StrEnum):
    """What happened."""

    NEW = "new"
    REGRESSED = "regressed"
    FAILS_MORE = "fails_more"
    """The watch on an agent raised its alarm."""
    CALM_AGAIN = "calm_again"
    """And ended it."""
    MORE = "more"
    """More than are told of one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One thing to tell."""

    kind: NoticeKind
    tenant: str
    at_ns: int
    service: str = ""
    agent: str = ""
    issue_id: str = ""
    """Empty where it is about an agent as a whole."""
    title: str = ""
    mode: str = ""
    run_id: str = ""
    text: str = ""
    """What the verdict says, as far as the settings let it out."""
    count: int = 1
    """Failures of the issue; of ``MORE``, how many notices it stands for."""

    def to_json(self) -> str:
        """Return it as text to keep."""
        return json.dumps(asdict(self), ensure_ascii=False)


def read_notice(text: str) -> Notice:
    """Read what ``to_json`` wrote."""
    document = json.loads(text)
    return Notice(**(document | {"kind": NoticeKind(document["kind"])}))


def safe_title(mark: Fingerprint) -> str:
    """Return the title without words of an error's text: its class or status at most."""
    is_word = mark.error.isidentifier() or mark.error.startswith("HTTP ")
    what = (mark.error if is_word else "") or mark.mode.replace("_", " ") or "wrong step"
    return f"{mark.agent}: {what} in {mark.tool}" if mark.tool else f"{mark.agent}: {what}"
