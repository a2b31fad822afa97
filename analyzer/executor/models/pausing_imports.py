"""Imports that pause before each module, so that pages are answered while a large library is imported.

Importing litellm's 3,000 modules holds the interpreter for 3 s, during which a page waits for the interpreter
at each of its many changes of thread. Lowering the switch interval does not help: many imports are single
calls into C. So each pause is as long as the import since the last one: the importing thread takes half of
the interpreter's time.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

PAUSE_S: Final = 0.002
"""Seconds of the shortest pause; with 1 ms, pages took over 500 ms. Importing litellm alone takes 3.1 s."""


class _Pauses:
    """A finder that finds nothing, but pauses the thread that made it."""

    def __init__(self, sleep: Callable[[float], None], clock: Callable[[], float]) -> None:
        self._thread: Final = threading.get_ident()
        self._sleep: Final = sleep
        self._clock: Final = clock
        self._resumed: float = clock()

    def find_spec(self, _name: str, _path: object = None, _target: object = None) -> None:
        if threading.get_ident() == self._thread:
            self._sleep(max(PAUSE_S, self._clock() - self._resumed))
            self._resumed = self._clock()


@contextmanager
def pausing_imports(
    sleep: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.thread_time
) -> Iterator[None]:
    """Pause before each module that this thread imports; imports of other threads do not pause.

    Args:
        sleep: sleeps for the given seconds.
        clock: returns the seconds that this thread has computed.
    """
    pauses = _Pauses(sleep, clock)
    sys.meta_path.insert(0, pauses)
    try:
        yield
    finally:
        sys.meta_path.remove(pauses)
