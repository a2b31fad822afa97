"""Reader of the topics: a member of the consumer group, on a thread of its own.

Committing is left to ``Custody``, which knows what is still needed. While this process cannot take more, its
partitions are paused; the group's heartbeats go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from collector_processor.kafka.custody import Counts, Custody
from collector_processor.kafka.librdkafka import open_consumer
from collector_processor.kafka.progress import Mark
from collector_processor.kafka.record_form import Place, Record
from collector_processor.settings.kafka import KafkaAccess

logger = logging.getLogger(__name__)
T = TypeVar("T")

_AT_ONCE: Final = 500
_POLL_S: Final = 0.2
_COMMIT_EVERY_S: Final = 1.0
_ASK_S: Final = 10.0
_TRIES: Final = 6
"""Attempts to read a new assignment's commits before the process ends: about a minute."""
_STALE: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError._ASSIGNMENT_LOST,  # noqa: SLF001 - the client's own code for the same
    }
)
"""Codes by which Kafka refuses a commit because the partition has, or is about to get, another owner."""


class Commits:
    """This member's commits that Kafka has, and counts of those that it refused."""

    def __init__(self, counts: Counts) -> None:
        """Create it without any commit; refusals are added to ``counts``."""
        self._counts: Final = counts
        self._committed: Final[dict[Place, Mark]] = {}

    def news(self, marks: Mapping[Place, Mark]) -> dict[Place, Mark]:
        """Return the marks that Kafka does not have yet."""
        return {place: mark for place, mark in marks.items() if self._committed.get(place) != mark}

    def answered(self, news: Mapping[Place, Mark], answers: Iterable[TopicPartition]) -> list[KafkaError]:
        """Record the answer to a commit; return the errors of partitions, which are committed again."""
        errors = {Place(one.topic, one.partition): one.error for one in answers if one.error is not None}
        self._committed.update({place: mark for place, mark in news.items() if place not in errors})
        for error in errors.values():
            self.refused(error)
        return list(errors.values())

    def refused(self, error: KafkaError) -> None:
        """Count a refused commit; it is tried again with the next one."""
        if error.code() in _STALE:
            self._counts.stale_commits += 1
        else:
            self._counts.failed_commits += 1

    def forget(self, places: Iterable[Place]) -> None:
        """Forget partitions that this member no longer has."""
        for place in places:
            self._committed.pop(place, None)


