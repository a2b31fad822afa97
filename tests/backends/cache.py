"""Cache folder of built backends, one folder for each set of pinned versions. Knows nothing of Go.

Knows nothing of Go. A folder appears whole or not at all: it is built beside
its final place and renamed, under a lock, so that two builds at once are safe
and what a killed build left behind is swept by the next one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

KEY_LENGTH: Final = 16


def cache_root() -> Path:
    """Return the folder that holds every backend; it may not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says to ignore a path that is not absolute.
    root = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
    return root / "blamespan" / "backends"


def key_of(parts: Iterable[str]) -> str:
    """Return the hash of everything that determines the bytes of a binary."""
    digest = hashlib.sha256(f"{sys.platform} {platform.machine()}".encode())
    for part in parts:
        digest.update(b"\0" + part.encode())
    return digest.hexdigest()[:KEY_LENGTH]


def say(message: str) -> None:
    """Print one line about the progress to stderr."""
    print(message, file=sys.stderr, flush=True)


def kept(folder: str, binary: str) -> Path | None:
    """Return the binary of a finished build, or ``None``."""
    path = cache_root() / folder / binary
    return path if os.access(path, os.X_OK) else None


def keep(name: str, folder: str, binary: str, make: Callable[[Path], None]) -> Path:
    """Return the binary, building it first if necessary.

    Args:
        name: what is built; one build of a name runs at a time.
        folder: the name of its final folder, with the hash of its pins.
        binary: the file that ``make`` leaves in the folder it is given.
        make: builds into an empty folder; what it raises is passed on.
    """
    if kept(folder, binary) is None:
        with _locked(name):
            if kept(folder, binary) is None:  # else another build made it while we waited
                _make_whole(name, folder, make)
    return cache_root() / folder / binary


def _make_whole(name: str, folder: str, make: Callable[[Path], None]) -> None:
    final = cache_root() / folder
    with _scratch(name) as scratch:
        make(scratch)
        _remove(final)  # no runnable binary in it, or we would not be here
        scratch.rename(final)


@contextmanager
def _locked(name: str) -> Iterator[None]:
    cache_root().mkdir(parents=True, exist_ok=True)
    with (cache_root() / f"{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{name}: another build is running, waiting for it …")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _scratch(name: str) -> Iterator[Path]:
    # One fixed path a name: we hold its lock, so what is there is a dead build's.
    path = cache_root() / f".building-{name}"
    _remove(path)
    path.mkdir()
    try:
        yield path
    finally:
        _remove(path)


def _remove(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)
