"""Checks of ``doctor``, without effects: this machine's store, files and privacy, and its neighbours.

Neighbours are our own listener, receivers of notices and scores, and Kafka with its topics, partitions,
keys, limits and lag. A check asks a neighbour for its health, or opens and closes a connection; it sends no
message. Only scheme, host and port of an address are shown: the rest of a web hook's URL is secret.
"""

from __future__ import annotations

import asyncio
import sqlite3
import ssl
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import aiohttp

from analyzer.inquiry.calibration import Worth
from analyzer.inquiry.present import counted, plain
from analyzer.issues.labels.label_store import LabelStore, OpinionStore
from analyzer.issues.labels.track_records import track_records, worths
from analyzer.issues.receivers import open_service
from analyzer.methods.pooling import trust_of
from collector_processor.core.analysis import Earned
from collector_processor.core.disk import MEND
from collector_processor.core.records import AbsentParent
from collector_processor.journal import JournalError, require_known_kind
from collector_processor.otlp import NO_TENANT, CollectorError, Delivered, Signal
from collector_processor.otlp.tls import reason_of
from collector_processor.settings import Settings, SettingsError
from collector_processor.settings.kafka import KafkaAccess
from collector_processor.settings.value_types import ScoreTarget, is_http
from collector_processor.sinks.client import SinkOutlet
from collector_processor.store.database.connection import open_database
from collector_processor.store.jobs import LEASE_S, NO_JOBS, JobRows, Replica, ReplicaRows, Waiting
from collector_processor.store.small_tables import AbsentRows
from collector_processor.store.verdicts import RunStore

_OTHERS: Final = 0o007
_SHOWN_CHARS: Final = 40
"""Maximum length shown of a span's, service's or scope's name; senders may choose any length."""
SOON_S: Final = 14 * 86_400.0
"""Time before expiry to warn: two weeks, half the margin of automatic renewal for 90-day certificates."""
_EXPIRED: Final = 10
"""X509_V_ERR_CERT_HAS_EXPIRED."""
TOLERATED_SKEW_S: Final = 5.0
"""Difference between a replica's clock and the database's that does no harm."""
LATE_S: Final = 60.0
"""Age of a waiting job that shows that there are too few analyzers: an analysis normally takes seconds."""
TIMEOUT_S: Final = 5.0
_PORTS: Final = {"http": 80, "https": 443}
_OK: Final = 200
_MOST_TEXT: Final = 1_000
_CHECK: Final = "Kafka"
_INSTALL: Final = "pip install '.[server,postgres,kafka]' in a checkout"


class Health(StrEnum):
    """Outcome of a check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Result of one check, with the remedy if one is needed."""

    check: str
    health: Health
    detail: str
    mend: str = ""


def ok(check: str, detail: str, mend: str = "") -> Finding:
    """Return that a check found nothing wrong."""
    return Finding(check=check, health=Health.OK, detail=detail, mend=mend)


def warning(check: str, detail: str, mend: str) -> Finding:
    """Return a finding that may become a problem, with its remedy."""
    return Finding(check=check, health=Health.WARNING, detail=detail, mend=mend)


def failed(check: str, detail: str, mend: str) -> Finding:
    """Return a finding about a problem, with its remedy."""
    return Finding(check=check, health=Health.FAILED, detail=detail, mend=mend)


def check_privacy(data_dir: Path) -> Iterator[Finding]:
    """Warn if other users of this machine may read the data directory."""
    if data_dir.is_dir() and data_dir.stat().st_mode & _OTHERS:
        detail = f"{data_dir} is readable by every user of this machine; it holds the runs' texts unencrypted"
        mend = f"chmod 700 {data_dir}"
        yield warning("privacy", detail, mend)


def check_journal(data_dir: Path) -> Iterator[Finding]:
    """Report a journal that this version refuses, before a start does."""
    try:
        require_known_kind(data_dir / "ingest")
    except JournalError as error:
        problem, _, mend = str(error).partition(": ")
        yield failed("journal", problem, mend)


