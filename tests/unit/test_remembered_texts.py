"""Caches that hold texts of runs are dropped when a run is deleted."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import pytest

import analyzer.lineage
from analyzer.lineage import memory

MODULES = [f"analyzer.lineage.{one.name}" for one in pkgutil.iter_modules(analyzer.lineage.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_every_bounded_cache_of_the_lineage_is_dropped(name: str) -> None:
    """Those without a bound hold tables, by language."""
    found = vars(import_module(name)).values()
    caches = [one for one in found if hasattr(one, "cache_clear") and one.__module__ == name]
    bounded = [one for one in caches if one.cache_parameters()["maxsize"] is not None]
    assert [one.__name__ for one in bounded if one not in memory._CACHES] == []
