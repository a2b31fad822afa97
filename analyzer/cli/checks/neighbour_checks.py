"""Checks of neighbours: our own listener, receivers of notices and scores, Kafka.

A check asks a neighbour for its health, or opens and closes a connection; it sends no message. Only
scheme, host and port of an address are shown: the rest of a web hook's URL is secret.

Kafka's topics, partitions, keys, limits and lag are checked too.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import aiohttp

from analyzer.cli.checks.local_checks import Finding, failed, ok, warning
from analyzer.inquiry.present import counted
from analyzer.issues.receivers import open_service
from collector_processor.otlp import CollectorError, Delivered, Signal
from collector_processor.settings import Settings, SettingsError
from collector_processor.settings.kafka import KafkaAccess
from collector_processor.settings.scores import ScoreTarget
from collector_processor.settings.value_types import is_http
from collector_processor.sinks.client import SinkOutlet

TIMEOUT_S: Final = 5.0
_PORTS: Final = {"http": 80, "https": 443}
_OK: Final = 200
_MOST_TEXT: Final = 1_000


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

_CHECK: Final = "Kafka"
_INSTALL: Final = "pip install '.[server,postgres,kafka]' in a checkout"


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
    found = [finding for topic in topics for finding in _judge_one(topic, access, longest_s)]
    yield from found
    of = {topic.signal: topic.partitions for topic in topics}
    if of[Signal.TRACES] and of[Signal.LOGS] and of[Signal.TRACES] != of[Signal.LOGS]:
        yield warning(
            _CHECK,
            f"the topic of traces has {of[Signal.TRACES]} partitions, that of logs {of[Signal.LOGS]}: log"
            " records of a trace may go to another processor than its spans",
            "give both topics the same number of partitions",
        )
    elif not found:
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