def check_store(settings: Settings) -> Iterator[Finding]:
    """Read the existing store, even while a service uses it; nothing is written."""
    place = settings.store_place
    if isinstance(place, Path) and not place.exists():
        yield ok("store", "is made at the first start")
        return
    try:
        with closing(open_database(place)) as database, closing(database.connect()) as db:
            problem = db.damage()
            absent = AbsentRows(db).all()
            replicas, waiting = ReplicaRows(db).seen(LEASE_S), JobRows(db).waiting()
            stores = LabelStore(db), RunStore(db), OpinionStore(db)
            earned, evidence = track_records(*stores, NO_TENANT), worths(*stores, NO_TENANT)
    except CollectorError as error:
        yield failed("store", str(error), _mend(place))
        return
    except sqlite3.Error as error:
        problem, absent, replicas, waiting, earned, evidence = str(error), [], [], NO_JOBS, {}, {}
    shown = place if isinstance(place, Path) else "PostgreSQL at BLAMESPAN_STORE_URL"
    if problem is None:
        yield ok("store", f"{shown} is sound")
    else:
        yield failed("store", f"{shown}: {problem}", MEND)
    yield from _parents(absent)
    yield from check_earned(earned)
    yield from check_worths(evidence)
    if settings.store_url is not None:
        yield from check_replicas(replicas, waiting, version("blamespan"))


def check_earned(earned: Earned) -> Iterator[Finding]:
    """Say how far each model's opinion is trusted, from labels and proofs of runs without a tenant."""
    for model, record in sorted(earned.items()):
        trust = trust_of(record)
        detail = (
            f"{plain(model)}: named the right step in {record.right:g} of {record.labelled:g} labelled or"
            f" proved runs; its opinion weighs {trust.weight:.2f} of 1 beside the signals"
        )
        yield ok("trust in models", detail)


def check_worths(evidence: Mapping[str, Worth]) -> Iterator[Finding]:
    """Say how often verdicts without a model were right, by their mode, for runs without a tenant."""
    for mode, worth in sorted(evidence.items()):
        detail = (
            f"{plain(mode)}: right in {worth.right:g} of {worth.labelled:g} labelled or proved runs; a"
            f" confidence of 30% becomes {worth.corrected(0.3):.0%}"
        )
        yield ok("trust in evidence", detail)


def check_replicas(replicas: Sequence[Replica], waiting: Waiting, own_version: str) -> Iterator[Finding]:
    """Compare the versions and clocks of the processes that share a store, and look for jobs that wait."""
    kinds = Counter(replica.kind for replica in replicas)
    said = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "none announced itself"
    versions = sorted({own_version, *(replica.version for replica in replicas)})
    if len(versions) > 1:
        mend = "finish the upgrade: all processes of a store should run one version"
        yield warning("replicas", f"{said}; their versions differ: {', '.join(versions)}", mend)
    else:
        yield ok("replicas", f"{said}; all run {own_version}")
    worst = max(replicas, key=lambda replica: abs(replica.ahead_s), default=None)
    if worst is not None and abs(worst.ahead_s) > TOLERATED_SKEW_S:
        where = "ahead of" if worst.ahead_s > 0 else "behind"
        detail = f"the clock of {worst.kind} {worst.id} is {abs(worst.ahead_s):.0f} s {where} PostgreSQL's"
        yield warning("replicas' clocks", detail, "let all machines set their clocks by NTP")
    if waiting.count:
        jobs, age_s = counted(waiting.count, "job"), waiting.oldest_age_s
        detail = f"{jobs} wait for an analyzer, the oldest for {age_s:.0f} s"
        mend = "start more `blamespan serve analyzer` processes on this store"
        yield warning("jobs", detail, mend) if age_s > LATE_S else ok("jobs", detail)


def _mend(place: Path | str) -> str:
    if isinstance(place, Path):
        return "use the version that wrote it, or set BLAMESPAN_DATA_DIR to another folder"
    return "start the database, or correct BLAMESPAN_STORE_URL; meanwhile spans flow on and verdicts wait"


def _parents(absent: Sequence[AbsentParent]) -> Iterator[Finding]:
    """Warn of kinds of spans whose parents never arrive."""
    if absent:
        detail = (
            f"parents that never arrive: {counted(len(absent), 'kind')}, e.g. of {_example(absent[0])}:"
            " traces like these are judged without waiting for the parent"
        )
        mend = (
            "send the parent's spans here too: look for a filter, sampler or other exporter before blamespan"
        )
        yield warning("parents", detail, mend)


def _example(absent: AbsentParent) -> str:
    span, service, scope = (plain(name, _SHOWN_CHARS) for name in (absent.name, absent.service, absent.scope))
    return f"span `{span}`" + f" of service `{service}`" * bool(service) + f" (scope `{scope}`)" * bool(scope)


