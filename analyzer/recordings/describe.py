"""What a file that cannot be read looks like, in one line that says what to do next. Pure."""

from __future__ import annotations

from typing import Final

from analyzer.recordings.conversation_log import LOG_LEVELS
from analyzer.recordings.file_format import Records
from analyzer.recordings.file_text import FileText
from analyzer.recordings.formats import FORMATS

_MOST_KEYS: Final = 8
_LONGEST_KEY: Final = 24
_EXPECTED: Final = (
    "expected OTLP (JSON or protobuf), an export of Jaeger, Tempo, Langfuse, Phoenix, LangSmith, MLflow or"
    " another tracing tool, the messages of a model API or framework, or a coding agent's session:"
    f" docs/files.md lists all {len(FORMATS)} formats; spans with keys of your own: blamespan map"
)


def described(text: FileText | None, unknown: Records) -> str:
    """Return the reason why a file is refused.

    Args:
        text: the file's records; ``None`` if it is neither JSON nor YAML nor a table.
        unknown: the first records that no format recognises.
    """
    return f"{_looks_like(text, unknown)}; {_EXPECTED}"


def _looks_like(text: FileText | None, unknown: Records) -> str:
    if text is None:
        return "neither JSON nor YAML nor a table nor OTLP protobuf"
    if not text.records:
        return f"{text.form} without content"
    one = unknown[0] if unknown else None
    if not isinstance(one, dict):
        return f"{text.form} of unknown content ({type(one).__name__})"
    keys = ", ".join(" ".join(str(key).split())[:_LONGEST_KEY] for key in list(one)[:_MOST_KEYS]) or "none"
    is_log = any(key in one for key in LOG_LEVELS)
    return f"{'the log of an application' if is_log else 'unknown format'}: {text.form} with the keys {keys}"
