# ruff: noqa: E501 - lines of Markdown tables cannot be wrapped
"""Generator of docs/settings.md from the settings class: ``python -m tools.references.settings_reference``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from collector_processor.settings import CONFIG_FILE, FILE_ONLY, PREFIX, Settings

PAGE: Final = Path(__file__).parents[2] / "docs" / "settings.md"
_HEAD: Final = """# Settings

Set these as environment variables, or in a `blamespan.toml` in the directory where you start the command, in lower case
and without `BLAMESPAN_`. A command-line option overrides the environment, and the environment overrides the file. An empty
variable counts as unset. Times are whole milliseconds. `blamespan doctor` checks all settings.

Made from `collector_processor/settings/fields.py` by `python -m tools.references.settings_reference`; do not edit.

| variable | default | meaning |
|---|---|---|
"""
_FILE: Final = f"""
## In the file only

These have no variable; set them in `{CONFIG_FILE}`. The image, the Helm chart and Compose read it as `/{CONFIG_FILE}`, the
systemd unit as `/etc/blamespan/{CONFIG_FILE}`.

| key | default | meaning |
|---|---|---|
"""
_OTEL: Final = """
## OpenTelemetry's variables

| variable | meaning |
|---|---|
| `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_{TRACES,LOGS,METRICS}_ENDPOINT` | where to forward each signal. If `BLAMESPAN_FORWARD_ENDPOINT` is set, only the variables of logs and metrics apply, with their own headers, protocol and certificates; `none` turns forwarding of the signal off |
| `OTEL_EXPORTER_OTLP_PROTOCOL` (and per signal) | `grpc` or `http/protobuf`; default: HTTP for port 4318, else gRPC |
| `OTEL_EXPORTER_OTLP_HEADERS` (and per signal) | `key=value,…`, percent-encoded |
| `OTEL_EXPORTER_OTLP_CERTIFICATE` (and per signal) | PEM file of the certificate authorities to trust |
| `OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE`, `OTEL_EXPORTER_OTLP_CLIENT_KEY` (and per signal) | PEM files of blamespan's client certificate and its key (mutual TLS) |
| `OTEL_EXPORTER_OTLP_COMPRESSION` (and per signal) | `none` (default) or `gzip` |
| `OTEL_METRICS_EXPORTER` | with `otlp`, blamespan sends its own metrics to the metrics endpoint |
| `OTEL_METRIC_EXPORT_INTERVAL` | milliseconds between two sends; default 60000 |

Certificates, including those of `BLAMESPAN_TLS_…`, are reloaded when their files change. If a new certificate is invalid,
blamespan logs this and keeps the previous one.

For model keys and addresses, set litellm's own variables (`OPENAI_API_KEY`, `OPENAI_API_BASE`, …).
"""


def page() -> str:
    """Return the page."""
    variables = [
        _row(PREFIX + name.upper(), field)
        for name, field in Settings.model_fields.items()
        if field.description and name not in FILE_ONLY
    ]
    keys = [_row(name, field) for name, field in Settings.model_fields.items() if name in FILE_ONLY]
    return "".join([_HEAD, *variables, _FILE, *keys, _OTEL])


def _row(name: str, field: FieldInfo) -> str:
    return f"| `{name}` | {_default(field.get_default(call_default_factory=False))} | {field.description} |\n"


def _default(value: object) -> str:
    if value is None or value is PydanticUndefined:
        return "-"
    return f"`{value}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
