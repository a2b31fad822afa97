"""Read-only checks of the data directory: file permissions, sound stores, parents that never arrive."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from analyzer.checkup.finding import Finding, Health
from analyzer.issues import store as issues
from analyzer.labels import store as labels
from analyzer.present import counted, plain
from collector_processor.absent_rows import AbsentRows
from collector_processor.runstore import RUNS
from collector_processor.stored import AbsentParent

_STORES: Final = {"labels": labels.FILE, "issues": issues.FILE}

_OTHERS: Final = 0o007
_SHOWN_CHARS: Final = 40
"""Characters shown of a span's, service's or scope's name; senders may choose names of any length."""


def check_privacy(data_dir: Path) -> Iterator[Finding]:
    """Warn where other users of this machine may look into the data directory."""
    if data_dir.is_dir() and data_dir.stat().st_mode & _OTHERS:
        detail = f"{data_dir} is open to every user of this machine; what runs say stands in it as it came"
        mend = f"chmod 700 {data_dir}"
        yield Finding(check="privacy", health=Health.WARNING, detail=detail, mend=mend)


def check_stores(data_dir: Path) -> Iterator[Finding]:
    """Read the stores that are there; nothing is written, and no older one brought up to date."""
    for name, file in _STORES.items():
        path = data_dir / file
        if not path.exists():
            yield Finding(check=name, health=Health.OK, detail="is made at the first start")
            continue
        try:
            problem = _problem(path)
        except sqlite3.Error as error:
            problem = str(error)
        if problem is None:
            yield Finding(check=name, health=Health.OK, detail=f"{path} is sound")
        else:
            mend = "stop blamespan and put the file of a backup in its place"
            yield Finding(check=name, health=Health.FAILED, detail=f"{path}: {problem}", mend=mend)


def check_parents(data_dir: Path) -> Iterator[Finding]:
    """Warn of kinds of spans whose parents never arrive, as recorded by the service; works while it runs."""
    path = data_dir / RUNS
    try:
        absent = _absent_parents(path) if path.exists() else ()
    except sqlite3.Error as error:
        mend = "run blamespan doctor again; if it fails again, stop blamespan and move the file away"
        yield Finding(check="parents", health=Health.FAILED, detail=f"{path}: {error}", mend=mend)
        return
    if absent:
        detail = (
            f"parents that never arrive: {counted(len(absent), 'kind')}, e.g. of {_example(absent[0])}:"
            " traces like these are judged without waiting for the parent"
        )
        mend = (
            "send the parent's spans here too: look for a filter, sampler or other exporter before blamespan"
        )
        yield Finding(check="parents", health=Health.WARNING, detail=detail, mend=mend)


def _absent_parents(path: Path) -> Sequence[AbsentParent]:
    """Return the kinds of spans, newest first; none if the store predates their table."""
    with closing(_open_to_read(path)) as opened:
        is_there = opened.execute("SELECT 1 FROM sqlite_master WHERE name = 'absent_parent'").fetchone()
        return AbsentRows(opened).all() if is_there else ()


def _example(absent: AbsentParent) -> str:
    span, service, scope = (plain(name, _SHOWN_CHARS) for name in (absent.name, absent.service, absent.scope))
    return f"span `{span}`" + f" of service `{service}`" * bool(service) + f" (scope `{scope}`)" * bool(scope)


def _problem(path: Path) -> str | None:
    """Return what is wrong inside; ``None`` for nothing."""
    with closing(_open_to_read(path)) as opened:
        (said,) = opened.execute("PRAGMA quick_check(1)").fetchone()
    return None if said == "ok" else str(said)


def _open_to_read(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5)
