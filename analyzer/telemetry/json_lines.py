"""One JSON object a line: logs of every process of ours, and what commands print for programs. A shell."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

_STANDARD_FIELDS: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}
_UNSHOWN: Final = re.compile(
    "[\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff]"
)
"""Controls, direction marks and what no screen shows; ``json`` itself escapes those below 0x20."""


def json_text(document: Mapping[str, Any]) -> str:
    """Return JSON on one line, in which what steers a terminal is escaped: it stays the same document."""
    return _UNSHOWN.sub(_escaped, json.dumps(document, ensure_ascii=False, default=str))


def _escaped(found: re.Match[str]) -> str:
    return json.dumps(found.group())[1:-1]


class JsonFormatter(logging.Formatter):
    """One JSON object a line; what a record carries in ``extra`` becomes fields."""

    def __init__(self, about: Mapping[str, Any] | None = None) -> None:
        """Make it.

        Args:
            about: fields of every line: what tells this process's from another's.
        """
        super().__init__()
        self._about: Final = dict(about or {})

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        document: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._about,
        }
        document |= {name: value for name, value in record.__dict__.items() if name not in _STANDARD_FIELDS}
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return json_text(document)


def configure_logging(level: int = logging.INFO, *, about: Mapping[str, Any] | None = None) -> None:
    """Log to standard error as JSON lines, each with what is said ``about`` this process."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(about))
    logging.basicConfig(level=level, handlers=[handler], force=True)