def check_certificate(check: str, certificate: Path, key: Path | None, now_s: float) -> Finding:
    """Check a PEM chain, leaf first, and report its expiry; without ``key`` the key is in the same file."""
    mend = "renew it; it is read again without a restart"
    try:
        ends_s = ends_at(certificate, key)
    except ssl.SSLCertVerificationError as error:
        problem = "has expired" if error.verify_code == _EXPIRED else error.verify_message
        return failed(check, f"{certificate} {problem}", mend)
    except (OSError, ValueError) as error:
        detail = f"{certificate}: {reason_of(error)}"
        return failed(check, detail, "correct the file, or its key")
    detail = f"{certificate} is valid until {datetime.fromtimestamp(ends_s, tz=UTC):%Y-%m-%d %H:%M} UTC"
    if ends_s - now_s < SOON_S:
        return warning(check, detail, mend)
    return ok(check, detail)


def ends_at(certificate: Path, key: Path | None) -> float:
    """Return a certificate's expiry, in seconds since 1970.

    Raises:
        SSLCertVerificationError: it has expired or is not yet valid, by this machine's clock.
        OSError: a file cannot be read or parsed.
    """
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key, password=_no_password)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # accept a chain without its self-signed root
    client.load_verify_locations(cafile=certificate)
    shown = _shaken(server, client).getpeercert() or {}
    return float(ssl.cert_time_to_seconds(str(shown["notAfter"])))


