"""JSON lines: the log format of every process, and the output of commands for programs. Not pure."""

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
"""Control, direction and invisible characters; ``json`` itself escapes those below 0x20."""


def json_text(document: Mapping[str, Any]) -> str:
    """Return JSON on one line, with the characters that control a terminal escaped."""
    return _UNSHOWN.sub(_escaped, json.dumps(document, ensure_ascii=False, default=str))


def _escaped(found: re.Match[str]) -> str:
    return json.dumps(found.group())[1:-1]


class JsonFormatter(logging.Formatter):
    """Formatter of one JSON object a line; the values in a record's ``extra`` become fields."""

    def __init__(self, about: Mapping[str, Any] | None = None) -> None:
        """Create a formatter that adds the fields ``about`` this process to every line."""
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


def configure_logging(*, about: Mapping[str, Any] | None = None) -> None:
    """Log to standard error as JSON lines, each with the fields ``about`` this process."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(about))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it lists its plugins at each start
