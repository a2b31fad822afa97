"""Lends the real backends to the tests of this folder."""

from __future__ import annotations

from tests.backends.fixtures import collector_factory, jaeger

__all__ = ["collector_factory", "jaeger"]
