"""The simulated disk of the power-loss tests keeps flushed data, and may lose anything else."""

from __future__ import annotations

import random
import struct

import pytest

from tests.e2e.power.disk import Disk, Record, records

FOLDER = "/d"
FILE = "/d/a"


def line(op: str, offset: int = 0, path: str = FILE, data: bytes = b"") -> bytes:
    return struct.pack("<cQII", op.encode(), offset, len(path), len(data)) + path.encode() + data


def leftovers(log: bytes, held: dict[str, bytes] | None = None) -> list[dict[str, bytes]]:
    """Return the possible contents over many tries."""
    found = []
    for seed in range(200):
        disk = Disk(FOLDER, held or {})
        for record in records(log):
            disk.follow(record)
        found.append(disk.after(random.Random(seed)))
    return found


def flush(number: int, path: str = FILE) -> bytes:
    return line("f", number, path) + line("F", number, path)


def test_what_was_flushed_with_its_name_is_always_there() -> None:
    log = line("c") + line("w", 0, data=b"word") + flush(1) + flush(2, FOLDER)
    assert all(left == {FILE: b"word"} for left in leftovers(log))


def test_what_was_not_flushed_is_there_in_some_cases_only() -> None:
    held = {FILE: b""}
    left = [each[FILE] for each in leftovers(line("w", 0, data=b"word"), held)]
    assert {b"", b"word"} <= set(left)


def test_a_write_after_the_flush_began_is_not_covered_by_it() -> None:
    log = line("f", 1) + line("w", 0, data=b"word") + line("F", 1)
    assert b"" in {each[FILE] for each in leftovers(log, {FILE: b""})}


def test_a_flush_that_did_not_end_promises_nothing() -> None:
    log = line("w", 0, data=b"word") + line("f", 1)
    assert b"" in {each[FILE] for each in leftovers(log, {FILE: b""})}


def test_a_write_is_torn_at_sectors_only() -> None:
    whole = bytes([1]) * 1024
    sizes = {len(each[FILE]) for each in leftovers(line("w", 0, data=whole), {FILE: b""})}
    assert sizes == {0, 512, 1024}


def test_a_name_is_durable_only_by_its_folder() -> None:
    log = line("c") + line("w", 0, data=b"word") + flush(1)
    assert {tuple(each) for each in leftovers(log)} == {(), (FILE,)}


@pytest.mark.parametrize("op", ["u", "r"])
def test_a_removal_or_renaming_may_not_have_happened(op: str) -> None:
    log = line(op, data=b"/d/b" if op == "r" else b"")
    renamed = {"/d/b": b"word"} if op == "r" else {}
    found = leftovers(log, {FILE: b"word"})
    assert {FILE: b"word"} in found
    assert renamed in found


def test_names_change_in_order() -> None:
    log = line("u", path="/d/a") + line("u", path="/d/b")
    assert {"/d/a": b""} not in leftovers(log, {"/d/a": b"", "/d/b": b""})


def test_the_logs_cut_end_is_left_out() -> None:
    log = line("w", 0, data=b"word")
    assert list(records(log + log[:-1])) == list(records(log))
    assert isinstance(next(records(log)), Record)
