"""Whether the files of labels and issues can be opened, and by whom."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from analyzer.checkup.finding import Finding, Health
from analyzer.issues import store as issues
from analyzer.labels import store as labels

_STORES: Final = {"labels": labels.FILE, "issues": issues.FILE}

_OTHERS: Final = 0o007


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


def _problem(path: Path) -> str | None:
    """Return what is wrong inside; ``None`` for nothing."""
    opened = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5)
    try:
        (said,) = opened.execute("PRAGMA quick_check(1)").fetchone()
    finally:
        opened.close()
    return None if said == "ok" else str(said)
