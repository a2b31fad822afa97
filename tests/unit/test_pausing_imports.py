"""Imports that pause: only those of the thread that asked, and only until it is done."""

from __future__ import annotations

import importlib
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from analyzer.executor.models.pausing_imports import PAUSE_S, pausing_imports


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return names of modules that nobody has imported."""
    names = [f"paused_module_{number}" for number in range(3)]
    for name in names:
        (tmp_path / f"{name}.py").write_text("")
        monkeypatch.setitem(sys.modules, name, None)  # so that it is forgotten after the test
        del sys.modules[name]
    monkeypatch.syspath_prepend(tmp_path)
    return names


def test_each_module_of_this_thread_pauses_and_those_of_others_do_not(modules: list[str]) -> None:
    slept: list[float] = []
    mine, another, later = modules
    with ThreadPoolExecutor(1) as pool, pausing_imports(slept.append, lambda: 0.0):
        pool.submit(importlib.import_module, another).result()
        assert slept == []
        importlib.import_module(mine)
        assert slept == [PAUSE_S]
    importlib.import_module(later)
    assert slept == [PAUSE_S]


def test_a_pause_is_as_long_as_the_import_before_it(modules: list[str]) -> None:
    slept: list[float] = []
    computed = iter([0.0, 0.0, 1.0, 1.25, 5.0, 5.0])  # at the start, then before and after each pause
    with pausing_imports(slept.append, lambda: next(computed)):
        importlib.import_module(modules[0])
        importlib.import_module(modules[1])
    assert slept == [PAUSE_S, 0.25]


def test_an_import_that_fails_leaves_no_pauses() -> None:
    before = list(sys.meta_path)
    with pytest.raises(ModuleNotFoundError), pausing_imports(lambda _: None):
        importlib.import_module("no_such_module_anywhere")
    assert sys.meta_path == before
