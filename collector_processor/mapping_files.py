"""Mapping files: YAML → dialects. A mistake is reported in one line: file, line, what was expected.

YAML is read as objects, lists and texts only: no tags, no aliases, bounded in size and depth.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import yaml

from collector_processor.otlp import CollectorError
from semconv.dialects import DIALECTS, Reader
from semconv.dialects.mapped import MappingError, SpanMapping, dialect_of, document_of, read_mapping

MAPPING_FILE: Final = "blamespan.mapping.yaml"
_LARGEST: Final = 1 << 20
_DEEPEST: Final = 8
_TOO_DEEP: Final = f"at most {_DEEPEST} levels of nesting"
_OPENING: Final = (
    yaml.BlockMappingStartToken,
    yaml.BlockSequenceStartToken,
    yaml.FlowMappingStartToken,
    yaml.FlowSequenceStartToken,
)
_CLOSING: Final = (yaml.BlockEndToken, yaml.FlowMappingEndToken, yaml.FlowSequenceEndToken)


class MappingFileError(CollectorError):
    """A mapping file that cannot be read; one line that names the file, the line and what was expected."""


def mapping_in(content: str, name: str = MAPPING_FILE) -> SpanMapping:
    """Return the mapping in a YAML text.

    Raises:
        MappingFileError: it is not a mapping; the message has the file's name and the line.
    """
    if len(content) > _LARGEST:
        raise MappingFileError(f"{name}: expected {_LARGEST} characters at most")
    root: yaml.Node | None = None
    try:
        _check_tokens(content)
        root = yaml.compose(content, Loader=yaml.SafeLoader)
        return read_mapping(_plain(root, 0))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise MappingFileError(f"{name} line {line}: expected YAML: {error.problem}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise MappingFileError(f"{name}: expected YAML") from error
    except MappingError as error:
        raise MappingFileError(f"{name} line {_line(root, error.where)}: {error}") from error


def _check_tokens(content: str) -> None:
    """Refuse aliases, tags and deep nesting at their first token: deep nesting takes quadratic time to scan.

    Raises:
        yaml.MarkedYAMLError: the text has one of them.
    """
    depth = 0
    for token in yaml.scan(content, Loader=yaml.SafeLoader):
        if isinstance(token, (yaml.AliasToken, yaml.AnchorToken, yaml.TagToken)):
            raise yaml.MarkedYAMLError(problem="no aliases and no tags", problem_mark=token.start_mark)
        depth += isinstance(token, _OPENING) - isinstance(token, _CLOSING)
        if depth > _DEEPEST:
            raise yaml.MarkedYAMLError(problem=_TOO_DEEP, problem_mark=token.start_mark)


def _plain(node: yaml.Node | None, depth: int) -> Any:
    """Return a node as objects, lists and texts: ``on`` and ``1`` are texts too."""
    if depth > _DEEPEST:
        raise MappingError((), _TOO_DEEP)
    if isinstance(node, yaml.MappingNode):
        return {_plain(key, depth + 1): _plain(value, depth + 1) for key, value in _pairs(node)}
    if isinstance(node, yaml.SequenceNode):
        return [_plain(each, depth + 1) for each in node.value]
    return node.value if isinstance(node, yaml.ScalarNode) else None


def _pairs(node: yaml.MappingNode) -> list[tuple[yaml.Node, yaml.Node]]:
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise yaml.MarkedYAMLError(problem="a text as key", problem_mark=key.start_mark)
    return list(node.value)


def _line(root: yaml.Node | None, where: tuple[str, ...]) -> int:
    """Return the line, from 1, of the innermost part of ``where`` that exists."""
    node, line = root, 1
    for name in where:
        found = (
            next(((k, v) for k, v in _pairs(node) if k.value == name), None)
            if isinstance(node, yaml.MappingNode)
            else None
        )
        if found is None:
            break
        line, node = found[0].start_mark.line + 1, found[1]
    return line


def written(mapping: SpanMapping, comments: tuple[str, ...] = ()) -> str:
    """Return a mapping as YAML, under comments."""
    lines = "".join(f"# {line}\n" for comment in comments for line in comment.splitlines())
    document: Mapping[str, Any] = document_of(mapping)
    return lines + yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)


def read_file(path: Path) -> SpanMapping:
    """Return the mapping in a file.

    Raises:
        MappingFileError: it cannot be read, or is not a mapping.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1).decode()
    except OSError as error:
        raise MappingFileError(f"{path}: {error.strerror or error}, expected a mapping file") from error
    except UnicodeDecodeError as error:
        raise MappingFileError(f"{path}: expected YAML in UTF-8") from error
    return mapping_in(content, str(path))


@cache
def contributed() -> tuple[SpanMapping, ...]:
    """Return the mappings that come with blamespan; read once a process."""
    found = sorted(files("semconv.mappings").iterdir(), key=lambda each: each.name)
    return tuple(
        mapping_in(each.read_text(encoding="utf-8"), each.name)
        for each in found
        if each.name.endswith(".yaml")
    )


def open_reader(mappings: str = "") -> Reader:
    """Return the reader of spans: the user's mappings first, then the dialects, then contributed mappings.

    Args:
        mappings: names of files, comma-separated, as ``BLAMESPAN_MAPPINGS`` has them.

    Raises:
        MappingFileError: a file cannot be read.
    """
    names = filter(None, map(str.strip, mappings.split(",")))
    own = tuple(dialect_of(read_file(Path(name))) for name in names)
    return Reader((*own, *DIALECTS, *map(dialect_of, contributed())))