def _shaken(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """Do a TLS handshake within this process; return the client's side of the connection."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking, answering = client.wrap_bio(down, up), server.wrap_bio(up, down, server_side=True)
    for side in (asking, answering):  # after both hellos the client has the certificate
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    asking.do_handshake()
    return asking


def _no_password() -> str:
    raise ValueError("the key is encrypted with a password: expected a key without one")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    status: int
    text: str
    """The beginning of its body."""


async def check_listener(url: str, tls: ssl.SSLContext | None) -> Finding:
    """Check whether blamespan listens on our own address."""
    try:
        answer = await _get(f"{url}/readyz", tls)
        health = await _get(f"{url}/healthz", tls)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        mend = "look at its log; if it is another program, set another port"
        detail = f"{url} is taken and does not answer: {type(error).__name__}"
        return failed("service", detail, mend)
    if answer.status == _OK and health.text.startswith("degraded"):
        detail = "; ".join(health.text.split("\n")[1:]).strip("; ")
        return failed(
            "service",
            f"{url} answers, but {detail}",
            "its log says why: free disk space, repair the disk, or start the database",
        )
    if answer.status == _OK:
        return ok("service", f"{url} answers, ready")
    detail = f"{url} answers HTTP {answer.status}: it is starting, stopping, or not blamespan"
    return warning("service", detail, "try again, then look at its log")


async def check_notifiers(receivers: Mapping[str, str]) -> list[Finding]:
    """Check each receiver of notices (name to URL); nothing is sent.

    Ours must be reachable. Apprise connects only to send, so its URLs are only read.
    """
    return [
        await _check_notifier(name, url) if is_http(url) else _check_service(name, url)
        for name, url in receivers.items()
    ]


def _check_service(name: str, url: str) -> Finding:
    check = f"notifier {name}"
    try:
        open_service(name, url)
    except SettingsError as error:
        return failed(check, str(error), "then start the service again")
    return ok(check, "apprise accepts its URL; nothing was sent")


def shown(url: str) -> str:
    """Return the part of an address that is not secret."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname or ''}{port}"


async def check_scores(targets: Sequence[ScoreTarget]) -> list[Finding]:
    """Check whether each backend of scores answers to its credentials; nothing is written."""
    return [await _check_sink(target) for target in targets]


async def _check_sink(target: ScoreTarget) -> Finding:
    outlet = SinkOutlet(target)
    try:
        outcome = await outlet.probe()
    finally:
        await outlet.close()
    check = str(target.lane)
    if isinstance(outcome, Delivered):
        with_key = "with our credentials" if target.headers else "without credentials"
        return ok(check, f"{target.url} answers {with_key}; nothing was written")
    mend = f"correct BLAMESPAN_SCORES, {' or '.join(target.variables)}; scores wait meanwhile"
    return failed(check, f"{target.url}: {outcome.reason}", mend)


async def _check_notifier(name: str, url: str) -> Finding:
    mend = "correct BLAMESPAN_NOTIFY_URL, or make it reachable from here"
    try:
        await _connect(url)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        detail = f"{shown(url)} cannot be reached: {type(error).__name__}"
        return failed(f"notifier {name}", detail, mend)
    return ok(f"notifier {name}", f"{shown(url)} can be reached; nothing was sent")


async def _connect(url: str) -> None:
    """Connect, with TLS for ``https``, and disconnect."""
    parts = urlsplit(url)
    port = parts.port or _PORTS[parts.scheme]
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    async with asyncio.timeout(TIMEOUT_S):
        _, writer = await asyncio.open_connection(parts.hostname, port, ssl=tls)
        writer.close()
        await writer.wait_closed()


async def _get(url: str, tls: ssl.SSLContext | None) -> _Answer:
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with (
        aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session,
        session.get(url, allow_redirects=False, ssl=tls or True) as answer,
    ):
        return _Answer(
            status=answer.status,
            text=(await answer.content.read(_MOST_TEXT)).decode("utf-8", "replace"),
        )


if TYPE_CHECKING:
    from collector_processor.kafka.survey import TopicFacts


def check_kafka(settings: Settings) -> list[Finding]:
    """Return what is wrong with the cluster, or that nothing is; asks the brokers. Empty without Kafka."""
    access = settings.kafka
    if access is None:
        return []
    try:
        from collector_processor.kafka.survey import survey  # noqa: PLC0415 - an extra
    except ImportError:
        return [failed(_CHECK, "confluent-kafka is not installed", _INSTALL)]
    try:
        topics = survey(access)
    except CollectorError as error:
        mend = "correct BLAMESPAN_QUEUE: its brokers, user and password, or properties"
        return [failed(_CHECK, f"{access.brokers}: {error}", mend)]
    limits = settings.assembler_limits
    return list(judge(topics, access, longest_s=limits.max_age_s))


def judge(topics: Sequence[TopicFacts], access: KafkaAccess, *, longest_s: float) -> Iterator[Finding]:
    """Yield the findings about the topics of a cluster; pure.

    Args:
        topics: what the brokers say of them.
        access: what is configured.
        longest_s: how long a trace may stay open.
    """
    findings = [finding for topic in topics for finding in _judge_one(topic, access, longest_s)]
    yield from findings
    of = {topic.signal: topic.partitions for topic in topics}
    if of[Signal.TRACES] and of[Signal.LOGS] and of[Signal.TRACES] != of[Signal.LOGS]:
        yield warning(
            _CHECK,
            f"the topic of traces has {of[Signal.TRACES]} partitions, that of logs {of[Signal.LOGS]}: log"
            " records of a trace may go to another processor than its spans",
            "give both topics the same number of partitions",
        )
    elif not findings:
        behind = sum(topic.behind for topic in topics)
        partitions = ", ".join(f"{topic.name} {topic.partitions}" for topic in topics)
        detail = f"{access.brokers}; partitions: {partitions}; the group {access.group} is"
        yield ok(_CHECK, f"{detail} {counted(behind, 'record')} behind")


def _judge_one(topic: TopicFacts, access: KafkaAccess, longest_s: float) -> Iterator[Finding]:
    name = topic.name
    if not topic.partitions:
        mend = "create it, with as many partitions as there may ever be processors, or correct"
        yield failed(_CHECK, f"there is no topic {name}", f"{mend} topics in BLAMESPAN_QUEUE")
        return
    if topic.signal is not Signal.METRICS and topic.strayed:
        detail = f"{topic.strayed} of the newest {topic.sampled} records of {name} are in another partition"
        mend = (
            "let every producer hash keys by FNV-1a, as the Collector's kafka exporter does; after partitions"
            " were added this lasts until the older records have been read"
        )
        yield warning(_CHECK, f"{detail} than their key's hash says: one trace goes to two processors", mend)
    if topic.signal is Signal.TRACES and topic.keyless:
        detail = f"{topic.keyless} of the newest records of {name} have no key"
        mend = "set partition_traces_by_id: true on the Collector's kafka exporter"
        yield warning(_CHECK, f"{detail}: a trace's spans go to several processors", mend)
    if topic.retention_ms is not None and 0 <= topic.retention_ms < longest_s * 1000:
        detail = f"{name} keeps records for {topic.retention_ms / 1000:g} s, and a trace may stay open for"
        mend = "raise retention.ms, or lower max_age in blamespan.toml: a restart reads an open trace again"
        yield warning(_CHECK, f"{detail} {longest_s:g} s", mend)
    if topic.max_record_bytes is not None and topic.max_record_bytes < access.max_record_bytes:
        detail = (
            f"{name} takes records of up to {topic.max_record_bytes} bytes;"
            f" we may send {access.max_record_bytes}"
        )
        mend = "raise its max.message.bytes, or lower message.max.bytes in BLAMESPAN_QUEUE"
        yield failed(_CHECK, detail, mend)
