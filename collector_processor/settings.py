"""Settings: the environment and ``blamespan.toml``, read once, handed down in pieces.

OpenTelemetry's own variables where it has one, with its rules: empty means
unset, durations are integer milliseconds, booleans only ``true``. Nothing else
in the project reads the environment for settings.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Literal, Self
from urllib.parse import urlsplit

from platformdirs import user_data_path
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from collector_processor.annotate import Carriers
from collector_processor.assembler import AssemblerLimits
from collector_processor.destination import Destination, Protocol
from collector_processor.endpoints import checked_url, destination_of
from collector_processor.origins import ANY, read_origins
from collector_processor.otlp import CollectorError, Signal
from collector_processor.redaction import ALL_KINDS, check_pattern, read_kinds

CONFIG_FILE: Final = "blamespan.toml"
PREFIX: Final = "BLAMESPAN_"
MEBIBYTE: Final = 1 << 20
_OF_KUBERNETES: Final = re.compile(
    r"_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$|_PORT(_\d+_[A-Z]+(_[A-Z]+)?)?$"
)
"""What every pod is told of a service that is called ``blamespan``."""


class SettingsError(CollectorError):
    """A setting that cannot be; the message names variable, value and what was expected."""


class WriteBack(StrEnum):
    """How blame gets into the trace."""

    LATE = "late"
    HOLD = "hold"


class ExportText(StrEnum):
    """What prose may leave on carriers and logs."""

    NONE = "none"
    REDACTED = "redacted"
    FULL = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where to listen."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host in {"localhost", "::1"} or self.host.startswith("127.")


_SECRET: Final = frozenset(
    {"token", "forward_headers", "notify_webhook", "notify_slack", "notify_alertmanager", "notify_secret"}
)
"""Fields whose values are never shown."""


class Settings(BaseModel):
    """Everything that can be set. Field ``x_y`` is variable ``BLAMESPAN_X_Y`` and TOML key ``x_y``."""

    # A value in an error may be a secret: what pydantic says of it is written without (``_first_sentence``).
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    otlp_grpc_listen: str = Field("127.0.0.1:4317", description="OTLP/gRPC receiver; port 0 = a free one")
    otlp_http_listen: str = Field("127.0.0.1:4318", description="OTLP/HTTP receiver; port 0 = a free one")
    web_listen: str = Field("127.0.0.1:8500", description="API, `/healthz`, `/readyz`, `/metrics`")
    data_dir: Path = Field(
        default_factory=lambda: user_data_path("blamespan", appauthor=False),
        description="journal, store, models; default: the platform's user data directory",
    )
    model: str | None = Field(
        None,
        description="any litellm model, or several with commas between for votes; none = zero-model tiers",
    )
    page_models: str | None = Field(
        None, description="models that a person may choose on the page beside that one, with commas between"
    )
    method: str = Field("auto", description="attribution method")
    ranker: Path | None = Field(None, description="model file made by `blamespan train`")
    precision: float | None = Field(
        None, gt=0, le=1, description="right steps wanted of 1; less sure is `undetermined`; needs a ranker"
    )
    write_back: WriteBack = Field(WriteBack.LATE, description="`late` or `hold`")
    hold_max: int = Field(20_000, gt=0, description="ms an agent trace may wait in hold mode")
    root_grace: int = Field(
        10_000,
        ge=0,
        description="least ms of quiet after the run's top span ended; longer if its services send later",
    )
    idle_close: int = Field(
        60_000,
        gt=0,
        description="ms of quiet until a provisional verdict; missing parents are given up at ten times that",
    )
    max_age: int = Field(3_600_000, gt=0, description="ms after which a trace is complete whatever comes")
    budget_usd_per_run: float = Field(0.50, ge=0, description="most that one analysis may cost")
    budget_usd_per_hour: float = Field(5.0, ge=0, description="most that all analyses of an hour may cost")
    model_timeout: int = Field(120_000, gt=0, description="ms one model call may take")
    concurrency: int = Field(16, gt=0, description="analyses at once")
    analysis_process: Literal["auto", "never"] = Field(
        "auto",
        description="`auto`: a process beside the service analyses while much is to be analysed; or `never`",
    )
    queue: Literal["sqlite"] = Field("sqlite", description="the journal's kind; no other yet")
    store_url: None = Field(None, description="must be unset: the store is SQLite in the data directory")
    tenant_headers: str = Field("x-scope-orgid", description="request headers that identify a tenant")
    forward_endpoint: str | None = Field(None, description="where spans go on to, before the `OTEL_` ones")
    forward_protocol: Protocol | None = Field(None, description="`grpc` or `http/protobuf`")
    forward_headers: str | None = Field(None, description="`key=value,…`, percent-encoded", repr=False)
    forward_certificate: Path | None = Field(
        None, description="PEM of the authorities the backend is trusted by"
    )
    forward_client_certificate: Path | None = Field(
        None, description="PEM of what the backend is shown of us"
    )
    forward_client_key: Path | None = Field(None, description="PEM of its key, if not in the same file")
    forward_max_bytes: int | None = Field(None, gt=0, description="backend's request limit in bytes")
    carriers: Carriers = Field(
        Carriers.FAILURES,
        description="which runs get spans that carry the verdict: `failures`, `all` or `none`",
    )
    carrier_min_confidence: float = Field(
        0.0,
        ge=0,
        le=1,
        description="confidence, 0 to 1, below which no step is marked as decisive, only the run as failed",
    )
    carrier_status: Literal["unset", "error"] = Field(
        "unset", description="`error` counts carriers as errors"
    )
    export_text: ExportText = Field(ExportText.REDACTED, description="`none`, `redacted` or `full`")
    upstream_sampling: Literal["none", "head", "tail"] = Field(
        "none",
        description="sampling before us; with `tail`, shares of failures and the alarms on them are off",
    )
    web_url: str | None = Field(
        None, description="address of blamespan's pages, for links in notices and on carriers"
    )
    notify_webhook: str | None = Field(
        None, description="address that is told of issues and alarms, as JSON", repr=False
    )
    notify_slack: str | None = Field(
        None, description="incoming webhook of Slack, or of its like, that is told of them", repr=False
    )
    notify_alertmanager: str | None = Field(
        None, description="address of an Alertmanager that is told what stands, over its API v2", repr=False
    )
    notify_secret: str | None = Field(
        None, description="signs what webhook and Slack are told (HMAC-SHA256)", repr=False
    )
    notify_text: ExportText = Field(
        ExportText.NONE, description="prose of verdicts in notices: `none`, `redacted` or `full`"
    )
    notify_per_hour: int = Field(20, gt=0, description="notices an hour; the last stands for the rest")
    failure_pattern: str | None = Field(
        None, description="regular expression (RE2): a final answer it finds is a failure"
    )
    metrics_settle: int = Field(
        35_000,
        ge=0,
        description="ms a new series of `/metrics` is shown at zero; longer than two scrapes are apart",
    )
    metrics_interval: int = Field(
        0, ge=0, description="ms between our own metrics over OTLP, to the endpoint for metrics; 0 = not sent"
    )
    shutdown_max: int = Field(20_000, ge=0, description="ms a shutdown may take; the rest is resumed")
    max_request_bytes: int = Field(20 * MEBIBYTE, gt=0, description="largest request taken, decompressed")
    max_pending_bytes: int = Field(2048 * MEBIBYTE, gt=0, description="journal bytes not yet forwarded")
    max_retained_bytes: int = Field(1024 * MEBIBYTE, gt=0, description="journal bytes kept for analysis only")
    token: str | None = Field(
        None, description="bearer token; required to listen beyond loopback", repr=False
    )
    allowed_hosts: str = Field(
        "",
        description="further names of this machine that a Host header may bear where no token is asked for",
    )
    cors_allowed_origins: str = Field(
        "",
        description="origins of web pages that may send over OTLP/HTTP, comma-separated; `*` for any,"
        " which requires a token",
    )
    tls_certificate: Path | None = Field(
        None, description="PEM chain of receivers and web, leaf first; read again when it changes"
    )
    tls_key: Path | None = Field(None, description="PEM of its key, without a password")
    tls_client_ca: Path | None = Field(
        None, description="PEM of authorities: clients need a certificate of one (mutual TLS)"
    )
    analyzer_endpoint: str | None = Field(
        None, description="`http://host:port` of the analyzers; `blamespan collector` asks there"
    )
    analyzer_timeout: int = Field(
        300_000, gt=0, description="ms an analyzer may take for a run, retries included; then signals answer"
    )
    analyzer_certificate: Path | None = Field(
        None, description="PEM of the authorities that analyzers are trusted by"
    )
    max_receiving_bytes: int = Field(
        256 * MEBIBYTE,
        gt=0,
        description="bytes of bodies held at once, of all clients; over HTTP, and again over gRPC",
    )
    max_connections: int = Field(
        4096, gt=0, description="connections at once, over HTTP, to the receiver and to web"
    )
    redact: str = Field(
        ",".join(ALL_KINDS),
        description="taken out of runs' text before a model, the store or a page sees it; or `none`",
    )
    redact_patterns: tuple[str, ...] = Field(
        (), description="further patterns to take out, RE2 syntax, one a line (in the file: a list)"
    )
    jaeger_url: str | None = Field(
        None, description="address of Jaeger's page, for the links from runs to their traces"
    )
    grafana_url: str | None = Field(
        None, description="address of Grafana, for the links from runs to their traces in Tempo"
    )
    grafana_tempo_uid: str = Field("tempo", description="Grafana's uid of the Tempo data source")
    endpoints: Mapping[Signal, Destination] = Field(default_factory=dict, exclude=True, repr=False)

    @field_validator("token", "model")
    @classmethod
    def _empty_means_unset(cls, value: str | None) -> str | None:
        return value or None

    @field_validator("otlp_grpc_listen", "otlp_http_listen", "web_listen")
    @classmethod
    def _is_address(cls, value: str) -> str:
        address(value)
        return value

    @field_validator("analyzer_endpoint", "jaeger_url", "grafana_url")
    @classmethod
    def _is_url(cls, value: str | None) -> str | None:
        return checked_url(value) if value else None

    @field_validator("web_url", "notify_webhook", "notify_slack", "notify_alertmanager")
    @classmethod
    def _is_address_of_http(cls, value: str | None) -> str | None:
        if not value:
            return None
        url = urlsplit(value)
        is_plain = value.isascii() and value.isprintable() and " " not in value and "@" not in url.netloc
        if url.scheme not in {"http", "https"} or not url.hostname or not is_plain or url.fragment:
            raise ValueError("expected http://… or https://…, without a user or a fragment")
        _ = url.port  # raises where it is none
        return value

    @field_validator("cors_allowed_origins")
    @classmethod
    def _are_origins(cls, value: str) -> str:
        read_origins(value)
        return value

    @field_validator("redact")
    @classmethod
    def _names_kinds(cls, value: str) -> str:
        read_kinds(value)
        return value

    @field_validator("redact_patterns", mode="before")
    @classmethod
    def _one_a_line(cls, value: object) -> object:
        return tuple(line for line in value.splitlines() if line.strip()) if isinstance(value, str) else value

    @field_validator("redact_patterns")
    @classmethod
    def _are_patterns(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in value:
            check_pattern(pattern)
        return value

    @model_validator(mode="after")
    def _certificates_have_keys(self) -> Self:
        if bool(self.tls_certificate) != bool(self.tls_key):
            raise ValueError("BLAMESPAN_TLS_CERTIFICATE and BLAMESPAN_TLS_KEY: expected both or neither")
        if self.tls_client_ca and not self.tls_certificate:
            raise ValueError("BLAMESPAN_TLS_CLIENT_CA without BLAMESPAN_TLS_CERTIFICATE: expected both")
        return self

    @model_validator(mode="after")
    def _any_page_needs_a_token(self) -> Self:
        if ANY in self.origins and not self.token:
            raise ValueError(
                "BLAMESPAN_CORS_ALLOWED_ORIGINS=*: expected BLAMESPAN_TOKEN too, or a list of origins;"
                " otherwise any web page could send spans"
            )
        return self

    @property
    def origins(self) -> frozenset[str]:
        """Origins of pages that may send."""
        return read_origins(self.cors_allowed_origins)

    @property
    def allowed_host_names(self) -> tuple[str, ...]:
        """Lower-case names beyond ``localhost`` by which browsers may call this machine."""
        return tuple(name.strip().lower() for name in self.allowed_hosts.split(",") if name.strip())

    @property
    def tenant_header_names(self) -> tuple[str, ...]:
        """Lower-case names of the headers that identify a tenant."""
        return tuple(name.strip().lower() for name in self.tenant_headers.split(",") if name.strip())

    @property
    def is_fair_sample(self) -> bool:
        """Whether runs come whatever their end: only then can shares of failures be told."""
        return self.upstream_sampling != "tail"

    @property
    def assembler_limits(self) -> AssemblerLimits:
        """The completion timers, in the assembler's seconds."""
        return AssemblerLimits(
            root_grace_s=self.root_grace / 1000,
            idle_close_s=self.idle_close / 1000,
            absent_idle_s=10 * self.idle_close / 1000,
            max_age_s=self.max_age / 1000,
        )

    @property
    def listeners(self) -> tuple[Address, ...]:
        """Where we listen, as asked for: gRPC, HTTP, web."""
        return (address(self.otlp_grpc_listen), address(self.otlp_http_listen), address(self.web_listen))


