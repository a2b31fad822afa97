"""Settings of what several processors share: the store, and Kafka with its topics and credentials."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, Field, field_validator, model_validator

from collector_processor.otlp import Signal

SCHEME: Final = "kafka://"
_BROKERS: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):\d{1,5}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaAccess:
    """Where the cluster is, and how to get in."""

    brokers: str
    """``host:port,…``."""
    group: str
    topics: dict[Signal, str]
    max_record_bytes: int
    protocol: str = "plaintext"
    """``plaintext``, ``ssl``, ``sasl_plaintext`` or ``sasl_ssl``."""
    mechanism: str = "SCRAM-SHA-512"
    username: str | None = None
    password: str | None = None
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    @property
    def common(self) -> dict[str, Any]:
        """Return what every client needs."""
        found: dict[str, Any] = {
            "bootstrap.servers": self.brokers,
            "client.id": "blamespan",
            "security.protocol": self.protocol,
            "log_level": 4,
        }
        if self.protocol.startswith("sasl"):
            found |= {
                "sasl.mechanism": self.mechanism,
                "sasl.username": self.username or "",
                "sasl.password": self.password or "",
            }
        files = {"ca": self.ca, "certificate": self.certificate, "key": self.key}
        return found | {f"ssl.{name}.location": str(path) for name, path in files.items() if path}


class KafkaSettings(BaseModel):
    """The part of the settings that says where data is kept beyond this machine."""

    queue: str = Field(
        "sqlite",
        description="where acknowledged requests are kept: `sqlite` (on this machine's disk), or"
        " `kafka://host:port,…` ([several processors](kafka.md))",
    )
    store_url: str | None = Field(
        None,
        description="`postgresql+psycopg://user:password@host/database`, of one collector or `serve` (with"
        " Kafka: of its group), and any number of analyzers and `web`; default: a file in the data directory",
        repr=False,
    )
    kafka_group: str = Field("blamespan", min_length=1, description="consumer group of the processors")
    kafka_topics: str = Field(
        "otlp_spans,otlp_logs,otlp_metrics",
        description="topics of traces, logs and metrics, as the Collector's exporter names them",
    )
    kafka_security: Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"] = Field(
        "plaintext",
        description="`plaintext`, `ssl`, `sasl_plaintext` or `sasl_ssl`: encryption and authentication",
    )
    kafka_sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        "SCRAM-SHA-512", description="`PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`"
    )
    kafka_username: str | None = Field(None, description="user at the brokers")
    kafka_password: str | None = Field(None, description="the user's password", repr=False)
    kafka_ca: Path | None = Field(
        None, description="PEM of certificate authorities to trust for brokers; unset: the system's"
    )
    kafka_certificate: Path | None = Field(
        None, description="PEM of our certificate for brokers that demand one (mutual TLS)"
    )
    kafka_key: Path | None = Field(None, description="PEM of that certificate's private key")
    kafka_max_record_bytes: int = Field(
        1_000_000,
        ge=10_000,
        description="largest record in bytes; not above the brokers' `message.max.bytes`; larger traces are"
        " split between spans",
    )

    @field_validator("store_url")
    @classmethod
    def _is_url_of_postgresql(cls, value: str | None) -> str | None:
        if value and not value.startswith("postgresql+psycopg://"):
            raise ValueError("expected postgresql+psycopg://…, or nothing for a file in the data directory")
        return value or None

    @field_validator("queue")
    @classmethod
    def _is_queue(cls, value: str) -> str:
        brokers = value.removeprefix(SCHEME).split(",")
        if value != "sqlite" and not (
            value.startswith(SCHEME) and all(_BROKERS.fullmatch(one) for one in brokers)
        ):
            raise ValueError("expected sqlite, or kafka://host:port,… without user, password and path")
        return value

    @field_validator("kafka_topics")
    @classmethod
    def _are_three_topics(cls, value: str) -> str:
        names = [name.strip() for name in value.split(",")]
        if len(names) != len(Signal) or len(set(names)) != len(names) or not all(names):
            raise ValueError("expected three different topics: traces,logs,metrics")
        return value

    @model_validator(mode="after")
    def _kafka_needs_a_shared_store(self) -> Self:
        if self.kafka and self.store_url is None:
            raise ValueError(
                "BLAMESPAN_QUEUE=kafka://… expects BLAMESPAN_STORE_URL=postgresql+psycopg://…:"
                " all processors of the group share its verdicts"
            )
        return self

    @property
    def kafka(self) -> KafkaAccess | None:
        """The cluster; ``None`` if the queue is on this machine's disk."""
        if not self.queue.startswith(SCHEME):
            return None
        names = (name.strip() for name in self.kafka_topics.split(","))
        return KafkaAccess(
            brokers=self.queue.removeprefix(SCHEME),
            group=self.kafka_group,
            topics=dict(zip(Signal, names, strict=True)),
            max_record_bytes=self.kafka_max_record_bytes,
            protocol=self.kafka_security,
            mechanism=self.kafka_sasl_mechanism,
            username=self.kafka_username,
            password=self.kafka_password,
            ca=self.kafka_ca,
            certificate=self.kafka_certificate,
            key=self.kafka_key,
        )
