"""``python -m benchmarks.hostile.files mutate|speed``: damaged and large files of each format.

``mutate`` changes the example of each format at random (values of its JSON, bytes, its end, pieces of it and
of other examples) and reads the result as ``blamespan attribute`` does, up to the steps. Whatever a reader
raises but ``UnreadableInput`` with one line is a crash: it is printed with the input, and the exit code is 1.

``speed`` grows each example to files of ``--mb`` MB, by copies with ids of their own, and reads each in a
process of its own: MB a second of CPU time, peak memory by size of the file, and how much longer the
largest took than the smallest. ``--text`` lengthens the texts of the examples, about 100 characters each, to
that many: what a reader does for a message takes the same time whatever its length.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.file_text import split_text
from analyzer.recordings.formats import FORMATS
from analyzer.recordings.read_files import read_recording
from collector_processor.otlp import Signal
from collector_processor.rebuild.stages import rebuild
from tests.security.mutations import LONGEST, mutate, mutate_json

EXAMPLES: Final = Path(__file__).parents[2] / "examples" / "files"
_MB: Final = 1_000_000
_SHOWN: Final = 3
"""Slowest inputs named by ``mutate``."""
_SENTENCE: Final = re.compile(rb'(: ?")((?:[^"\\\n ]+ ){4,}[^"\\\n ]+)"')
"""A text of at least five words in JSON, without escapes."""
_HEX: Final = re.compile(r"[0-9a-f]{16,32}")


def main() -> int:
    """Run one of the two commands."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile.files", description=__doc__)
    parser.add_argument("command", choices=("mutate", "speed", "read"))
    parser.add_argument("files", nargs="*", help="names in examples/files; default: all")
    parser.add_argument("--mutations", type=int, default=20_000, help="inputs of each format")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--text", type=int, default=0, help="least characters of each text")
    parser.add_argument("--mb", type=float, nargs="+", default=[5, 50])
    asked = parser.parse_args()
    names = asked.files or [one.example for one in FORMATS]
    match asked.command:
        case "read":
            print(json.dumps(_measured(Path(names[0]))))
            return 0
        case "speed":
            return _speed(names, sorted(asked.mb), asked.text)
        case _:
            return _mutate(names, asked.mutations, asked.seed)


# --- mutate ---


def _mutate(names: Sequence[str], count: int, seed: int) -> int:
    crashes, slowest, refused = 0, list[tuple[float, str, int]](), 0
    for name in names:
        begun, found = time.perf_counter(), 0
        for number, data in enumerate(mutations(name, count, seed)):
            at = time.process_time()
            try:
                refused += not read(data)
            except Exception:  # noqa: BLE001 - a crash of any kind is what is searched for
                found += 1
                print(f"{name} number {number}: {base64.b64encode(data).decode()}\n{traceback.format_exc()}")
            slowest = sorted([*slowest, (time.process_time() - at, name, number)])[-_SHOWN:]
        crashes += found
        print(
            f"{name:32} {count:>9,} inputs  {found} crashes  {time.perf_counter() - begun:.0f} s", flush=True
        )
    print(f"{len(names) * count:,} inputs, {refused:,} refused in one line, {crashes} crashes")
    print(
        "slowest:",
        ", ".join(f"{took * 1000:.0f} ms ({name} number {at})" for took, name, at in slowest[::-1]),
    )
    return 1 if crashes else 0


def mutations(name: str, count: int, seed: int) -> Iterator[bytes]:
    """Yield damaged copies of an example, the same ones for the same seed."""
    chance, data = Random(f"{seed} {name}"), (EXAMPLES / name).read_bytes()
    text = split_text(data)
    records = json.dumps(list(text.records) if text else []).encode()
    others = [(EXAMPLES / one.example).read_bytes() for one in FORMATS]
    for _ in range(count):
        yield chance.choice(_CHANGES)(data, records, others, chance)[:LONGEST]


def read(data: bytes) -> bool:
    """Read a file up to its steps; false if it is refused in one line."""
    try:
        found = read_recording(data)
        rebuild(found.traces, found.bodies(Signal.LOGS))
    except UnreadableInput as error:
        if "\n" in str(error):
            raise AssertionError("a refusal of several lines") from error
        return False
    return True


_Change = Callable[[bytes, bytes, Sequence[bytes], Random], bytes]


def _values(_: bytes, records: bytes, __: Sequence[bytes], chance: Random) -> bytes:
    return mutate_json(records, chance)


def _lines(_: bytes, records: bytes, __: Sequence[bytes], chance: Random) -> bytes:
    changed = json.loads(mutate_json(records, chance))
    return "\n".join(map(json.dumps, changed)).encode("utf-8", "surrogatepass")


def _bytes(data: bytes, _: bytes, __: Sequence[bytes], chance: Random) -> bytes:
    return mutate(data, chance)


def _cut(data: bytes, _: bytes, __: Sequence[bytes], chance: Random) -> bytes:
    return data[: chance.randrange(len(data))]


def _pieces(data: bytes, _: bytes, others: Sequence[bytes], chance: Random) -> bytes:
    """Repeat, leave out, or put in a piece of this example or another."""
    start, end = sorted((chance.randrange(len(data)), chance.randrange(len(data))))
    other = chance.choice([data, *others])
    piece = other[chance.randrange(len(other)) :][: end - start]
    return data[:start] + chance.choice([b"", data[start:end] * 2, piece]) + data[end:]


