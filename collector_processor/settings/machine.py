"""CPU cores and memory available to this process, within the limits of its control groups. Not pure."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_CGROUPS: Final = Path("/sys/fs/cgroup")
_OWN: Final = Path("/proc/self/cgroup")

_MOST_RECEIVED_BYTES: Final = 256 << 20
"""A dozen of the largest requests; less on machines with less than 2 GiB of memory."""


def receiving_bytes_here() -> int:
    """Return the budget in bytes for requests received at once."""
    return min(_MOST_RECEIVED_BYTES, usable_memory() // 8)


def usable_cores(cgroups: Path = _CGROUPS, own: Path = _OWN) -> float:
    """Return the number of cores that may be used; a quota may be a fraction of one.

    Args:
        cgroups: where control groups are mounted.
        own: lists the control groups of this process.
    """
    cores = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    return min([cores, *(quota for folder in _folders(cgroups, own, "cpu") if (quota := _quota(folder)))])


def usable_memory(cgroups: Path = _CGROUPS, own: Path = _OWN) -> int:
    """Return the bytes of memory that may be used: the machine's, or less if a control group limits it."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = (
        _text(folder / name)
        for folder in _folders(cgroups, own, "memory")
        for name in ("memory.max", "memory.limit_in_bytes")  # control groups of versions 2 and 1
    )
    return min([machine, *(int(limit) for limit in limits if limit.isascii() and limit.isdigit())])


def _folders(cgroups: Path, own: Path, controller: str) -> list[Path]:
    """Return the folders of this process's control groups and of their parents."""
    found = [cgroups, cgroups / controller]
    for line in _text(own).splitlines():
        _, _, path = line.rpartition(":")
        group = Path(path.lstrip("/"))
        for base in (cgroups, cgroups / controller):
            found += [base / part for part in (group, *group.parents) if ".." not in part.parts]
    return list(dict.fromkeys(found))


def _quota(folder: Path) -> float | None:
    """Return a control group's quota in cores; ``None`` if there is none."""
    quota, _, period = _text(folder / "cpu.max").partition(" ")  # version 2
    if not quota:
        quota, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
    try:
        cores = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):  # "max", or no such file
        return None
    return cores if cores > 0 else None  # version 1 writes -1


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
