"""``python -m tools.mutants``: how many faults the tests notice, of faults put in at random.

``draw`` prints mutants as JSON lines: statements of the product drawn with a seed, each with one change (a
comparison, a constant, a branch or a return). ``run`` puts each into a copy of a checkout, runs the tests
that execute the statement, and prints whether one failed. Which tests execute a statement is read from the
data of ``pytest --cov --cov-context=test`` (package ``pytest-cov``, which the pinned sets do not have)::

    python -m tools.mutants draw --seed 34 --count 200 >mutants.jsonl
    python -m pytest -n auto -m 'not whole' --cov=semconv --cov=collector_processor --cov=analyzer \\
        --cov-context=test --cov-report= tests
    python -m tools.mutants run mutants.jsonl --tree . --coverage .coverage >noticed.jsonl
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Queue
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = ("semconv", "collector_processor", "analyzer")
COPIED: Final = (
    *PACKAGES,
    "tests",
    "tools",
    "benchmarks",
    "docs",
    "deploy",
    "examples",
    "requirements",
    "skills",
)
COPIES: Final = 2
"""Checkouts that are tested at once."""
MOST_TESTS: Final = 400
"""Tests run for one mutant at most, those that execute fewest other statements first."""
FIRST_TESTS: Final = 40
"""Of these, those that run first: most faults fail one, which spares collecting the others."""
_NOT_FOUND: Final = 4
"""Exit code of pytest for names of tests that it does not know."""
LONGEST_S: Final = 300.0
"""Seconds for one mutant; a fault that makes tests hang is noticed."""
_OPPOSITE: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One statement and what it becomes."""

    path: str
    line: int
    """1-based, in the checkout that the mutant was drawn from."""
    kind: str
    before: str
    """The statement's source (a compound statement's first line), which finds it in another checkout."""
    after: str


def main() -> int:
    """Draw or run mutants."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("draw")
    drawing.add_argument("--seed", type=int, required=True)
    drawing.add_argument("--count", type=int, default=200)
    running = commands.add_parser("run")
    running.add_argument("mutants", type=Path)
    running.add_argument("--tree", type=Path, default=ROOT)
    running.add_argument("--coverage", type=Path, required=True)
    asked = parser.parse_args()
    if asked.command == "draw":
        for mutant in draw(ROOT, asked.seed, asked.count):
            print(json.dumps(asdict(mutant)))
        return 0
    mutants = [Mutant(**json.loads(line)) for line in asked.mutants.read_text().splitlines()]
    noticed = 0
    for mutant, tests, outcome in run(mutants, asked.tree.resolve(), asked.coverage):
        noticed += outcome == "noticed"
        print(json.dumps({**asdict(mutant), "tests": tests, "outcome": outcome}), flush=True)
    print(f"{noticed} of {len(mutants)} noticed", file=sys.stderr)
    return 0


def draw(root: Path, seed: int, count: int) -> list[Mutant]:
    """Return mutants of different statements, in random order; the same for the same sources and seed."""
    every = [
        mutants
        for package in PACKAGES
        for path in sorted((root / package).rglob("*.py"))
        for mutants in _mutants_of(path.relative_to(root), path.read_text(encoding="utf-8"))
    ]
    chance = random.Random(seed)
    drawn = chance.sample(every, min(count, len(every)))
    kinds = [chance.choice(sorted({mutant.kind for mutant in mutants})) for mutants in drawn]
    return [
        chance.choice([mutant for mutant in mutants if mutant.kind == kind])
        for mutants, kind in zip(drawn, kinds, strict=True)
    ]


def run(mutants: Sequence[Mutant], tree: Path, coverage: Path) -> Iterator[tuple[Mutant, int, str]]:
    """Yield each mutant, the number of its tests, and ``noticed``, ``unnoticed`` or ``gone``."""
    executing = _tests_by_line(coverage)
    copies: Queue[Path] = Queue()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(COPIES) as threads:
        for number in range(COPIES):
            copies.put(_copy(tree, Path(folder) / str(number) / "main"))

        def one(mutant: Mutant) -> tuple[Mutant, int, str]:
            source = (tree / mutant.path).read_text(encoding="utf-8") if (tree / mutant.path).exists() else ""
            place = _place(source, mutant)
            if place is None:
                return mutant, 0, "gone"
            tests = executing(mutant.path, source.count("\n", 0, place) + 1)
            if not tests:
                return mutant, 0, "unnoticed"
            copy = copies.get()
            try:
                changed = source[:place] + mutant.after + source[place + len(mutant.before) :]
                (copy / mutant.path).write_text(changed, encoding="utf-8")
                is_noticed = any(_fails(copy, part) for part in (tests[:FIRST_TESTS], tests[FIRST_TESTS:]))
                return mutant, len(tests), "noticed" if is_noticed else "unnoticed"
            finally:
                (copy / mutant.path).write_text(source, encoding="utf-8")
                copies.put(copy)

        yield from threads.map(one, mutants)


def _mutants_of(path: Path, source: str) -> Iterator[list[Mutant]]:
    """Yield, for each statement that can be changed, its possible mutants."""
    lines = source.splitlines(keepends=True)
    for statement in ast.walk(ast.parse(source)):
        parts = _executed(statement)
        if not parts:
            continue
        assert isinstance(statement, ast.stmt)
        last = max(part.end_lineno or 0 for part in parts)
        text = "".join(lines[statement.lineno - 1 : last])
        found = [
            Mutant(path=str(path), line=statement.lineno, kind=kind, before=text, after=after)
            for kind, node, put in _changes(statement, parts)
            if (after := _replaced(text, statement.lineno, node, put)) != text
        ]
        if found:
            yield found


def _executed(statement: ast.AST) -> list[ast.expr]:
    """Return the expressions that a statement itself executes, without those of its block."""
    match statement:
        case ast.Expr(value=ast.Constant()):
            return []  # a docstring
        case ast.If(test=part) | ast.While(test=part) | ast.Assert(test=part):
            return [part]
        case ast.For(iter=part) | ast.AsyncFor(iter=part):
            return [part]
        case ast.Return(value=ast.expr() as part) | ast.AnnAssign(value=ast.expr() as part):
            return [part]
        case ast.Expr(value=part) | ast.Assign(value=part) | ast.AugAssign(value=part):
            return [part]
        case _:
            return []


def _changes(statement: ast.stmt, parts: Sequence[ast.expr]) -> Iterator[tuple[str, ast.expr, str]]:
    """Yield kinds of change, the expression that is replaced, and what replaces it."""
    if isinstance(statement, (ast.If, ast.While)):
        yield "branch", statement.test, f"not ({ast.unparse(statement.test)})"
    if isinstance(statement, ast.Return):
        yield "return", parts[0], "None"
    for node in (found for part in parts for found in _plain_nodes(part)):
        if isinstance(node, ast.Compare) and type(node.ops[0]) in _OPPOSITE:
            changed = ast.Compare(
                left=node.left,
                ops=[_OPPOSITE[type(node.ops[0])](), *node.ops[1:]],
                comparators=node.comparators,
            )
            yield "comparison", node, f"({ast.unparse(changed)})"
        if isinstance(node, ast.Constant):
            match node.value:
                case bool(value):
                    yield "constant", node, str(not value)
                case int(value) | float(value):
                    yield "constant", node, str(value + 1)
                case str(value) if value:
                    yield "constant", node, repr(value + "x")


def _plain_nodes(part: ast.expr) -> Iterator[ast.expr]:
    """Yield an expression's parts, without those of f-strings, which have no places of their own."""
    waiting: list[ast.AST] = [part]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.JoinedStr):
            continue
        if isinstance(node, ast.expr):
            yield node
        waiting += ast.iter_child_nodes(node)


