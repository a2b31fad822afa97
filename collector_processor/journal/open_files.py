"""Least-recently-used cache of open files. Not pure; used from one thread at a time.

It bounds file descriptors: a heavy load fills a segment every few seconds, and each stays for up to a day
while it holds spans of a run that may be analysed again.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Final, Generic, TypeVar

MAX_OPEN: Final = 8
"""Files open at once; about four are in use at a time: new rows, backlog, analysis, eviction."""
K = TypeVar("K", bound=Hashable)


class OpenFiles(Generic[K]):
    """File descriptors by key."""

    def __init__(self, path: Callable[[K], Path], flags: int) -> None:
        """Create an empty cache.

        Args:
            path: returns the path of a key.
            flags: how files are opened.
        """
        self._path: Final = path
        self._flags: Final = flags | os.O_CLOEXEC
        self._files: Final[OrderedDict[K, int]] = OrderedDict()

    def get(self, key: K) -> int:
        """Return a descriptor, opening the file if needed.

        Raises:
            OSError: it cannot be opened.
        """
        file = self._files.pop(key, None)
        self._files[key] = os.open(self._path(key), self._flags, 0o600) if file is None else file
        while len(self._files) > MAX_OPEN:
            os.close(self._files.popitem(last=False)[1])
        return self._files[key]

    def forget(self, key: K) -> None:
        """Close a file, if it is open."""
        file = self._files.pop(key, None)
        if file is not None:
            os.close(file)

    def close(self) -> None:
        """Close all files."""
        while self._files:
            os.close(self._files.popitem()[1])
