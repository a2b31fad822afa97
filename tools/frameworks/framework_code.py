"""Generator of the instrumenting program of a framework's page, from the run script used by the tests.

The scripts cannot be imported here: their frameworks are installed elsewhere. So they are parsed. Each ends
with the test's story; the page has ``answer()`` of the reader's own module ``my_agents`` instead.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

KIT: Final = Path(__file__).parents[2] / "tests" / "frameworks" / "kit"
_STORY: Final = "story"
_DEFINITIONS: Final = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_BLOCKS: Final = (ast.With, ast.Try)
YOURS: Final = "print(answer())"
"""Line that replaces the story."""


_END_OF_IMPORTS: Final = re.compile(r"^( +(?:from|import) .*)\n(?! *(?:from|import) )", re.MULTILINE)
"""A function's last import, which the formatter separates from the code."""


def telemetry() -> str:
    """Return ``telemetry.py``, which the programs import: the exporter's set-up, without our docstrings."""
    tree = ast.parse((KIT / "telemetry.py").read_text(encoding="utf-8"))
    del tree.body[0]
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            del node.body[0]
    imports = [node for node in tree.body if _is_import(node)]
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    lines = [ast.unparse(node) for node in imports] + [f"\n\n{ast.unparse(node)}" for node in functions]
    return _END_OF_IMPORTS.sub(r"\1\n\n", "\n".join(lines)) + "\n"


def instrumenting_program(script: Path) -> str:
    """Return a script with the reader's ``answer()`` instead of its story, and the remaining imports."""
    source = script.read_text(encoding="utf-8")
    tree = ast.parse(source)
    played = frozenset(_names_of_the_story(tree))
    lines = source.splitlines()
    body = [node for node in tree.body if not isinstance(node, _DEFINITIONS) and not _is_docstring(node)]
    if any(isinstance(node, _BLOCKS) for node in body):  # the block plays the story; the rest prepares it
        body = [node for node in body if isinstance(node, _BLOCKS) or not _names(node) & played]
    known = {name for node in tree.body if _is_import(node) for name in _bound(node)}
    doing = _without_leftovers("\n".join(_without_story(body, played, lines)), known)
    used = _names(ast.parse(doing))
    imports = [node for node in tree.body if _is_import(node) and _bound(node) & used]
    own = sorted({"answer"} | (used & _names_of_the_kit(tree)))
    kept = [_lines(source, [node]) for node in imports if not _is_of_the_kit(node)]
    return "\n".join([*kept, f"from my_agents import {', '.join(own)}  # your program", "", doing, ""])


def function_of_kit(module: str, name: str) -> str:
    """Return one function of the scripts' kit, preceded by the imports of its module.

    Raises: LookupError: there is no such function.
    """
    path = KIT / f"{module}.py"
    source = path.read_text(encoding="utf-8")
    body = ast.parse(source).body
    imports = [node for node in body if _is_import(node)]
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return f"{_lines(source, imports)}\n\n\n{_lines(source, [node])}\n"
    raise LookupError(f"{path} has no function {name}")


def _without_story(body: Sequence[ast.stmt], played: frozenset[str], lines: list[str]) -> Iterator[str]:
    """Yield the lines of statements; the first that plays the story becomes ``answer()``, others go."""
    told = _told(body, played)
    is_replaced = False
    for node in body:
        first, last = next(_places(lines, [node]))
        if node not in told:
            yield from lines[first:last]
        elif isinstance(node, _BLOCKS):
            inner = node.body
            yield from lines[first : inner[0].lineno - 1]
            yield from _without_story(inner, played, lines)
            yield from lines[inner[-1].end_lineno or last : last]
            is_replaced = True
        elif not is_replaced:
            yield f"{' ' * node.col_offset}{YOURS}"
            is_replaced = True


def _without_leftovers(program: str, known: set[str]) -> str:
    """Return a program without unused assignments and statements that need a removed name."""
    tree = ast.parse(program)
    stored = {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    loaded = [
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    ]
    there = known | stored | {"answer", *dir(builtins)}
    kept = [
        node
        for node in tree.body
        if isinstance(node, _BLOCKS)
        or (_names(node) <= there and (_stored(node) <= {*loaded} or not _stored(node)))
    ]
    return _lines(program, kept)


def _told(body: Sequence[ast.stmt], played: frozenset[str]) -> set[ast.stmt]:
    """Return the statements that use the story's names, and the assignments needed only by them."""
    told = {node for node in body if _names(node) & played}
    made = {name for node in told if not isinstance(node, _BLOCKS) for name in _stored(node)}
    told |= {node for node in body if _names(node) & made}
    for node in reversed(body):
        rest = {name for other in body if other not in told and other is not node for name in _names(other)}
        is_needed = any(_stored(node) & _names(other) for other in told if not isinstance(other, _BLOCKS))
        if isinstance(node, ast.Assign) and is_needed and not _stored(node) & rest:
            told.add(node)
    return told


def _stored(node: ast.stmt) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _bound(node: ast.stmt) -> set[str]:
    assert isinstance(node, ast.Import | ast.ImportFrom)
    return {(alias.asname or alias.name).partition(".")[0] for alias in node.names}


def _is_import(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module not in {"__future__", _STORY}
    return isinstance(node, ast.Import)


def _is_of_the_kit(node: ast.stmt) -> bool:
    """Return whether an import is of the module that plays the story with this framework."""
    return isinstance(node, ast.ImportFrom) and (node.module or "").endswith(f"_{_STORY}")


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _names_of_the_story(tree: ast.Module) -> Iterator[str]:
    """Yield the names that only the story has: imported from it, or defined by the script."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == _STORY:
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name


def _names_of_the_kit(tree: ast.Module) -> set[str]:
    return {name for node in tree.body if _is_of_the_kit(node) for name in _bound(node)}


def _lines(source: str, nodes: list[ast.stmt]) -> str:
    """Return the lines of statements, with the comments right before each."""
    lines = source.splitlines()
    return "\n".join("\n".join(lines[first:last]) for first, last in _places(lines, nodes))


def _places(lines: list[str], nodes: list[ast.stmt]) -> Iterator[tuple[int, int]]:
    for node in nodes:
        decorators = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(decorator.lineno for decorator in decorators)]) - 1
        while first > 0 and lines[first - 1].startswith("#"):
            first -= 1
        assert node.end_lineno is not None
        yield first, node.end_lineno
