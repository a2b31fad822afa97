"""Imports that pause before each module, so that pages are answered while a large library is imported.

litellm's 3,000 modules hold the interpreter for 3 s, during which every page waits for it at each of its many
changes of thread. Lowering the switch interval does not help: many imports are single calls into C.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

PAUSE_S: Final = 0.002
"""Seconds of a pause. litellm takes 8.6 s to import with it, 3.1 s without; 1 ms left pages above 500 ms."""


class _Pauses:
    """A finder that finds nothing, but pauses the thread that made it."""

    def __init__(self, sleep: Callable[[float], None]) -> None:
        self._thread: Final = threading.get_ident()
        self._sleep: Final = sleep

    def find_spec(self, _name: str, _path: object = None, _target: object = None) -> None:
        if threading.get_ident() == self._thread:
            self._sleep(PAUSE_S)


@contextmanager
def pausing_imports(sleep: Callable[[float], None] = time.sleep) -> Iterator[None]:
    """Pause before each module that this thread imports; imports of other threads do not pause."""
    pauses = _Pauses(sleep)
    sys.meta_path.insert(0, pauses)
    try:
        yield
    finally:
        sys.meta_path.remove(pauses)
