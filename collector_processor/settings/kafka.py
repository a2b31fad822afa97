"""Settings of what several processors share: the store, and Kafka with its topics and credentials."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from pydantic import BaseModel, Field, field_validator, model_validator

from collector_processor.otlp import Signal
from collector_processor.otlp.destination import read_pairs

SCHEME: Final = "kafka://"
_PROPERTIES: Final[Mapping[str, str]] = {
    "security.protocol": r"plaintext|ssl|sasl_plaintext|sasl_ssl",
    "sasl.mechanism": r"PLAIN|SCRAM-SHA-256|SCRAM-SHA-512",
    "ssl.ca.location": r".+",
    "ssl.certificate.location": r".+",
    "ssl.key.location": r".+",
    "group.id": r".+",
    "message.max.bytes": r"[1-9][0-9]{4,8}",
}
"""Properties that may be set, each with a pattern of its values: others could load code or lose records."""
_WANTED: Final[Mapping[str, str]] = {r".+": "a value", r"[1-9][0-9]{4,8}": "10000 to 999999999"}
"""Patterns in words; the others list their values."""
_BROKERS: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):\d{1,5}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaAccess:
    """Address, credentials and topics of the cluster."""

    brokers: str
    """``host:port,…``."""
    group: str
    topics: dict[Signal, str]
    max_record_bytes: int
    """Largest record; not above the brokers' ``message.max.bytes``."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Settings of encryption and authentication, by librdkafka's names."""
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    @property
    def common(self) -> dict[str, Any]:
        """Return what every client needs."""
        found: dict[str, Any] = {
            "bootstrap.servers": self.brokers,
            "client.id": "blamespan",
            "security.protocol": "plaintext",
            "log_level": 4,
            **self.properties,
        }
        if found["security.protocol"].startswith("sasl"):
            found.setdefault("sasl.mechanism", "SCRAM-SHA-512")
            found |= {"sasl.username": self.username or "", "sasl.password": self.password or ""}
        return found


class KafkaSettings(BaseModel):
    """The part of the settings that says where data is kept beyond this machine."""

    queue: str = Field(
        "sqlite",
        description="where acknowledged requests are kept: `sqlite` (on this machine's disk), or"
        " `kafka://host:port,…` ([several processors](kafka.md))",
    )
    store_url: str | None = Field(
        None,
        description="`postgresql+psycopg://user:password@host/database`, shared by one collector or"
        " `serve` (with Kafka: its group), and any number of analyzers and `serve pages`; default: a file in"
        " the data directory",
        repr=False,
    )
    kafka_topics: str = Field(
        "otlp_spans,otlp_logs,otlp_metrics",
        description="topics of traces, logs and metrics, as the Collector's exporter names them",
    )
    kafka_username: str | None = Field(None, description="user at the brokers")
    kafka_password: str | None = Field(None, description="the user's password", repr=False)
    kafka_properties: str = Field(
        "",
        description="properties by librdkafka's names, `name=value,…`, percent-encoded: "
        + ", ".join(f"`{name}`" for name in _PROPERTIES),
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
            raise ValueError("expected sqlite, or kafka://host:port,… without user, password or path")
        return value

    @field_validator("kafka_topics")
    @classmethod
    def _are_three_topics(cls, value: str) -> str:
        names = [name.strip() for name in value.split(",")]
        if len(names) != len(Signal) or len(set(names)) != len(names) or not all(names):
            raise ValueError("expected three different topics: traces,logs,metrics")
        return value

    @field_validator("kafka_properties")
    @classmethod
    def _are_known_properties(cls, value: str) -> str:
        for name, text in read_pairs(value).items():
            if name not in _PROPERTIES:
                raise ValueError(f"unknown property {name!r}; expected one of {', '.join(_PROPERTIES)}")
            if not re.fullmatch(_PROPERTIES[name], text):
                pattern = _PROPERTIES[name]
                wanted = _WANTED.get(pattern, pattern.replace("|", " or "))
                raise ValueError(f"{name}={text}: expected {wanted}")
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
        properties = read_pairs(self.kafka_properties)
        return KafkaAccess(
            brokers=self.queue.removeprefix(SCHEME),
            group=properties.pop("group.id", "blamespan"),
            topics=dict(zip(Signal, names, strict=True)),
            max_record_bytes=int(properties.pop("message.max.bytes", "1000000")),
            properties=properties,
            username=self.kafka_username,
            password=self.kafka_password,
        )
