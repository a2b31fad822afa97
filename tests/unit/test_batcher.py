from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from collector_processor.core.fair import Batcher, Pace


class Counter:
    """Answers with its input, and records which inputs came in one batch; can be made to wait."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.may_answer = asyncio.Event()
        self.was_asked = asyncio.Event()
        self.running = 0
        self.most_running = 0

    async def __call__(self, items: Sequence[int]) -> list[str]:
        self.calls.append(list(items))
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        self.was_asked.set()
        await self.may_answer.wait()
        self.running -= 1
        if 13 in items:
            raise ValueError("thirteen")
        return [str(item) for item in items]


async def test_what_comes_meanwhile_goes_together_in_the_next_call() -> None:
    counter = Counter()
    ask = Batcher(counter, most=10)
    first = asyncio.create_task(ask(1))
    await counter.was_asked.wait()
    later = [asyncio.create_task(ask(number)) for number in (2, 3, 4)]
    await asyncio.sleep(0)
    counter.may_answer.set()
    assert await asyncio.gather(first, *later) == ["1", "2", "3", "4"]
    assert counter.calls == [[1], [2, 3, 4]]


async def test_a_call_has_a_bounded_number_of_items() -> None:
    counter = Counter()
    counter.may_answer.set()
    ask = Batcher(counter, most=2)
    assert await asyncio.gather(*map(ask, range(5))) == ["0", "1", "2", "3", "4"]
    assert counter.calls == [[0, 1], [2, 3], [4]]


async def test_calls_begin_apart_so_that_what_comes_in_between_goes_together() -> None:
    counter = Counter()
    counter.may_answer.set()
    ask = Batcher(counter, most=10, apart_s=0.2)
    began = asyncio.get_running_loop().time()
    assert await ask(1) == "1"
    assert await asyncio.gather(*map(ask, (2, 3))) == ["2", "3"]
    assert asyncio.get_running_loop().time() - began >= 0.2
    assert counter.calls == [[1], [2, 3]]


async def test_a_full_batch_ends_the_wait_of_the_next_call() -> None:
    counter = Counter()
    counter.may_answer.set()
    ask = Batcher(counter, most=2, apart_s=3600)
    assert await ask(1) == "1"
    second = asyncio.create_task(ask(2))
    await asyncio.sleep(0.05)
    assert not second.done()
    assert await asyncio.wait_for(ask(3), timeout=60) == "3"
    assert await second == "2"
    assert counter.calls == [[1], [2, 3]]


async def test_the_first_call_does_not_wait() -> None:
    counter = Counter()
    counter.may_answer.set()
    assert await asyncio.wait_for(Batcher(counter, most=10, apart_s=3600)(1), timeout=60) == "1"


async def test_calls_are_made_one_after_the_other() -> None:
    counter = Counter()
    ask = Batcher(counter, most=1)
    asked = [asyncio.create_task(ask(number)) for number in range(4)]
    await counter.was_asked.wait()
    counter.may_answer.set()
    assert await asyncio.gather(*asked) == ["0", "1", "2", "3"]
    assert counter.most_running == 1


async def test_one_bad_item_fails_alone() -> None:
    counter = Counter()
    counter.may_answer.set()
    ask = Batcher(counter, most=2)
    answers = await asyncio.gather(*map(ask, (12, 13, 14)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [str, ValueError, str]
    assert counter.calls == [[12, 13], [12], [13], [14]]


async def test_an_abandoned_item_is_left_out() -> None:
    counter = Counter()
    ask = Batcher(counter, most=1)
    first = asyncio.create_task(ask(1))
    await counter.was_asked.wait()
    second, third = asyncio.create_task(ask(2)), asyncio.create_task(ask(3))
    await asyncio.sleep(0)
    second.cancel()
    counter.may_answer.set()
    assert [await first, await third] == ["1", "3"]
    assert counter.calls == [[1], [3]]
    with pytest.raises(asyncio.CancelledError):
        await second


async def test_it_starts_again_after_a_pause() -> None:
    counter = Counter()
    counter.may_answer.set()
    ask = Batcher(counter, most=1)
    assert [await ask(number) for number in range(3)] == ["0", "1", "2"]


async def test_several_calls_are_made_at_once_where_that_is_allowed_and_share_what_waits() -> None:
    counter = Counter()
    ask = Batcher(counter, most=8, at_once=lambda: 2)
    asked = [asyncio.create_task(ask(number)) for number in range(6)]
    await counter.was_asked.wait()
    counter.may_answer.set()
    assert await asyncio.gather(*asked) == [str(number) for number in range(6)]
    assert counter.most_running == 2
    assert [len(call) for call in counter.calls] == [3, 2, 1]


async def test_what_waited_for_its_pace_is_not_early_when_it_starts() -> None:
    pace, early = Pace(60.0), list[bool]()
    pace.begin()
    pace.then(lambda: early.append(pace.early_s > 0))
    pace.hurry()
    assert early == [False]