def _replaced(text: str, first: int, node: ast.expr, put: str) -> str:
    """Return a statement's text with one expression replaced; columns are of UTF-8 bytes."""
    lines = text.encode().splitlines(keepends=True)
    assert node.end_lineno is not None
    starts = [sum(map(len, lines[:number])) for number in range(len(lines))]
    begin = starts[node.lineno - first] + node.col_offset
    end = starts[node.end_lineno - first] + (node.end_col_offset or 0)
    whole = b"".join(lines)
    return (whole[:begin] + put.encode() + whole[end:]).decode()


def _place(source: str, mutant: Mutant) -> int | None:
    """Return where the statement begins: of equal ones the nearest to its line; ``None`` if it is gone."""
    places, start = [], -1
    while (start := source.find(mutant.before, start + 1)) >= 0:
        if start == 0 or source[start - 1] == "\n":
            places.append(start)
    return min(places, key=lambda at: abs(source.count("\n", 0, at) + 1 - mutant.line), default=None)


def _tests_by_line(coverage: Path) -> Callable[[str, int], list[str]]:
    """Return a function from a file's line to the tests that execute it, the most particular ones first."""
    from coverage import CoverageData  # noqa: PLC0415 - only ``run`` needs it

    data = CoverageData(basename=str(coverage))
    data.read()
    lines = {file: data.contexts_by_lineno(file) for file in data.measured_files()}
    sizes = Counter(context for of in lines.values() for contexts in of.values() for context in contexts)

    def executing(path: str, line: int) -> list[str]:
        of: dict[int, list[str]] = next((of for file, of in lines.items() if file.endswith(f"/{path}")), {})
        contexts = set(filter(None, of.get(line, []))) or {
            # A statement of the module itself is executed before any test.
            context
            for contexts in of.values()
            for context in contexts
            if context
        }
        names = {context.partition("|")[0]: sizes[context] for context in contexts}
        return sorted(names, key=lambda name: names[name])[:MOST_TESTS]

    return executing


def _copy(tree: Path, to: Path) -> Path:
    for name in COPIED:
        shutil.copytree(tree / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (path for path in tree.iterdir() if path.is_file()):
        shutil.copy(file, to)
    if (shared := tree.parent / "shared").exists():
        (to.parent / "shared").symlink_to(shared)
    return to


def _fails(copy: Path, tests: Sequence[str]) -> bool:
    """Return whether one of the tests fails, without those that the change left without their parameters."""
    left = list(tests)
    while left:
        plain = ["-q", "-x", "-p", "no:cacheprovider", "--randomly-dont-reorganize"]
        command = [sys.executable, "-m", "pytest", *plain, *left]
        try:
            done = subprocess.run(
                command, cwd=copy, env=os.environ | {"PYTHONPATH": str(copy)}, capture_output=True, text=True,
                timeout=LONGEST_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return True
        if done.returncode in {0, 1, 2}:  # 2: a test module cannot be imported
            return done.returncode != 0
        told = re.findall(r"not found: (\S+)", done.stderr + done.stdout)  # without odd parameters
        gone = [name for name in left if str(copy / name).startswith(tuple(told))]
        if done.returncode != _NOT_FOUND or not gone:
            return True  # a module or a conftest cannot be imported: pytest does not even begin
        left = [name for name in left if name not in gone]
    return False


if __name__ == "__main__":
    sys.exit(main())
