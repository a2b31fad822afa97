"""Commands of other processes: how they are given, and carried out where verdicts are committed. Not pure.

``blamespan experiment`` and the pages are other processes, so they cannot commit verdicts themselves: they
would race with analyses, and could not notify the service's tasks.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import zlib
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

from analyzer.analyses.codec import read_answer, read_run, write_answer, write_run
from analyzer.inquiry.errors import AnalyzerError, UnreadableInput
from analyzer.issues.correcting import Outcome, SecondOpinions, Wanted
from analyzer.issues.labels.commands import Command, CommandKind, Commands
from analyzer.issues.labels.kept_trace import kept_trace
from analyzer.issues.labels.label_store import LabelStore, Opinion, OpinionStore, of_request
from collector_processor.core.disk import StoreError
from collector_processor.core.records import EXPERIMENT
from collector_processor.core.scores import Lane
from collector_processor.otlp import Tenant
from collector_processor.sinks.deleting import delete_run_and_scores, delete_tenant_and_scores
from collector_processor.store.database.connection import StoreConnection, StoreThread
from collector_processor.store.database.driver import Flush
from semconv.dialects import USUAL, Reader
from semconv.model import Attribution, Trajectory

logger = logging.getLogger(__name__)

WATCH_EVERY_S: Final = 2.0
"""Seconds between reads of the table: commands come from other processes."""
ANSWER_S: Final = 30.0
"""Seconds that a giver waits for the answer to a command."""
_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.5


@dataclass(slots=True, kw_only=True)
class CommandTask:
    """Task that carries out commands while the service runs."""

    second: SecondOpinions
    db: StoreConnection
    """The connection on which verdicts are committed."""
    reader: Reader = USUAL
    """Reader of the spans of kept runs."""
    lanes: Mapping[Tenant, tuple[Lane, ...]] = field(default_factory=dict)
    """The sinks whose scores are deleted with a run, by tenant."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _waits: bool = field(default=False, init=False)

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            await self.follow()
            await asyncio.sleep(WATCH_EVERY_S)

    async def follow(self) -> None:
        """Carry out the waiting commands; if the store refuses, the next call retries."""
        commands, in_db = Commands(self.db), self.second.commits.in_db
        async with self._turn:
            try:
                if await in_db(self.db.leads):  # otherwise another process does this for all
                    for command in await in_db(commands.waiting):
                        await self._carry_out(command, commands)
            except StoreError as error:
                if not self._waits:
                    logger.warning("commands wait for the store", extra={"reason": str(error)})
                self._waits = True
            else:
                self._waits = False

    async def _carry_out(self, command: Command, commands: Commands) -> None:
        in_db = self.second.commits.in_db
        match command.kind:
            case CommandKind.EXPERIMENT:
                await self._prove(command)
                await self._pin(command)
                await in_db(commands.done, command)
            case CommandKind.OPINION:
                await in_db(commands.answer, command, (await self._opine(command)).value)
            case CommandKind.DELETE:
                await self.second.commits.in_turn(self._delete, command, commands)

    async def _prove(self, command: Command) -> None:
        wanted = Wanted(
            tenant=command.tenant,
            run_id=command.run_id,
            method=EXPERIMENT,
            model="",
            digest=f"experiment {command.id} of {command.given_ns}",
        )
        if await self.second.known(wanted) is not None:  # already committed before the process died
            return
        extra: dict[str, object] = {"run_id": command.run_id}
        try:
            kept = await self.second.commits.in_db(
                kept_trace, self.db, command.run_id, command.tenant, self.reader
            )
            trajectory = (await asyncio.to_thread(kept.run)).trajectory
            attribution = read_answer(command.document.encode(), trajectory)
        except AnalyzerError as error:
            logger.warning("result of an experiment is dropped", extra={**extra, "reason": str(error)})
            return
        outcome = await self.second.take(wanted, trajectory, attribution)
        logger.info("experiment decided", extra={**extra, "outcome": outcome.value})

    async def _pin(self, command: Command) -> None:
        """Keep the run for ``train``, without delaying the verdict."""
        try:
            await self.second.commits.in_db(LabelStore(self.db).pin, command.tenant, command.run_id)
        except StoreError as error:
            extra = {"run_id": command.run_id, "reason": str(error)}
            logger.warning("run of an experiment is not kept for training", extra=extra)

    async def _opine(self, command: Command) -> Outcome:
        try:
            wanted, trajectory, attribution = await asyncio.to_thread(_read_opinion, command.document)
        except (UnreadableInput, ValueError, TypeError, KeyError, zlib.error) as error:
            extra = {"run_id": command.run_id, "reason": str(error)}
            logger.warning("a second opinion cannot be read", extra=extra)
            return Outcome.NO_ANSWER
        if await self.second.known(wanted) is not None:  # already committed before the process died
            return Outcome.AGREES
        return await self.second.take(wanted, trajectory, attribution)

    def _delete(self, command: Command, commands: Commands) -> None:
        with self.db.transaction():
            tenant, now_ns = command.tenant, self.second.now_ns()
            if command.run_id:
                count = int(delete_run_and_scores(self.db, tenant, command.run_id, self.lanes, now_ns))
            else:
                count = delete_tenant_and_scores(self.db, tenant, self.lanes, now_ns)
            commands.answer(command, str(count))


