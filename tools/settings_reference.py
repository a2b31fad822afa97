# ruff: noqa: E501 - the lines of a Markdown table are as long as they are
"""``python -m tests.settings_reference``: writes docs/settings.md from the settings class."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic_core import PydanticUndefined

from collector_processor.settings import Settings

PAGE: Final = Path(__file__).parent.parent / "docs" / "settings.md"
_HEAD: Final = """# Settings

Made from `collector_processor/settings.py` by `python -m tests.settings_reference`; do not edit.

Environment variables, or the names in lower case and without `BLAMESPAN_` in a `blamespan.toml` where the
command is started. The environment goes before the file, an option of the command before both. An empty
variable is unset. Times are whole milliseconds. `blamespan doctor` checks them all.

| variable | default | meaning |
|---|---|---|
"""
_OTEL: Final = """
## OpenTelemetry's own

| variable | meaning |
|---|---|
| `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_{TRACES,LOGS,METRICS}_ENDPOINT` | where each signal goes on to. Beside `BLAMESPAN_FORWARD_ENDPOINT` only those of logs and metrics count, with their own headers, protocol and certificates; `none` sends the signal nowhere |
| `OTEL_EXPORTER_OTLP_PROTOCOL` (and per signal) | `grpc` or `http/protobuf`; default: HTTP for port 4318, else gRPC |
| `OTEL_EXPORTER_OTLP_HEADERS` (and per signal) | `key=value,…`, percent-encoded |
| `OTEL_EXPORTER_OTLP_CERTIFICATE` (and per signal) | PEM file of the authorities to trust |
| `OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE`, `OTEL_EXPORTER_OTLP_CLIENT_KEY` (and per signal) | PEM files of what the backend is shown of us (mutual TLS) |
| `OTEL_EXPORTER_OTLP_COMPRESSION` (and per signal) | `none` (default) or `gzip` |

Certificates, theirs and ours (`BLAMESPAN_TLS_…`), are read again when their files change; what cannot be used is said
in the log, and the one before stays.

Model keys and addresses are litellm's own variables (`OPENAI_API_KEY`, `OPENAI_API_BASE`, …).
"""


def page() -> str:
    """Return the page."""
    rows = [
        f"| `BLAMESPAN_{name.upper()}` | {_default(field.get_default(call_default_factory=False))} | {field.description} |"
        for name, field in Settings.model_fields.items()
        if field.description
    ]
    return _HEAD + "\n".join(rows) + "\n" + _OTEL


def _default(value: object) -> str:
    if value is None or value is PydanticUndefined:
        return "-"
    return f"`{value}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
