"""Configuration for all tests.

Shares one Jaeger for the session. No test fails for being slow: Hypothesis would by default fail an example
that takes over 200 ms, which happens on a busy machine.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.backends.fixtures import collector_factory, jaeger

__all__ = ["collector_factory", "jaeger"]

settings.register_profile(
    "unhurried", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("unhurried")