def address(text: str) -> Address:
    """Read ``host:port``; an IPv6 host stands in brackets.

    Raises:
        ValueError: it is not one.
    """
    host, separator, port = text.rpartition(":")
    if not separator or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"expected host:port, such as 127.0.0.1:4317, got {text!r}")
    return Address(host=host.strip("[]") or "0.0.0.0", port=int(port))  # noqa: S104 - ":4317" says every interface


def load_settings(environ: Mapping[str, str], *, directory: Path | None = None, **overrides: Any) -> Settings:
    """Read settings: overrides before environment before ``blamespan.toml`` before defaults.

    Args:
        environ: the process's environment.
        directory: where ``blamespan.toml`` is looked for; ``None`` looks nowhere.
        overrides: fields set on the command line; ``None`` is not set.

    Raises:
        SettingsError: a value cannot be, said by name.
    """
    values = _from_file(directory) | _from_environment(environ)
    values |= {key: value for key, value in overrides.items() if value is not None}
    try:
        settings = Settings.model_validate(values)
        endpoints = {
            signal: endpoint for signal in Signal if (endpoint := destination_of(settings, environ, signal))
        }
    except ValidationError as error:
        raise SettingsError(_first_sentence(error)) from error
    except ValueError as error:
        raise SettingsError(str(error)) from error
    return settings.model_copy(update={"endpoints": endpoints})