def _read_opinion(document: str) -> tuple[Wanted, Trajectory, Attribution]:
    fields = json.loads(document)
    trajectory = read_run(zlib.decompress(b64decode(fields["run"])))
    return Wanted(**fields["wanted"]), trajectory, read_answer(fields["answer"].encode(), trajectory)


async def nothing() -> None:
    """Do nothing: the process that carries out commands looks for them by itself."""


class UnansweredError(StoreError):
    """The process that commits verdicts has not answered in time; it does what was asked when it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandGiver:
    """Gives commands from another process, on its own connection, and waits for the answers."""

    db: StoreConnection
    thread: StoreThread
    """Makes the calls on the connection."""
    poke: Callable[[], Awaitable[None]]
    """Has waiting commands carried out now; returns when that is done, or cannot be."""
    now_ns: Callable[[], int] = time.time_ns
    answer_s: float = ANSWER_S

    async def delete_run(self, tenant: Tenant, run_id: str) -> bool:
        """Delete a run; return whether there was one.

        Raises:
            StoreError: the store refuses, or nothing answers.
        """
        return await self._deleted(tenant, run_id) > 0

    async def delete_tenant(self, tenant: Tenant) -> int:
        """Delete all runs of a tenant; return their number.

        Raises:
            StoreError: the store refuses, or nothing answers.
        """
        return await self._deleted(tenant, "")

    async def _deleted(self, tenant: Tenant, run_id: str) -> int:
        """Delete one run, or all of the tenant's; return their number."""
        for _ in range(2):  # another deletion takes the commands of its runs along
            count = await self._ask(CommandKind.DELETE, tenant, run_id)
            if count is not None:
                return int(count)
        raise UnansweredError("the answer of blamespan serve is lost: ask again")

    async def take(self, asked: Wanted, trajectory: Trajectory, attribution: Attribution) -> Outcome:
        """Have a second opinion stored, and committed as a new version of the verdict if it differs.

        Raises:
            StoreError: the store refuses, or nothing answers.
        """

        def written() -> str:
            # Compressed: the fewer pages a command takes, the sooner the next commit.
            run = b64encode(zlib.compress(write_run(trajectory), 1)).decode()
            answer = write_answer(attribution).decode()
            return json.dumps({"wanted": asdict(asked), "run": run, "answer": answer})

        document = await asyncio.to_thread(written)
        outcome = await self._ask(CommandKind.OPINION, asked.tenant, asked.run_id, document)
        return Outcome.NOT_CORRECTABLE if outcome is None else Outcome(outcome)

    async def of(self, tenant: Tenant, run_id: str) -> Sequence[Opinion]:
        """Return the opinions on a run, newest first."""
        return await self.thread.run(OpinionStore(self.db).of, tenant, run_id)

    async def known(self, asked: Wanted) -> Opinion | None:
        """Return the stored opinion on exactly this request; ``None`` if there is none."""
        return of_request(await self.of(asked.tenant, asked.run_id), asked.method, asked.model, asked.digest)

    async def _ask(self, kind: CommandKind, tenant: Tenant, run_id: str, document: str = "{}") -> str | None:
        """Give a command and return the answer; ``None`` if it was deleted along with its run meanwhile."""
        commands, run = Commands(self.db), self.thread.run
        id_ = await run(commands.add, kind, tenant, run_id, self.now_ns(), document, flush=Flush.LATER)
        began_s, pause_s = time.monotonic(), _FIRST_PAUSE_S
        await self.poke()
        while (answer := await run(commands.taken, id_)) is None:
            if time.monotonic() > began_s + self.answer_s:
                raise UnansweredError(
                    f"blamespan serve has not answered within {self.answer_s:g} s: it does this when it runs"
                )
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)
        return answer.outcome
