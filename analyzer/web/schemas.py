"""The API's OpenAPI description: paths from ``openapi.yaml``, schemas from ``records/json_records.py``.

The schemas are generated when the description is first requested, so that they cannot differ from the
records. Descriptions come from the docstrings of records and fields.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from textwrap import dedent
from typing import Any, Final, get_args, get_type_hints

import yaml
from pydantic import TypeAdapter

from analyzer.history.run_diff import RunDiff
from analyzer.records.issue_records import Issue, IssueFix, Workflow, WorkflowInFull
from analyzer.records.json_records import (
    GivenLabel,
    Job,
    Label,
    LabelledRun,
    Opinion,
    QueuedRuns,
    RunPage,
    RunSteps,
    RunVerdict,
)

_ANSWERS: Final = (
    RunVerdict,
    LabelledRun,
    RunPage,
    QueuedRuns,
    RunSteps,
    Opinion,
    Label,
    GivenLabel,
    Issue,
    IssueFix,
    Workflow,
    WorkflowInFull,
    Job,
    RunDiff,
)
"""The records that the API answers with; those inside them follow."""
_PLACE: Final = "#/components/schemas/"


@cache
def openapi() -> dict[str, Any]:
    """Return the API's description with this version's number, made once; callers must not change it."""
    document: dict[str, Any] = yaml.safe_load(files(__package__).joinpath("openapi.yaml").read_bytes())
    del document["fragments"]
    document["info"]["version"] = version("blamespan")
    document["components"]["schemas"] = schemas()
    return document


def schemas() -> dict[str, Any]:
    """Return the JSON schemas of all records, by name; enumerations are written out in each record."""
    _, made = TypeAdapter.json_schemas(
        [(each, "serialization", TypeAdapter(each)) for each in _ANSWERS], ref_template=_PLACE + "{model}"
    )
    found: dict[str, Any] = made["$defs"]
    plain = {name: _plain(schema, found) for name, schema in found.items() if "enum" not in schema}
    for record in _with_inner(_ANSWERS):
        for field, text in _field_texts(record):
            plain[record.__name__]["properties"][field].setdefault("description", text)
    return dict(sorted(plain.items()))


def _with_inner(kinds: Iterable[Any]) -> Iterator[type]:
    """Yield the records among these types and inside them."""
    for kind in kinds:
        if is_dataclass(kind):
            assert isinstance(kind, type)
            yield kind
            yield from _with_inner(get_type_hints(kind).values())
        else:
            yield from _with_inner(get_args(kind))


def _plain(schema: Any, found: Mapping[str, Any]) -> Any:
    """Return a schema without generated titles, with enumerations in place and nullable types as a list."""
    if isinstance(schema, list):
        return [_plain(each, found) for each in schema]
    if not isinstance(schema, dict):
        return schema
    referred = found.get(str(schema.get("$ref", "")).removeprefix(_PLACE), {})
    if "enum" in referred or "const" in referred:
        return {name: value for name, value in referred.items() if name in {"enum", "const", "type"}}
    plain = {
        name: {field: _plain(value, found) for field, value in inner.items()}
        if name == "properties"
        else _plain(inner, found)
        for name, inner in schema.items()
        if name != "title"
    }
    kinds = plain.get("anyOf")
    if isinstance(kinds, list) and len(kinds) == 2 and kinds[1] == {"type": "null"} and "type" in kinds[0]:
        known = dict(kinds[0])
        if "enum" in known:
            known["enum"] = [*known["enum"], None]
        del plain["anyOf"]
        return {**known, "type": [known["type"], "null"], **plain}
    return plain


def _field_texts(record: type) -> Iterator[tuple[str, str]]:
    """Yield the docstrings of a record's fields; an inherited field has that of its own class."""
    for each in record.__mro__:
        if is_dataclass(each):
            body = ast.parse(dedent(inspect.getsource(each))).body[0]
            assert isinstance(body, ast.ClassDef)
            for before, after in zip(body.body, body.body[1:], strict=False):
                match before, after:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(
                        value=ast.Constant(value=str(text))
                    ):
                        yield name, " ".join(text.split())


__all__ = ["openapi", "schemas"]
