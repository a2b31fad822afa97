"""A real Apache Kafka (one broker, KRaft) on free ports of loopback, that can be killed and started again."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final, TypeVar

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.backends.supervise import HOST, Server, free_ports, listens, running, wait_until

TOPICS: Final = ("otlp_spans", "otlp_logs", "otlp_metrics")
"""The topics of the Collector's exporter, and ours."""
_CLUSTER: Final = "bGFtZXNwYW4tdGVzdHMtMQ"
_START_S: Final = 240.0
_NUMBERS: Final = count()
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Locks:
    """Certificate of a broker, and the user that it lets in."""

    keystore: Path
    """Its key (PKCS #8) and certificate, as PEM."""
    authority: Path
    """Authority of its clients' certificates, as PEM."""
    user: str
    password: str


@dataclass(slots=True, kw_only=True)
class KafkaBroker:
    """A broker; its log outlives ``kill``."""

    launcher: Path
    folder: Path
    port: int
    sasl_port: int = 0
    """With encryption, and a password by SCRAM; open only with ``Locks``."""
    mutual_port: int = 0
    """With mutual TLS; open only with ``Locks``."""
    group: str = ""
    """The group of its consumers; by default that of the settings."""
    server: Server | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def url(self) -> str:
        return f"kafka://{self.address}" + (f"?group.id={self.group}" if self.group else "")

    def administer(self, request: Callable[[AdminClient], Iterable[Future[T]]]) -> list[T]:
        """Results of an administrator's requests; their client must live until the last has come."""
        client = self._admin()
        return [answer.result(_START_S) for answer in request(client)]

    def start(self) -> None:
        command = [str(self.launcher), "kafka.Kafka", str(self.folder / "server.properties")]
        self.server = self._stack.enter_context(
            running("kafka", command, log=self.folder / "kafka.log", is_ready=lambda: listens(self.port))
        )
        wait_until(self._answers, what="Kafka to answer")

    def kill(self) -> None:
        """``kill -9``; ``start`` starts it again on the same log."""
        assert self.server is not None
        self.server.kill()
        self._stack.close()

    def create(self, *topics: str, partitions: int = 6, config: dict[str, str] | None = None) -> None:
        """Create topics, by default those of the three signals."""
        new = [NewTopic(name, partitions, 1, config=config or {}) for name in topics or TOPICS]
        self.administer(lambda admin: admin.create_topics(new).values())

    def renew(self) -> None:
        """Replace the topics of the three signals by empty ones, and the group by one without members."""
        known = sorted(set(self._admin().list_topics(timeout=_START_S).topics) & set(TOPICS))
        if known:
            self.administer(lambda admin: admin.delete_topics(known).values())
        self.create()
        self.group = f"group-{next(_NUMBERS)}"

    def _answers(self) -> bool:
        return bool(self._admin().list_topics(timeout=5).brokers)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.address})


@contextmanager
def start_kafka(launcher: Path, folder: Path, locks: Locks | None = None) -> Iterator[KafkaBroker]:
    """Run a broker with its log in ``folder``; topics must be created.

    With ``locks`` it also listens with encryption and passwords, and with mutual TLS.
    """
    port, controller, sasl, mutual = free_ports(4)
    (folder / "log").mkdir(parents=True)
    settings = _properties(port, controller, folder / "log")
    if locks is not None:
        settings |= _locked(locks)
        settings["listeners"] += f",SASL_SSL://{HOST}:{sasl},SSL://{HOST}:{mutual}"
        settings["advertised.listeners"] += f",SASL_SSL://{HOST}:{sasl},SSL://{HOST}:{mutual}"
    lines = "".join(f"{name}={value}\n" for name, value in settings.items())
    (folder / "server.properties").write_text(lines)
    format_ = ["kafka.tools.StorageTool", "format", "--standalone", "-t", _CLUSTER, "-c"]
    command = [str(launcher), *format_, str(folder / "server.properties")]
    if locks is not None:
        command += ["--add-scram", f"SCRAM-SHA-512=[name={locks.user},password={locks.password}]"]
    subprocess.run(command, check=True, capture_output=True, timeout=_START_S)
    broker = KafkaBroker(launcher=launcher, folder=folder, port=port, sasl_port=sasl, mutual_port=mutual)
    with broker._stack:
        broker.start()
        yield broker


def _locked(locks: Locks) -> dict[str, str]:
    return {
        "listener.security.protocol.map": (
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL"
        ),
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        "listener.name.ssl.ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(locks.keystore),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(locks.authority),
    }


def _properties(port: int, controller: int, log: Path) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": f"{HOST}:{controller}",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(log),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "auto.create.topics.enable": "false",
    }
