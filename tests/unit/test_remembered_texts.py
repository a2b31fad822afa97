"""Caches that hold texts of runs are dropped when a run is deleted."""

from __future__ import annotations

import pkgutil
from contextlib import closing
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import analyzer.lineage
import analyzer.signals
import analyzer.signals.suspicion
import analyzer.texts
from analyzer.signals import memory
from analyzer.signals.suspicion import clues
from analyzer.texts.run_view import read
from analyzer.web import app
from collector_processor.core import records
from collector_processor.otlp import NO_TENANT
from collector_processor.store.database.connection import connected
from collector_processor.store.deletion import delete_run
from tests.runs import calling, run, step, tool

MODULES = [
    f"{package.__name__}.{module.name}"
    for package in (analyzer.lineage, analyzer.signals.suspicion)
    for module in pkgutil.iter_modules(package.__path__)
]
JUDGING = [
    one.name
    for package in (analyzer.lineage, analyzer.signals, analyzer.texts)
    for one in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
]


def bounded_caches(name: str) -> list[Any]:
    """Return the caches of a module that have a bound; those without one hold tables, by language."""
    caches = [one for one in vars(import_module(name)).values() if hasattr(one, "cache_clear")]
    own = [one for one in caches if one.__module__ == name]
    return [one for one in own if one.cache_parameters()["maxsize"] is not None]


@pytest.mark.parametrize("name", MODULES)
def test_every_bounded_cache_of_the_lineage_is_dropped(name: str) -> None:
    assert [one.__name__ for one in bounded_caches(name) if one not in memory._CACHES] == []


def test_nothing_of_a_run_is_left_in_signals_or_lineage() -> None:
    found = {
        f"{cache.__module__}.{cache.__name__}": cache for name in JUDGING for cache in bounded_caches(name)
    }
    memory.forget_texts()
    called = calling(
        "coder", ("git", '{"args": "push origin release/5.4"}'), ("bash", '{"command": "make test"}')
    )
    done = (
        tool("coder", "pushed", "git", input='{"args": "push origin release/5.4"}'),
        tool("coder", "2 passed on 12 May 2026", "bash", input='{"command": "make test"}'),
    )
    answer = "I pushed release/5.4 and all 2 tests pass."
    clues(read(run(called, *done, step("coder", answer), task="Push it to release/5.4.", output=answer)))
    filled = {name for name, cache in found.items() if cache.cache_info().currsize}
    assert {"analyzer.texts.commands._named", "analyzer.texts.commands._named_of_program"} <= filled
    memory.forget_texts()
    left = {name for name, cache in found.items() if cache.cache_info().currsize}
    assert left <= {"analyzer.texts.wordings.languages._script"}, "it holds single characters"


async def test_documents_of_verdicts_are_dropped_by_the_pages_and_by_what_deletes_a_run(
    tmp_path: Path,
) -> None:
    class Runs:
        async def clear(self) -> None:
            pass

    pages = SimpleNamespace(jobs=None, runs=Runs())
    context: Any = SimpleNamespace(pages=pages, whole={}, prepared={})
    assert records.fields_of('{"reason": "secret"}')
    await app._forget(context, NO_TENANT, "run-1")
    assert records._recent_fields.cache_info().currsize == 0
    assert records.fields_of('{"reason": "secret"}')
    with closing(connected(tmp_path / "store")) as db:
        delete_run(db, NO_TENANT, "run-1")
    assert records._recent_fields.cache_info().currsize == 0
