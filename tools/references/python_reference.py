# ruff: noqa: E501 - lines of generated pages cannot be wrapped
"""Generator of docs/reference/python.md, the public Python API: ``python -m tools.references.python_reference``.

A test compares the page with the code: the public surface cannot change unnoticed.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, Final

import analyzer

_TYPE: Final = re.compile(r": '([^']*)'")
PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "python.md"
_HEAD: Final = """# Python API

Made from the code by `python -m tools.references.python_reference`; do not edit. These are all public names, imported with
`from analyzer import …`; the package is typed (`py.typed`). They follow semantic versioning: until 1.0 a minor release
may change them, and the change notes say so. How to use them: [programs](../programs.md).
"""


def page() -> str:
    """Return the page."""
    found = {name: getattr(analyzer, name) for name in analyzer.__all__}
    functions = [name for name, each in found.items() if inspect.isfunction(each)]
    errors = [name for name, each in found.items() if _is_error(each)]
    records = [name for name, each in found.items() if is_dataclass(each)]
    rest = set(found) - {*functions, *errors, *records}
    parts = [_HEAD, "\n## Functions\n", *(_function(name, found[name]) for name in functions)]
    parts += ["\n## Records\n", *(_record(name, found[name]) for name in records)]
    parts += ["\n## Errors\n\n", *(f"- `{name}`: {_title(found[name])}\n" for name in errors)]
    parts += ["\n## Types\n\n", *(f"- `{name}` = `{found[name]}`\n" for name in sorted(rest))]
    return "".join(parts)


def _is_error(found: Any) -> bool:
    return isinstance(found, type) and issubclass(found, Exception)


def _title(found: Any) -> str:
    return (inspect.getdoc(found) or "").partition("\n")[0]


def _function(name: str, found: Any) -> str:
    return f"\n### {name}\n\n```text\n{name}{_signature(found)}\n```\n\n{_title(found)}\n"


def _signature(found: Any) -> str:
    parts = [_TYPE.sub(r": \1", str(each)) for each in inspect.signature(found).parameters.values()]
    is_keyword = [each.kind is each.KEYWORD_ONLY for each in inspect.signature(found).parameters.values()]
    if any(is_keyword):
        parts.insert(is_keyword.index(True), "*")
    returned = inspect.signature(found).return_annotation
    inside = "".join(f"    {part},\n" for part in parts if part != "self")
    return f"(\n{inside}) -> {returned}"


def _record(name: str, found: Any) -> str:
    rows = "".join(f"    {each.name}: {each.type}{_default(each)}\n" for each in fields(found))
    methods = "".join(f"    {method}{_short(each)}\n" for method, each in _methods(found))
    return f"\n### {name}\n\n```text\n{rows}{methods}```\n\n{_title(found)}\n"


def _default(each: Any) -> str:
    if each.default_factory is not MISSING:
        return " = …"
    return "" if each.default is MISSING else f" = {each.default!r}"


def _methods(found: Any) -> Iterator[tuple[str, Any]]:
    own = [(name, each) for name, each in vars(found).items() if inspect.isfunction(each)]
    yield from ((name, each) for name, each in own if not name.startswith("_"))


def _short(found: Any) -> str:
    return " ".join(_signature(found).split()).replace("( ", "(").replace(",)", ")").replace(", )", ")")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
