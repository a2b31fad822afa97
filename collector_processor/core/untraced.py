"""Requests of our own that instrumentation in this process must not trace.

Each export would create a span, whose export would create another.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import context

# Not public, but the SDK's own exporters and all instrumentation libraries use it.
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY


@contextmanager
def untraced() -> Iterator[None]:
    """Suppress instrumentation of this process within the block."""
    token = context.attach(context.set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))
    try:
        yield
    finally:
        context.detach(token)
