"""The version of the rules that judge runs: a digest of the code and the tables that decide.

Derived, so that no change of a rule can forget to raise it. A verdict that differs from an earlier one of the
same run only because the rules do opens no issue and sends no notice; a changed comment costs no more than
that. The files are read when the first verdict is signed, about 25 ms, and not when a command starts.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

DECIDING: Final = (
    "analyzer/signals",
    "analyzer/methods",
    "analyzer/inquiry",
    "analyzer/history",
    "analyzer/lineage",
    "collector_processor/core/patterns.py",
    "collector_processor/core/runs.py",
    "collector_processor/rebuild",
    "collector_processor/trajectory",
    "semconv/dialects",
)
"""Folders of the packages that read a run and judge it, and single files."""
_DECIDES: Final = (".py", ".toml", ".json")
_DIGEST_BYTES: Final = 6


@functools.cache
def rules_version() -> str:
    """Return the version of the installed rules; read once per process."""
    split = (folder.split("/") for folder in DECIDING)
    return version_of(files(package).joinpath(*inner) for package, *inner in split)


def version_of(folders: Iterable[Traversable]) -> str:
    """Return a digest of all code and tables in these folders and files; line ends do not count."""
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for folder in folders:
        for path, file in sorted(_files(folder), key=lambda found: found[0]):
            content = file.read_bytes().replace(b"\r\n", b"\n")
            digest.update(f"{path}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()


def _files(folder: Traversable) -> Iterator[tuple[str, Traversable]]:
    """Yield the files that decide, each with its path within the folder."""
    stack = [(folder.name, folder)]
    while stack:
        path, entry = stack.pop()
        if entry.is_dir():
            stack.extend((f"{path}/{child.name}", child) for child in entry.iterdir())
        elif path.endswith(_DECIDES):
            yield path, entry