def _from_file(directory: Path | None) -> dict[str, Any]:
    path = directory / CONFIG_FILE if directory else None
    if path is None or not path.is_file():
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{CONFIG_FILE}: expected TOML: {error}") from error


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    fields = Settings.model_fields.keys() - {"endpoints"}
    return {name: value for name in fields if (value := environ.get(PREFIX + name.upper(), "").strip())}


def unknown_variables(environ: Mapping[str, str]) -> Mapping[str, str | None]:
    """Return the variables that look like ours and are none, each with the one that may be meant."""
    known = [PREFIX + name.upper() for name in Settings.model_fields if name != "endpoints"]
    unknown = (name for name in sorted(environ) if name.startswith(PREFIX) and name not in known)
    return {
        name: next(iter(get_close_matches(name, known, n=1, cutoff=0.8)), None)
        for name in unknown
        if not _OF_KUBERNETES.search(name)
    }


def require_token(settings: Settings) -> None:
    """Refuse to listen beyond this machine without a token; raises ``SettingsError``."""
    beyond = [str(listener) for listener in settings.listeners if not listener.is_loopback]
    if beyond and not settings.token:
        raise SettingsError(
            f"listening on {beyond[0]} lets other machines in: set BLAMESPAN_TOKEN, or listen on 127.0.0.1"
        )


def _first_sentence(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"{CONFIG_FILE}: unknown setting {name!r}"
    if name == "store_url":
        return "BLAMESPAN_STORE_URL: must be unset: the store is SQLite in BLAMESPAN_DATA_DIR"
    if not name:  # what settings are to each other; the sentence names them
        return first["msg"].removeprefix("Value error, ")
    shown = "…" if name in _SECRET else repr(first["input"])
    return f"{PREFIX}{name.upper()}={shown}: {first['msg'][0].lower()}{first['msg'][1:]}"
