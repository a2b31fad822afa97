"""Our own traffic is never traced by instrumentation in our own process.

Else each export would make a span, whose export would make a span.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import context

# The API has no public name for it; the SDK's own exporters and every
# instrumentation library use this one.
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY


@contextmanager
def untraced() -> Iterator[None]:
    """Switch local instrumentation off within the block."""
    token = context.attach(context.set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))
    try:
        yield
    finally:
        context.detach(token)
