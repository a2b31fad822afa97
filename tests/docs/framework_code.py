"""Takes out of a framework's run script the lines that a user needs, as they were run.

The scripts cannot be imported here: their frameworks are installed elsewhere. So they are read, and a line
that is asked for and is not there is an error.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

KIT: Final = Path(__file__).parents[1] / "frameworks" / "kit"
_OF_THE_SUITE: Final = frozenset({"__future__", "story"})
"""Modules whose imports say nothing to a user: the story that is played."""
_DEFINITIONS: Final = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def instrumenting_lines(script: Path) -> str:
    """Return the imports of a script, and what it does when it is started, without what it only defines."""
    source = script.read_text(encoding="utf-8")
    tree = ast.parse(source)
    imports = [node for node in tree.body if _is_import(node)]
    story = _names_of_the_story(tree)
    doing = [node for node in tree.body if _does_something(node, story)]
    return f"{_lines(source, imports)}\n\n{_lines(source, doing)}\n"


def function_of_kit(module: str, name: str) -> str:
    """Return one function of the scripts' kit, behind the imports of its module.

    Raises:
        LookupError: there is none of that name.
    """
    path = KIT / f"{module}.py"
    source = path.read_text(encoding="utf-8")
    body = ast.parse(source).body
    imports = [node for node in body if _is_import(node)]
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return f"{_lines(source, imports)}\n\n\n{_lines(source, [node])}\n"
    raise LookupError(f"{path} has no function {name}")


def _is_import(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module not in _OF_THE_SUITE
    return isinstance(node, ast.Import)


def _does_something(node: ast.stmt, story: frozenset[str]) -> bool:
    """Say whether a statement is more than a docstring, a definition, or the naming of the story's tool."""
    if isinstance(node, ast.Assign):
        named = {each.id for each in ast.walk(node.value) if isinstance(each, ast.Name)}
        return not named & story and not isinstance(node.targets[0], ast.Attribute)
    is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return not is_docstring and not isinstance(node, _DEFINITIONS)


def _names_of_the_story(tree: ast.Module) -> frozenset[str]:
    imports = (node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "story")
    return frozenset(alias.name for node in imports for alias in node.names)


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
