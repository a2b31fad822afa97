"""Issues by state are read now and then, and what was read stands until the next time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from analyzer.issue_gauge import IssueGauge
from collector_processor.stores import StoreError


async def test_what_was_read_stands_while_the_store_refuses(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[Mapping[str, int] | StoreError] = [
        {"new": 1, "regressed": 0},
        StoreError("disk full"),
        {"new": 0, "regressed": 1},
    ]
    read_all, seen = asyncio.Event(), list[Mapping[str, int]]()

    async def read() -> Mapping[str, int]:
        seen.append(gauge.counts())
        if not answers:
            read_all.set()
            await asyncio.Event().wait()
        answer = answers.pop(0)
        if isinstance(answer, StoreError):
            raise answer
        return answer

    gauge = IssueGauge(read=read, every_s=0)
    task = asyncio.create_task(gauge.run())
    await read_all.wait()
    task.cancel()
    first, last = {"new": 1, "regressed": 0}, {"new": 0, "regressed": 1}
    assert seen == [{}, first, first, last]
    assert [record.message for record in caplog.records] == ["issues cannot be counted"]