class KafkaReader:
    """A group member that reads the topics until it is closed."""

    def __init__(
        self, access: KafkaAccess, custody: Custody, failed: Callable[[BaseException], None]
    ) -> None:
        """Create it inside the running loop.

        Args:
            access: where the cluster is.
            custody: takes what is read.
            failed: called on the event loop when the thread ends because of an error.
        """
        self._loop: Final = asyncio.get_running_loop()
        self._topics: Final = list(access.topics.values())
        self._custody: Final = custody
        self._failed: Final = failed
        self._commits: Final = Commits(custody.counts)
        self._stopping: Final = Event()
        self._said: set[str] = set()
        self._consumer: Final[Consumer] = open_consumer(access, self._note)
        self._thread: Final = Thread(target=self._main, name="kafka-reader", daemon=True)

    def start(self) -> None:
        """Join the group and read."""
        self._consumer.subscribe(
            self._topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )
        self._thread.start()

    async def close(self) -> None:
        """Leave the group: what is forwarded and analysed is committed, the rest is for the others."""
        self._stopping.set()
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join)

    def _main(self) -> None:
        try:
            self._read()
            self._consumer.close()  # revokes first
        except Exception as error:  # noqa: BLE001 - the thread's end: the service ends with it
            self._loop.call_soon_threadsafe(self._failed, error)

    def _read(self) -> None:
        due = monotonic() + _COMMIT_EVERY_S
        while not self._stopping.is_set():
            records = [
                record for one in self._consumer.consume(_AT_ONCE, _POLL_S) if (record := self._record(one))
            ]
            while records:
                records = self._hand_over(records)
            if monotonic() >= due:
                self._commit(self._on_loop(self._custody.marks()))
                due = monotonic() + _COMMIT_EVERY_S

    def _hand_over(self, records: Sequence[Record]) -> list[Record]:
        """Serve the group until records are taken; return those that came despite the pause."""
        taking = asyncio.run_coroutine_threadsafe(self._custody.take(records), self._loop)
        early: list[Record] = []
        paused: list[TopicPartition] = []
        while not _is_done(taking):
            if self._stopping.is_set():
                taking.cancel()
                return []
            if not paused:
                paused = self._consumer.assignment()
                self._consumer.pause(paused)
            message = self._consumer.poll(0)
            if message is not None and (record := self._record(message)):
                early.append(record)
        taking.result()
        if paused:
            here = {(one.topic, one.partition) for one in self._consumer.assignment()}
            self._consumer.resume([one for one in paused if (one.topic, one.partition) in here])
        return early

    def _record(self, message: Message) -> Record | None:
        error = message.error()
        if error is not None:
            self._note(error)
            return None
        return record_in(message)

    def _note(self, error: Any) -> None:
        """Log an error of the client, each kind once until a commit succeeds."""
        if error.name() not in self._said:
            self._said.add(error.name())
            logger.warning("Kafka reports an error", extra={"reason": str(error)})

    # Assignments; called by librdkafka inside ``consume`` and ``poll``.

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        marks = self._patiently(lambda: self._marks_before(consumer, partitions))
        consumer.assign([TopicPartition(*place, mark.offset) for place, mark in marks.items()])
        self._commit(self._on_loop(self._custody.assigned(marks)))
        logger.info("partitions assigned", extra={"partitions": len(partitions)})

    def _marks_before(self, consumer: Consumer, partitions: list[TopicPartition]) -> Mapping[Place, Mark]:
        found: dict[Place, Mark] = {}
        for one in consumer.committed(partitions, timeout=_ASK_S):
            first, behind = consumer.get_watermark_offsets(one, timeout=_ASK_S)
            place = Place(one.topic, one.partition)
            mark = Mark.read(one.offset, one.metadata) if one.offset >= 0 else Mark(offset=first)
            found[place] = self._within(place, mark, first, behind)
        return found

    def _within(self, place: Place, mark: Mark, first: int, behind: int) -> Mark:
        """Return the mark to begin at, moved to records that Kafka still has."""
        if first <= mark.offset <= behind:
            return mark
        if mark.offset > behind:
            logger.error(
                "topic was created anew: reading it from its beginning", extra={"topic": place.topic}
            )
            return Mark(offset=first, segment=mark.segment)
        lost = sum(not mark.is_forwarded(offset) for offset in range(mark.offset, first))
        self._custody.counts.expired += lost
        logger.error(
            "Kafka deleted records that were still needed: raise the topic's retention.ms",
            extra={
                "topic": place.topic,
                "partition": place.partition,
                "records": first - mark.offset,
                "not_forwarded": lost,
            },
        )
        return Mark(offset=first, upto=mark.upto, missing=mark.missing, segment=mark.segment)

    def _revoked(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        places = [Place(partition.topic, partition.partition) for partition in partitions]
        self._commit(self._on_loop(self._custody.revoked(places)))
        self._commits.forget(places)

    def _lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Give up partitions that another member already has."""
        places = [Place(partition.topic, partition.partition) for partition in partitions]
        self._on_loop(self._custody.revoked(places, wait_s=0))
        self._commits.forget(places)

    def _commit(self, marks: Mapping[Place, Mark]) -> None:
        news = self._commits.news(marks)
        if not news:
            return
        offsets = [
            TopicPartition(*place, mark.offset, metadata=mark.metadata) for place, mark in news.items()
        ]
        try:
            answers = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            self._commits.refused(error.args[0])
            self._note(error.args[0])
            return
        errors = self._commits.answered(news, answers or ())
        for one in errors:
            self._note(one)
        if not errors:
            self._said.clear()

    def _patiently(self, ask: Callable[[], T]) -> T:
        for left in reversed(range(_TRIES)):
            try:
                return ask()
            except KafkaException as error:
                self._note(error.args[0])
                if not left:
                    raise
                sleep(1.0)
        raise AssertionError("unreachable")

    def _on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def record_in(message: Message) -> Record:
    """Return the record of a message without an error; if its headers cannot be read, ``fault`` says why."""
    headers, fault = list[tuple[str, bytes | str | None]](), ""
    try:
        found = message.headers() or []
        headers = found if isinstance(found, list) else list(found.items())
    except (SystemError, UnicodeDecodeError):  # the former from confluent-kafka's C code
        fault = "expected names of headers in UTF-8"
    value = message.value()
    return Record(
        place=Place(str(message.topic()), int(message.partition() or 0)),
        offset=message.offset() or 0,
        headers=headers,
        value=value if isinstance(value, bytes) else b"",
        fault=fault,
    )


def _is_done(future: Future[None]) -> bool:
    """Wait a moment for a result; return whether it is there."""
    try:
        future.result(_POLL_S)
    except TimeoutError:
        return False
    return True
