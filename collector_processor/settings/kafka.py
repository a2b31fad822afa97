"""Settings of what several processors share: the store, and Kafka with its topics and credentials.

The cluster is one URL: ``kafka://user:password@host:port,…?topics=…&security.protocol=…``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self
from urllib.parse import unquote

from pydantic import BaseModel, Field, field_validator, model_validator

from collector_processor.otlp import Signal

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
_STORE_SCHEMES: Final = ("postgresql://", "postgres://", "postgresql+psycopg://")
_TOPICS: Final = "topics"
_DEFAULT_TOPICS: Final = "otlp_spans,otlp_logs,otlp_metrics"
"""Topics of traces, logs and metrics, as the Collector's exporter names them."""
_WANTED: Final[Mapping[str, str]] = {r".+": "a value", r"[1-9][0-9]{4,8}": "10000 to 999999999"}
"""Patterns in words; the others list their values."""
_BROKERS: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):\d{1,5}")
_ENCODED: Final = r"((?:[A-Za-z0-9._~!$'()*+;-]|%[0-9A-Fa-f]{2})+)"
_USER: Final = re.compile(f"{_ENCODED}:{_ENCODED}")
_EXPECTED: Final = (
    "expected sqlite, or kafka://host:port,…, or kafka://user:password@host:port,…?topics=…, percent-encoded"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaAccess:
    """Address, credentials and topics of the cluster."""

    brokers: str
    """``host:port,…``."""
    group: str
    topics: dict[Signal, str]
    max_record_bytes: int
    """Largest record; not above the brokers' ``message.max.bytes``."""
    properties: Mapping[str, str]
    """Settings of encryption and authentication, by librdkafka's names."""
    username: str | None
    password: str | None = field(repr=False)

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


def read_cluster(url: str) -> KafkaAccess:
    """Read ``kafka://[user:password@]host:port,…[?name=value&…]``, percent-encoded.

    The names are ``topics`` (three, of traces, logs and metrics) and those of librdkafka's properties.

    Raises:
        ValueError: it cannot be read; the message contains neither user nor password.
    """
    place, _, query = url.removeprefix(SCHEME).partition("?")
    if "@" in query:  # a password with a question mark that is not encoded
        raise ValueError(_EXPECTED)
    user, at, brokers = place.rpartition("@")
    named = _USER.fullmatch(user)
    if not all(_BROKERS.fullmatch(one) for one in brokers.split(",")) or bool(at) != bool(named):
        raise ValueError(_EXPECTED)
    properties = _read_properties(query)
    if properties.get("security.protocol", "").startswith("sasl_") != bool(named):
        raise ValueError("expected user:password@ together with security.protocol=sasl_ssl or sasl_plaintext")
    topics = _read_topics(properties.pop(_TOPICS, _DEFAULT_TOPICS))
    username, password = (unquote(part) for part in named.groups()) if named else (None, None)
    return KafkaAccess(
        brokers=brokers,
        group=properties.pop("group.id", "blamespan"),
        topics=topics,
        max_record_bytes=int(properties.pop("message.max.bytes", "1000000")),
        properties=properties,
        username=username,
        password=password,
    )


def _read_properties(query: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in query.split("&") if part)
    found = {unquote(name): unquote(value) for name, _, value in pairs}
    for name, text in found.items():
        pattern = r".+" if name == _TOPICS else _PROPERTIES.get(name)
        if pattern is None:
            known = ", ".join([_TOPICS, *_PROPERTIES])
            raise ValueError(f"unknown property {name!r}; expected one of {known}")
        if not re.fullmatch(pattern, text):
            wanted = _WANTED.get(pattern, pattern.replace("|", " or "))
            raise ValueError(f"{name}={text}: expected {wanted}")
    return found


def _read_topics(text: str) -> dict[Signal, str]:
    names = [name.strip() for name in text.split(",")]
    if len(names) != len(Signal) or len(set(names)) != len(names) or not all(names):
        raise ValueError("topics: expected three different ones: traces,logs,metrics")
    return dict(zip(Signal, names, strict=True))


class KafkaSettings(BaseModel):
    """The part of the settings that says where data is kept beyond this machine."""

    queue: str = Field(
        "sqlite",
        description="where acknowledged requests are kept: `sqlite` (on this machine's disk), or Kafka:"
        " `kafka://user:password@host:port,…?topics=TRACES,LOGS,METRICS&security.protocol=sasl_ssl`,"
        " percent-encoded; user and parameters may be left out ([all](kafka.md#the-url))",
        repr=False,
    )
    store_url: str | None = Field(
        None,
        description="`postgresql://user:password@host/database`, percent-encoded, shared by one collector or"
        " `serve` (with Kafka: its group), and any number of analyzers and `serve pages`; default: a file in"
        " the data directory",
        repr=False,
    )

    @field_validator("store_url")
    @classmethod
    def _is_url_of_postgresql(cls, value: str | None) -> str | None:
        if value and not value.startswith(_STORE_SCHEMES):
            raise ValueError("expected postgresql://…, or nothing for a file in the data directory")
        if (
            value and value.count("@") > 1
        ):  # the part of a password after @ would pass for a host, and be logged
            raise ValueError("expected user and password percent-encoded: %40 for @")
        return value or None

    @field_validator("queue")
    @classmethod
    def _is_queue(cls, value: str) -> str:
        if value.startswith(SCHEME):
            read_cluster(value)
        elif value != "sqlite":
            raise ValueError(_EXPECTED)
        return value

    @model_validator(mode="after")
    def _kafka_needs_a_shared_store(self) -> Self:
        if self.kafka and self.store_url is None:
            raise ValueError(
                "BLAMESPAN_QUEUE=kafka://… expects BLAMESPAN_STORE_URL=postgresql://…:"
                " all processors of the group share its verdicts"
            )
        return self

    @property
    def kafka(self) -> KafkaAccess | None:
        """The cluster; ``None`` if the queue is on this machine's disk."""
        return read_cluster(self.queue) if self.queue.startswith(SCHEME) else None
