"""Lends the real backends to every folder of tests: one Jaeger a session, whoever asks first."""

from __future__ import annotations

from tests.backends.fixtures import collector_factory, jaeger

__all__ = ["collector_factory", "jaeger"]