_CHANGES: Final[tuple[_Change, ...]] = (_values, _values, _lines, _bytes, _cut, _pieces)


# --- speed ---


def _speed(names: Sequence[str], sizes: Sequence[float], text: int) -> int:
    print(f"| format | {' | '.join(f'{size:g} MB: MB/s, memory' for size in sizes)} | time |")
    print("|---|" + "---|" * (len(sizes) + 1))
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            told, took = [], []
            for size in sizes:
                path = Path(folder) / name
                path.write_bytes(grown(lengthened((EXAMPLES / name).read_bytes(), text), int(size * _MB)))
                command = [sys.executable, "-m", "benchmarks.hostile.files", "read", str(path)]
                ended = subprocess.run(command, capture_output=True, text=True, check=False)
                if ended.returncode:
                    told.append(ended.stderr.strip().splitlines()[-1][:80])
                    continue
                found = json.loads(ended.stdout)
                took.append(found["s"] / found["bytes"])
                told.append(
                    f"{found['bytes'] / _MB / found['s']:.1f}, {found['peak'] / found['bytes']:.1f} x"
                )
            ratio = f"{took[-1] / took[0] * sizes[-1] / sizes[0]:.1f} x" if len(took) > 1 else ""
            print(f"| `{name}` | {' | '.join(told)} | {ratio} |", flush=True)
    return 0


def _measured(path: Path) -> dict[str, float]:
    """Read a file; ``peak`` is what the process's memory grew by, in bytes, with the file's own."""
    before = _peak()
    data, begun = path.read_bytes(), time.process_time()
    read_recording(data)
    return {"s": time.process_time() - begun, "bytes": len(data), "peak": _peak() - before}


def _peak() -> int:
    """Return the most memory that this process had at once; ``ru_maxrss`` would begin with its parent's."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def lengthened(data: bytes, length: int) -> bytes:
    """Return an example whose sentences are repeated up to this many characters, in any file that JSON is."""
    return _SENTENCE.sub(
        lambda said: said[1] + (said[2] + b" ") * (length // len(said[2])) + said[2] + b'"', data
    )


def grown(data: bytes, size: int) -> bytes:
    """Return a file of the same format with at least ``size`` bytes.

    Its records are repeated, or the largest list in its only document that its reader reads, or that document
    if there is no such list; each copy has ids of its own, by which its items refer to one another.
    """
    text = split_text(data)
    if text is None or text.form == "a log":
        return data * (size // len(data) + 1)
    records = list(text.records)
    if len(records) > 1 or text.form == "JSON lines":
        copies = _copies(records, size)
        if text.form == "a JSON list":
            return json.dumps(copies).encode()
        return b"".join(json.dumps(one).encode() + b"\n" for one in copies)
    (document,) = records
    if not isinstance(document, dict):
        return json.dumps([_copies(records, size)]).encode()
    form = document if text.form == "a JSON document" else records
    small = read_recording(json.dumps(form).encode())
    for held in _lists_in(document):
        items = [*held]
        held[:] = [*items, *_copies(items, 1)]
        if read_recording(json.dumps(form).encode()) != small:
            held[:] = _copies(items, size)
            return json.dumps(form).encode()
        held[:] = items
    return json.dumps(_copies(records, size)).encode()


def _lists_in(document: dict[str, Any]) -> list[list[Any]]:
    """Return the lists of objects, those with the most text first, and so the outermost ones."""
    level: list[Any] = [document]
    found: list[list[Any]] = []
    while level:
        values = [value for one in level for value in (one.values() if isinstance(one, dict) else one)]
        found += [one for one in values if isinstance(one, list) and one and isinstance(one[0], dict)]
        level = [value for value in values if isinstance(value, dict | list)]
    return sorted(found, key=lambda one: len(json.dumps(one)), reverse=True)


def _copies(items: Sequence[Any], size: int) -> list[Any]:
    text = json.dumps(items)
    ids = sorted(_ids(items), key=len, reverse=True)
    parts = re.split("(" + "|".join(f'"{re.escape(one)}"' for one in ids) + ")", text) if ids else [text]
    made, total, number = list[Any](), 0, 0
    while total < size:
        number += 1
        copy = "".join(_renamed(part, number) if at % 2 else part for at, part in enumerate(parts))
        total += len(copy)
        made += [_renumbered(one, (number - 1) * len(items)) for one in json.loads(copy)]
    return made


def _renumbered(item: Any, by: int) -> Any:
    """Return an item with its number, and the one that it refers to, moved: equal ones are repeats."""
    if not isinstance(item, dict):
        return item
    return item | {key: item[key] + by for key in ("id", "cause") if type(item.get(key)) is int}


def _renamed(quoted: str, number: int) -> str:
    own = quoted[1:-1]
    return f'"{own[:-8]}{number:08x}"' if _HEX.fullmatch(own) else f'"{own}-{number}"'


def _ids(items: Sequence[Any]) -> set[str]:
    """Return the values of keys that hold ids."""
    found, stack = set[str](), list(items)
    while stack:
        one = stack.pop()
        if isinstance(one, dict):
            held = (
                value for key, value in one.items() if isinstance(value, str) and key.lower().endswith("id")
            )
            found |= {value for value in held if value.isascii() and value.isprintable() and '"' not in value}
        stack += one.values() if isinstance(one, dict) else one if isinstance(one, list) else []
    return found - {""}


if __name__ == "__main__":
    raise SystemExit(main())
