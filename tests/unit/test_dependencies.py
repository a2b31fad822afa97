"""pyproject.toml declares exactly the dependencies that the packages import."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any, Final

import pytest

HOME: Final = Path(__file__).parent.parent.parent
OURS: Final = ("semconv", "collector_processor", "analyzer")
SHARED: Final[Mapping[str, str]] = {
    "google.protobuf": "protobuf",
    "google.rpc": "googleapis-common-protos",
    "opentelemetry.exporter": "opentelemetry-exporter-otlp",
    "opentelemetry.proto": "opentelemetry-proto",
    "opentelemetry.sdk": "opentelemetry-sdk",
}
"""Packages below a name that several distributions share; the rest of ``opentelemetry`` is the API."""
UNDECLARED: Final[Mapping[str, str]] = {
    "h11": "part of uvicorn's API: the connection of its protocol",
    "markupsafe": "part of jinja2's API: the type of its escaped text",
    "multidict": "part of aiohttp's API: the type of its headers",
    "yarl": "part of aiohttp's API: the type of its addresses",
}
"""Distributions that are imported but need no declaration, each with the reason."""

UNIMPORTED: Final[Mapping[str, str]] = {
    "blamespan": "the extra `all` names other extras",
    "duckdb": "the queries of docs/history.md",
    "openai": "litellm's client, and that of the programs in examples",
}
"""Distributions that are declared and never imported, each with the reason."""


def test_what_is_declared_is_what_is_imported() -> None:
    if not (HOME / "pyproject.toml").is_file():
        pytest.skip("pyproject.toml is not beside the tests (a built wheel is tested)")
    project: Mapping[str, Any] = tomllib.loads((HOME / "pyproject.toml").read_text())["project"]
    declared = {
        _normal(re.split(r"[^\w.-]", line)[0])
        for lines in (project["dependencies"], *project["optional-dependencies"].values())
        for line in lines
    }
    imported = {_distribution(name) for package in OURS for name in _imported(HOME / package)}
    assert declared - imported == UNIMPORTED.keys(), "declared and never imported"
    assert imported - declared == UNDECLARED.keys(), "imported and not declared"


def _imported(folder: Path) -> Iterator[str]:
    """Yield the modules that a folder's files import, also by name in ``import_module`` and ``library``."""
    known = {*OURS, *sys.stdlib_module_names}
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            yield from (name for name in _named(node) if name.partition(".")[0] not in known)


def _named(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (name.name for name in names)
        case ast.ImportFrom(module=str(module), level=0):
            yield module
        case ast.Call(func=ast.Name(id="library"), args=[ast.Constant(value=str(name))]):
            yield name
        case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name))]):
            yield name


@cache
def _distribution(module: str) -> str:
    top = module.partition(".")[0]
    if top == "opentelemetry":
        return SHARED.get(".".join(module.split(".")[:2]), "opentelemetry-api")
    if top == "google":
        return SHARED[".".join(module.split(".")[:2])]
    return _normal(_owners()[top][0])


@cache
def _owners() -> Mapping[str, list[str]]:
    return packages_distributions()


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
