"""Settings: overrides, then the environment, then ``blamespan.toml``, then defaults; read once.

If OpenTelemetry has a variable of its own, it applies, with OpenTelemetry's rules: empty means unset,
durations are integer milliseconds, booleans only ``true``. Nothing else in the project reads the environment
for settings.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from collector_processor.otlp import Address, CollectorError, Signal
from collector_processor.otlp.destination import destination_of
from collector_processor.settings.fields import FILE_ONLY, Settings
from collector_processor.settings.value_types import ExportText, ScoreTarget, WriteBack, read_targets

__all__ = [
    "CONFIG_FILE", "FILE_ONLY", "PREFIX", "ExportText", "Settings", "SettingsError", "WriteBack",
    "load_settings", "own_metrics_interval", "require_token", "require_token_beyond", "setting_name",
    "unknown_variables",
]  # fmt: skip

CONFIG_FILE: Final = "blamespan.toml"
PREFIX: Final = "BLAMESPAN_"
_OF_KUBERNETES: Final = re.compile(
    r"_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$|_PORT(_\d+_[A-Z]+(_[A-Z]+)?)?$"
)
"""Variables that Kubernetes sets in every pod for a service named ``blamespan``."""
_SECRET: Final = frozenset(
    {
        "token",
        "metrics_token",
        "forward_headers",
        "notify_url",
        "notify_secret",
        "store_url",
        "queue",
    }
)
"""Fields whose values are never shown."""


_READ: Final = tuple(name for name, field in Settings.model_fields.items() if field.description)
"""Fields that are settings; the others are derived from OpenTelemetry's variables."""
_VARIABLES: Final = tuple(name for name in _READ if name not in FILE_ONLY)
"""Fields that the environment may set."""


class SettingsError(CollectorError):
    """Invalid setting; the message names the variable, its value and what was expected."""


def load_settings(environ: Mapping[str, str], *, directory: Path | None = None, **overrides: Any) -> Settings:
    """Read settings: overrides, then the environment, then ``blamespan.toml``, then defaults.

    Args:
        environ: the process's environment.
        directory: folder of ``blamespan.toml``; ``None`` for no file.
        overrides: fields set on the command line; ``None`` means not set.

    Raises:
        SettingsError: a value is invalid; the message names the setting.
    """
    values = _from_file(directory) | _from_environment(environ)
    values |= {key: value for key, value in overrides.items() if value is not None}
    try:
        settings = Settings.model_validate(values)
        every_ms = own_metrics_interval(environ)
        found = {signal: destination_of(settings.forwarding, environ, signal) for signal in Signal}
        targets = _score_targets(settings, environ)
    except ValidationError as error:
        raise SettingsError(_first_sentence(error)) from error
    except ValueError as error:
        raise SettingsError(str(error)) from error
    endpoints = {signal: endpoint for signal, endpoint in found.items() if endpoint}
    derived = {"endpoints": endpoints, "export_metrics_ms": every_ms, "score_targets": targets}
    return settings.model_copy(update=derived)


def _score_targets(settings: Settings, environ: Mapping[str, str]) -> tuple[ScoreTarget, ...]:
    try:
        return read_targets(settings.scores, next(iter(settings.tenant_header_names), ""), environ)
    except ValueError as error:
        raise ValueError(f"BLAMESPAN_SCORES: {error}") from error


def own_metrics_interval(environ: Mapping[str, str]) -> int:
    """Return the milliseconds between exports of our own metrics (OpenTelemetry's variables); 0 for none.

    Raises:
        ValueError: the interval is not a whole number above 0.
    """
    if "otlp" not in (name.strip() for name in environ.get("OTEL_METRICS_EXPORTER", "").split(",")):
        return 0
    text = environ.get("OTEL_METRIC_EXPORT_INTERVAL", "").strip() or "60000"
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise ValueError(f"OTEL_METRIC_EXPORT_INTERVAL={text}: expected whole milliseconds above 0")
    return int(text)


def _from_file(directory: Path | None) -> dict[str, Any]:
    path = directory / CONFIG_FILE if directory else None
    if path is None or not path.is_file():
        return {}
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{CONFIG_FILE}: expected TOML: {error}") from error
    unknown = values.keys() - set(_READ)
    if unknown:
        raise SettingsError(f"{CONFIG_FILE}: unknown setting {min(unknown)!r}{_meant(min(unknown))}")
    return values


def _meant(key: str) -> str:
    """Return the most similar key of the file, for the end of a message; empty if none is similar."""
    name = key.lower().removeprefix(PREFIX.lower())
    similar = get_close_matches(name, _READ, n=1, cutoff=0.8)
    return f"; expected {similar[0]!r}?" if similar else ""


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    given = {name: environ.get(PREFIX + name.upper(), "").strip() for name in _READ}
    found = {name: value for name, value in given.items() if value}
    if misplaced := found.keys() & FILE_ONLY:
        name = min(misplaced)
        raise SettingsError(f"{PREFIX}{name.upper()}: expected {name} in {CONFIG_FILE}, there is no variable")
    return found


def setting_name(field: str) -> str:
    """Return what a user writes to set a field: its variable, or its key of ``blamespan.toml``."""
    return f"{CONFIG_FILE}: {field}" if field in FILE_ONLY else PREFIX + field.upper()


def unknown_variables(environ: Mapping[str, str]) -> Mapping[str, str | None]:
    """Return variables that look like ours but are unknown, each with the most similar known one."""
    known = [PREFIX + name.upper() for name in _VARIABLES]
    unknown = (name for name in sorted(environ) if name.startswith(PREFIX) and name not in known)
    return {
        name: next(iter(get_close_matches(name, known, n=1, cutoff=0.8)), None)
        for name in unknown
        if not _OF_KUBERNETES.search(name)
    }


def require_token(settings: Settings) -> None:
    """Refuse to listen beyond this machine without a token, or with a short one; raises ``SettingsError``."""
    for listener in settings.listeners:
        require_token_beyond(listener, settings.token)


SHORTEST_TOKEN: Final = 16
"""Characters of a token that other machines may try to guess."""


def require_token_beyond(listener: Address, token: str | None) -> None:
    """Refuse to listen on an address beyond this machine without a token that other machines cannot guess.

    Raises:
        SettingsError: there is no token, or it is short.
    """
    if listener.is_loopback:
        return
    if not token:
        raise SettingsError(
            f"listening on {listener} lets other machines in: set BLAMESPAN_TOKEN, or listen on 127.0.0.1"
        )
    if len(token) < SHORTEST_TOKEN:
        raise SettingsError(
            f"BLAMESPAN_TOKEN: expected at least {SHORTEST_TOKEN} characters to listen beyond this machine;"
            " `openssl rand -hex 16` makes one"
        )


def _first_sentence(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    name = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    if not name:  # settings that contradict each other; the message names them
        return message
    is_secret = name in _SECRET or "@" in str(first["input"])  # a URL with a password
    shown = "…" if is_secret else repr(first["input"])
    is_word = message[1:2].islower()  # and no abbreviation, such as URL
    return f"{setting_name(name)}={shown}: {message[0].lower() if is_word else message[0]}{message[1:]}"
