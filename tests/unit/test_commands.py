"""Commands of the pages: what another process asks for is done once, where verdicts are committed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import closing

import pytest

from analyzer.issues.correcting import Outcome
from analyzer.issues.labels.commands import MOST, MOST_OF_TENANT, CommandKind, Commands
from analyzer.service.commands import CommandGiver, CommandTask, UnansweredError, nothing
from collector_processor.core.disk import RUNS, StoreError
from collector_processor.otlp import NO_TENANT, Tenant
from collector_processor.store.database.connection import StoreThread, open_database
from tests.factories import TRACE
from tests.issues import START
from tests.unit.test_second_opinions import RUN, WANTED, Room, blame, room

__all__ = ["room"]

Give = Callable[[Callable[[CommandGiver], Awaitable[object]]], Awaitable[object]]


@pytest.fixture
async def give(room: Room) -> Give:
    """Give a command on a connection of its own to a service that carries it out."""
    room.judge(blame(0, "signals"))
    task = CommandTask(second=room.second, db=room.bench.db)

    async def giving(call: Callable[[CommandGiver], Awaitable[object]]) -> object:
        database, thread = open_database(room.bench.folder / RUNS), StoreThread()
        with closing(database), closing(database.connect()) as db, closing(thread):
            return await call(CommandGiver(db=db, thread=thread, poke=task.follow, now_ns=lambda: START))

    return giving


async def test_a_second_opinion_is_committed_and_known_afterwards(room: Room, give: Give) -> None:
    assert await give(lambda giver: giver.known(WANTED)) is None
    outcome = await give(lambda giver: giver.take(WANTED, RUN.trajectory, blame(1)))
    assert (outcome, room.verdict().version, room.verdict().step) == (Outcome.NEW_VERSION, 2, 1)
    assert await give(lambda giver: giver.known(WANTED)) is not None
    assert await give(lambda giver: giver.take(WANTED, RUN.trajectory, blame(1))) is Outcome.AGREES
    assert room.verdict().version == 2
    assert Commands(room.bench.db).waiting() == []


async def test_a_run_is_deleted_once(room: Room, give: Give) -> None:
    assert await give(lambda giver: giver.delete_run(NO_TENANT, TRACE)) is True
    assert room.second.store.current(NO_TENANT, TRACE) is None
    assert await give(lambda giver: giver.delete_run(NO_TENANT, TRACE)) is False


async def test_all_runs_of_one_tenant_are_deleted(room: Room, give: Give) -> None:
    assert await give(lambda giver: giver.delete_tenant(Tenant("other"))) == 0
    assert await give(lambda giver: giver.delete_tenant(NO_TENANT)) == 1
    assert room.second.store.current(NO_TENANT, TRACE) is None
    assert room.bench.db.execute("SELECT count(*) FROM command").fetchone() == (0,)


async def test_an_opinion_on_a_run_that_is_deleted_meanwhile_changes_nothing(room: Room, give: Give) -> None:
    async def both(giver: CommandGiver) -> object:
        commands = Commands(room.bench.db)
        commands.add(CommandKind.DELETE, NO_TENANT, "", 0)
        return await giver.take(WANTED, RUN.trajectory, blame(1))

    assert await give(both) is Outcome.NOT_CORRECTABLE
    assert room.second.store.current(NO_TENANT, TRACE) is None


@pytest.mark.usefixtures("give")
async def test_a_command_that_cannot_be_read_is_answered(room: Room) -> None:
    Commands(room.bench.db).add(CommandKind.OPINION, NO_TENANT, TRACE, START, '{"run": "no run"}')
    await CommandTask(second=room.second, db=room.bench.db).follow()
    assert Commands(room.bench.db).waiting() == []
    assert room.verdict().version == 1


async def test_without_a_running_service_the_caller_is_told_that_the_command_waits(room: Room) -> None:
    thread = StoreThread()
    giver = CommandGiver(db=room.bench.db, thread=thread, answer_s=0.0, poke=nothing)
    with pytest.raises(UnansweredError, match="when it runs"):
        await giver.delete_run(NO_TENANT, TRACE)
    assert [one.kind for one in Commands(room.bench.db).waiting()] == [CommandKind.DELETE]
    thread.close()


async def test_commands_wait_for_a_store_that_refuses(
    room: Room, give: Give, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StoreError("disk full")

    with monkeypatch.context() as broken:
        broken.setattr(Commands, "answer", refuse)
        Commands(room.bench.db).add(CommandKind.DELETE, NO_TENANT, TRACE, START)
        await CommandTask(second=room.second, db=room.bench.db).follow()
    assert room.verdict().version == 1, "nothing was deleted"
    await CommandTask(second=room.second, db=room.bench.db).follow()
    assert room.second.store.current(NO_TENANT, TRACE) is None
    assert await give(lambda giver: giver.delete_run(NO_TENANT, TRACE)) is False


def test_a_command_that_waits_is_never_dropped_and_a_tenant_fills_only_its_own_places(room: Room) -> None:
    commands = Commands(room.bench.db)
    with room.bench.db.transaction():
        commands.add(CommandKind.DELETE, Tenant("b"), "kept", 0)
        for number in range(MOST_OF_TENANT):
            commands.add(CommandKind.DELETE, Tenant("a"), str(number), number)
    with pytest.raises(StoreError, match="too many deletions"):
        commands.add(CommandKind.DELETE, Tenant("a"), "more", START)
    commands.add(CommandKind.DELETE, Tenant("b"), "another", START)
    assert [one.run_id for one in commands.waiting() if one.tenant == "b"] == ["kept", "another"]


def test_the_oldest_unread_answers_are_dropped(room: Room) -> None:
    commands = Commands(room.bench.db)
    with room.bench.db.transaction():
        for number in range(MOST + 3):
            commands.add(CommandKind.DELETE, NO_TENANT, "", number)
            (command,) = commands.waiting()
            commands.answer(command, "0")
    commands.add(CommandKind.DELETE, NO_TENANT, "", START)
    assert room.bench.db.execute("SELECT count(*), min(given_ns) FROM command").fetchone() == (MOST + 1, 3)


async def test_a_lost_answer_does_not_mean_deleted(room: Room) -> None:
    thread = StoreThread()

    async def lose() -> None:
        room.bench.db.execute("DELETE FROM command")

    giver = CommandGiver(db=room.bench.db, thread=thread, poke=lose)
    with pytest.raises(UnansweredError, match="lost"):
        await giver.delete_run(NO_TENANT, TRACE)
    thread.close()
