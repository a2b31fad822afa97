"""Compares the results of two versions of the code on all recordings.

    python -m tests.equality write FILE                                 # JSON lines: name, one hash a part
    python -m tests.equality compare BEFORE AFTER [--ignore prose]      # exits with 1, and a table, if unlike

Write a file with each version, on the same inputs. A file holds hashes only, no text of any input.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

from tests.equality.inputs import recorded_inputs
from tests.equality.parts import PARTS, hashes_of, open_line

Rows: TypeAlias = Mapping[str, Mapping[str, str]]  # the hash of each part, by the name of the input
_say = partial(print, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if nothing differs, 1 otherwise; exit with 2 if a file cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m tests.equality")
    commands = parser.add_subparsers(required=True, dest="command")
    commands.add_parser("write").add_argument("file", type=Path)
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--ignore", action="append", choices=PARTS, default=[])
    asked = parser.parse_args(arguments)
    if asked.command == "write":
        return write(asked.file)
    try:
        return compare(read(asked.before), read(asked.after), asked.ignore)
    except (OSError, ValueError, KeyError) as error:
        parser.error(f"cannot read what `write` wrote: {error!r}")


def write(file: Path) -> int:
    """Write the file at the end of the run; progress goes to stderr."""
    line = open_line()
    rows = [{"name": name} | hashes_of(runs, line) for name, runs in recorded_inputs(_say)]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    _say(f"{file}: {len(rows)} inputs")
    return 0


def read(file: Path) -> Rows:
    """Return the rows of a file written by ``write``, at least one."""
    rows = {row.pop("name"): row for row in map(json.loads, file.read_text().splitlines())}
    if not rows:
        raise ValueError(f"{file} is empty")
    return rows


def compare(before: Rows, after: Rows, ignored: Collection[str] = ()) -> int:
    """Print the differences; return 1 if there are any, else 0."""
    parts = [part for part in PARTS if part not in ignored]
    found = differences(before, after, parts)
    if not found:
        print(f"equal: {len(before)} inputs in {', '.join(parts)}")
        return 0
    for name, unlike in found.items():
        print(name.ljust(max(map(len, found))), unlike, sep="  ")
    print(f"{len(found)} of {len(before.keys() | after.keys())} inputs differ")
    return 1


def differences(before: Rows, after: Rows, parts: Sequence[str] = PARTS) -> dict[str, str]:
    """Return each input's differing parts, sorted by name, without the equal inputs."""
    found = dict.fromkeys(before.keys() - after.keys(), "only in BEFORE")
    found |= dict.fromkeys(after.keys() - before.keys(), "only in AFTER")
    for name in before.keys() & after.keys():
        unlike = [part for part in parts if before[name].get(part) != after[name].get(part)]
        found |= {name: ", ".join(unlike)} if unlike else {}
    return dict(sorted(found.items()))


if __name__ == "__main__":
    sys.exit(main())
