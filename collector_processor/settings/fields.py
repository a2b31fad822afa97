"""Settings as fields, each with its meaning, default and valid values.

Durations are integer milliseconds, as in OpenTelemetry's own variables.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, Self
from urllib.parse import urlsplit

from platformdirs import user_data_path
from pydantic import ConfigDict, Field, field_validator, model_validator

from collector_processor.assembly.assembler import AssemblerLimits
from collector_processor.core.disk import RUNS
from collector_processor.core.headers import ANY, read_origins
from collector_processor.core.records import Carriers
from collector_processor.core.scores import Lane
from collector_processor.otlp import Address, Signal, Tenant
from collector_processor.otlp.destination import Destination, Forwarding, Protocol
from collector_processor.rebuild.redaction import ALL_KINDS, check_pattern, read_kinds
from collector_processor.settings.kafka import KafkaSettings
from collector_processor.settings.machine import receiving_bytes_here
from collector_processor.settings.value_types import (
    ExportText,
    ScoreTarget,
    WriteBack,
    address,
    completion_timers,
    http_address,
    idle_close_ms,
    max_age_ms,
    receiver_urls,
)

MEBIBYTE: Final = 1 << 20
_HOLD: Final = "hold:"
_LONGEST_HOLD_MS: Final = 3_600_000
"""One hour. The backend lacks spans as long as they are held, so a longer hold hides runs from on-call."""

PRECISION: Final = 0.19
"""Just above 0.18, the share of correct steps of `signals` for runs in which nothing stands out. Chosen on
273 labelled runs of seven systems, and checked on each with the value chosen on the others
(``docs/accuracy.md``)."""


FILE_ONLY: Final = frozenset(
    {
        "analysis_processes", "early_false_alarms", "idle_close", "keep_failed_bytes", "keep_passed_bytes",
        "max_age", "max_pending_bytes", "max_retained_bytes", "model_timeout",
    }
)  # fmt: skip
"""Settings without a variable: rarely set, and most follow from another one."""


class Settings(KafkaSettings):
    """All settings. Field ``x_y`` is key ``x_y`` and, if not ``FILE_ONLY``, variable ``BLAMESPAN_X_Y``."""

    # A value in an error may be a secret: pydantic's message is written without it (``_first_sentence``).
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    otlp_grpc_listen: str = Field(
        "127.0.0.1:4317", description="address of the OTLP/gRPC receiver; port 0 picks a free port"
    )
    otlp_http_listen: str = Field(
        "127.0.0.1:4318", description="address of the OTLP/HTTP receiver; port 0 picks a free port"
    )
    web_listen: str = Field(
        "127.0.0.1:8500", description="address of the pages, the API, `/healthz`, `/readyz` and `/metrics`"
    )
    data_dir: Path = Field(
        default_factory=lambda: user_data_path("blamespan", appauthor=False),
        description="directory for the journal and the stores; default: the platform's user data directory",
    )
    model: str | None = Field(
        None,
        description="any litellm model (needs the extra `models`); after a comma, further models that people"
        " may choose on the page; unset: analyses use no model",
    )
    method: str = Field("auto", description="attribution method; `blamespan attribute --help` lists them")
    ranker: Path | None = Field(None, description="model file made by `blamespan train`")
    precision: float = Field(
        PRECISION,
        ge=0,
        le=1,
        description="lowest probability, 0 to 1, that the blamed step is the right one: less certain verdicts"
        " are `undetermined` and only rank candidates; `0`: none are. `attribute` and `bench` have `--floor`",
    )
    mappings: str = Field("", description="mapping files for spans in no known dialect, comma-separated")
    write_back: WriteBack = Field(
        WriteBack.LATE,
        description="`late`: add carriers after the run; `hold`: hold an agent's spans and mark them before"
        " forwarding, for at most 20,000 ms; `hold:MILLISECONDS`: for at most so long, up to an hour",
    )
    hold_max: int = Field(20_000, gt=0, exclude=True, repr=False)
    """Milliseconds that hold mode may hold an agent's trace; part of ``write_back``."""
    root_grace: int = Field(
        10_000,
        ge=0,
        description="minimum ms without new spans after the run's root span ended; longer for services that"
        " send later",
    )
    idle_close: int = Field(
        default_factory=lambda given: idle_close_ms(given["root_grace"]),
        gt=0,
        description="ms without new spans until a provisional verdict; after ten times that, missing parents"
        " are no longer expected; default: 6 times `BLAMESPAN_ROOT_GRACE`, at least 60,000",
    )
    max_age: int = Field(
        default_factory=lambda given: max_age_ms(given["root_grace"]),
        gt=0,
        description="longest pause of a run in ms; after 1.25 times that without spans the run is judged;"
        " default: 360 times `BLAMESPAN_ROOT_GRACE`, at least 3,600,000 (an hour)",
    )
    budget_usd_per_run: float = Field(0.50, ge=0, description="maximum cost of one analysis")
    budget_usd_per_hour: float = Field(5.0, ge=0, description="maximum cost of all analyses per hour")
    model_timeout: int = Field(120_000, gt=0, description="timeout of one model call in ms")
    concurrency: int = Field(
        16,
        gt=0,
        description="maximum number of analyses that run at the same time, and of the worker processes for"
        " them; of these also at most one fewer than CPU cores (of the cgroup), 1 to 8",
    )
    analysis_processes: int | None = Field(
        None,
        ge=1,
        le=64,
        description="number of worker processes for analyses, if another is wanted",
    )
    tenant_headers: str = Field("x-scope-orgid", description="request headers that identify a tenant")
    forward_endpoint: str | None = Field(
        None, description="where to forward spans; takes precedence over the `OTEL_` variables"
    )
    forward_protocol: Protocol | None = Field(
        None, description="protocol of `BLAMESPAN_FORWARD_ENDPOINT`: `grpc` or `http/protobuf`"
    )
    forward_headers: str | None = Field(
        None, description="request headers for the backend: `key=value,…`, percent-encoded", repr=False
    )
    forward_max_bytes: int | None = Field(
        None, gt=0, description="largest request that the backend accepts, in bytes"
    )
    carriers: Carriers = Field(
        Carriers.FAILURES,
        description="runs that get carriers (spans with the verdict): `failures`, `all` or `none`",
    )
    carrier_status: Literal["unset", "error", "error-suspected"] = Field(
        "unset",
        description="span status of carriers; `error`: backends count failures as errors; `error-suspected`:"
        " suspected failures too",
    )
    suspect_false_alarms: float = Field(
        0.02,
        ge=0,
        le=0.5,
        description="share of good runs, 0 to 0.5, that may be called `suspected`; `0` turns suspected"
        " failures off",
    )
    early_false_alarms: float = Field(
        0.0,
        ge=0,
        le=0.5,
        description="share of passing runs, 0 to 0.5, that may get a false early warning; `0`: no early"
        " warnings",
    )
    export_text: ExportText = Field(
        ExportText.REDACTED,
        description="runs' text in the store, pages and carriers: `none`, `redacted` or `full`",
    )
    scores: str = Field(
        "",
        description="backends whose own scores show the verdicts: `phoenix=URL,mlflow=URL,langfuse=URL`;"
        " `phoenix@TENANT=URL` for a tenant's runs, `phoenix+labels=URL` to read people's scores back as"
        " labels ([how](scores.md))",
    )
    upstream_sampling: Literal["none", "head", "tail"] = Field(
        "none",
        description="sampling in front of blamespan: `none`, `head` or `tail`; `tail` turns off failure"
        " shares and the alarms on them",
    )
    web_url: str | None = Field(
        None, description="address of blamespan's pages, for links in notifications and carriers"
    )
    notify_url: str | None = Field(
        None,
        description="[receivers of notifications](alerts.md#notifications), comma-separated: `https://…` of"
        " your own program, an incoming webhook of Slack, or any URL of apprise (needs the extra `notify`)",
        repr=False,
    )
    notify_secret: str | None = Field(
        None, description="secret that signs notifications (HMAC-SHA256)", repr=False
    )
    notify_text: ExportText = Field(
        ExportText.NONE, description="text of verdicts in notifications: `none`, `redacted` or `full`"
    )
    failure_pattern: str | None = Field(
        None, description="regular expression (RE2); a run whose final answer matches it has failed"
    )
    storage_bytes: int = Field(
        4608 * MEBIBYTE,
        ge=MEBIBYTE,
        description="maximum bytes of spans and logs on disk: 4/9 for those not yet forwarded, 2/9 for those"
        " kept only for analysis, 2/9 for failed runs and 1/9 for passed ones ([shares](operations.md#disk))",
    )
    max_pending_bytes: int = Field(
        default_factory=lambda given: 4 * given["storage_bytes"] // 9,
        gt=0,
        description="maximum bytes in the journal that are not yet forwarded; default: 4/9 of"
        " `BLAMESPAN_STORAGE_BYTES`",
    )
    max_retained_bytes: int = Field(
        default_factory=lambda given: 2 * given["storage_bytes"] // 9,
        gt=0,
        description="maximum bytes in the journal kept only for analysis; default: 2/9",
    )
    keep_failed_bytes: int = Field(
        default_factory=lambda given: 2 * given["storage_bytes"] // 9,
        ge=0,
        description="maximum bytes in the store of failed runs' spans and logs, compressed; the oldest are"
        " deleted first; `0` keeps none; default: 2/9",
    )
    keep_passed_bytes: int = Field(
        default_factory=lambda given: given["storage_bytes"] // 9,
        ge=0,
        description="as `keep_failed_bytes`, for passed runs; `0` keeps none; default: 1/9",
    )
    keep_days: int = Field(
        30, gt=0, le=36_500, description="days after which runs without a label are deleted from the store"
    )
    token: str | None = Field(
        None,
        description="bearer token; required to listen beyond loopback, then of at least 16 characters",
        repr=False,
    )
    metrics_token: str | None = Field(
        None,
        description="bearer token for `/metrics` alone, which names all tenants' agents; unset: the token"
        " opens it too",
        repr=False,
    )
    cors_allowed_origins: str = Field(
        "",
        description="origins of web pages that may send over OTLP/HTTP, comma-separated; `*` for any,"
        " which requires a token",
    )
    tls_certificate: Path | None = Field(
        None,
        description="PEM certificate chain of the receivers and the pages, leaf first; reloaded when it"
        " changes",
    )
    tls_key: Path | None = Field(None, description="PEM of the certificate's private key, without a password")
    tls_client_ca: Path | None = Field(
        None,
        description="PEM of certificate authorities; clients need a certificate from one of them (mutual"
        " TLS)",
    )
    redact: str = Field(
        ",".join(ALL_KINDS),
        description="kinds of secrets removed from runs' text before a model, the store or a page gets it; or"
        " `none`",
    )
    trace_url: str | None = Field(
        None,
        description="address of a trace in your backend's pages, with `{trace_id}` and optionally"
        " `{span_id}`, for links from runs to traces",
    )
    redact_patterns: tuple[str, ...] = Field(
        (), description="further patterns of secrets, RE2 syntax, one per line (in the file: a list)"
    )
    asks_analyzers: bool = Field(default=False, repr=False)
    """Whether analyzers judge failed runs: set for ``blamespan serve collector``."""
    endpoints: Mapping[Signal, Destination] = Field(default_factory=dict, exclude=True, repr=False)
    score_targets: tuple[ScoreTarget, ...] = Field((), exclude=True, repr=False)
    export_metrics_ms: int = Field(0, exclude=True, repr=False)
    """Interval at which our own metrics are sent over OTLP; 0 to send none."""
    settle_s: float = Field(35.0, exclude=True, repr=False)
    """Seconds that a new series of ``/metrics`` stays at zero: longer than a scrape interval of 30 s."""
    score_read_s: float = Field(60.0, exclude=True, repr=False)
    """Seconds between two readings of people's scores."""
    shutdown_s: float = Field(20.0, exclude=True, repr=False)
    """Longest shutdown in seconds; unfinished work resumes at the next start."""
    spill_s: float = Field(60.0, exclude=True, repr=False)
    """With Kafka, seconds for which an open trace holds the offset back before it is kept in the store."""
    receiving_bytes: int = Field(default_factory=receiving_bytes_here, exclude=True, repr=False)
    """Bound in bytes on request bodies held at once for all clients; separate for HTTP and gRPC."""

    @field_validator("token", "metrics_token", "model")
    @classmethod
    def _empty_means_unset(cls, value: str | None) -> str | None:
        return value or None

    @field_validator("otlp_grpc_listen", "otlp_http_listen", "web_listen")
    @classmethod
    def _is_address(cls, value: str) -> str:
        address(value)
        return value

    @field_validator("web_url")
    @classmethod
    def _is_address_of_http(cls, value: str | None) -> str | None:
        return http_address(value) if value else None

    @field_validator("notify_url")
    @classmethod
    def _names_receivers(cls, value: str | None) -> str | None:
        receiver_urls(value or "")
        return value

    @field_validator("trace_url")
    @classmethod
    def _is_trace_template(cls, value: str | None) -> str | None:
        if not value:
            return None
        if not value.startswith(("http://", "https://")) or "{trace_id}" not in value:
            raise ValueError("expected http://… or https://…, with {trace_id} in it")
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

    @model_validator(mode="before")
    @classmethod
    def _hold_says_how_long(cls, values: dict[str, Any]) -> dict[str, Any]:
        given = values.get("write_back")
        if not isinstance(given, str) or not given.startswith(_HOLD):
            return values
        hold_ms = given.removeprefix(_HOLD)
        if not (hold_ms.isascii() and hold_ms.isdigit() and 0 < int(hold_ms) <= _LONGEST_HOLD_MS):
            raise ValueError(
                f"BLAMESPAN_WRITE_BACK={given}: expected late, hold or hold:MILLISECONDS, at most"
                f" {_LONGEST_HOLD_MS}"
            )
        return {**values, "write_back": WriteBack.HOLD, "hold_max": int(hold_ms)}

    @model_validator(mode="after")
    def _kafka_holds_nothing(self) -> Self:
        if self.kafka and self.write_back is WriteBack.HOLD:
            raise ValueError(
                "BLAMESPAN_WRITE_BACK=hold: expected late with BLAMESPAN_QUEUE=kafka://…: spans held by a"
                " processor cannot move to another"
            )
        return self

    @property
    def store_place(self) -> Path | str:
        """The store's file, or the URL of its database."""
        return self.data_dir / RUNS if self.store_url is None else self.store_url

    @property
    def origins(self) -> frozenset[str]:
        """Origins of web pages that may send spans."""
        return read_origins(self.cors_allowed_origins)

    @property
    def allowed_host_names(self) -> tuple[str, ...]:
        """Names besides ``localhost`` by which browsers may call this machine, in lower case."""
        host = urlsplit(self.web_url or "").hostname
        return (host,) if host else ()

    @property
    def analyzer_timeout_s(self) -> float:
        """Seconds for one run at the analyzers, takeovers included; then `signals` answers.

        300 by default: enough for two answers of a slow model and the work between them.
        """
        return 2.5 * self.model_timeout / 1000

    @property
    def tenant_header_names(self) -> tuple[str, ...]:
        """Lower-case names of the headers that identify a tenant."""
        return tuple(name.strip().lower() for name in self.tenant_headers.split(",") if name.strip())

    @property
    def notify_urls(self) -> tuple[str, ...]:
        """URLs of the receivers of notices; secret."""
        return receiver_urls(self.notify_url or "")

    @property
    def score_lanes(self) -> Mapping[Tenant, tuple[Lane, ...]]:
        """The parts of the outbox for each tenant's scores."""
        lanes: dict[Tenant, tuple[Lane, ...]] = {}
        for target in self.score_targets:
            lanes[target.tenant] = (*lanes.get(target.tenant, ()), target.lane)
        return lanes

    @property
    def is_fair_sample(self) -> bool:
        """Whether runs arrive regardless of how they end; only then are failure rates meaningful."""
        return self.upstream_sampling != "tail"

    @property
    def assembler_limits(self) -> AssemblerLimits:
        """The completion timers in seconds, as the assembler needs them."""
        return completion_timers(self.root_grace / 1000, self.idle_close / 1000, self.max_age / 1000)

    @property
    def forwarding(self) -> Forwarding:
        """Destination of spans by our own variables, which take precedence over OpenTelemetry's."""
        return Forwarding(
            endpoint=self.forward_endpoint,
            protocol=self.forward_protocol,
            headers=self.forward_headers,
            max_bytes=self.forward_max_bytes,
            listeners=self.listeners,
        )

    @property
    def listeners(self) -> tuple[Address, ...]:
        """Configured listen addresses: gRPC, HTTP, web."""
        return (address(self.otlp_grpc_listen), address(self.otlp_http_listen), address(self.web_listen))
