"""``python -m tools.registry [--check]``: generator of all files derived from the registry.

Writes the constants (``semconv/attributes.py``), the reference page (``docs/convention-reference.md``), a
JSON schema of the attributes, and OpenTelemetry's schema file, which the documentation site serves. With
``--check`` it writes nothing and fails if a file is stale.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import jinja2

from tools.registry_definition import Attribute, Registry, Use, load

ROOT: Final = Path(__file__).parent.parent
FOLDER: Final = ROOT / "semconv" / "registry"

_SECTIONS: Final[Mapping[str, str]] = {
    "emitter": "Written by emitters",
    "processor": "Written by the collector processor",
    "analyzer": "Written by the analyzer",
    "compatibility": "Written for other tools",
    "upstream": "Upstream names",
}
_JSON_TYPES: Final[Mapping[str, Mapping[str, Any]]] = {
    "string": {"type": "string"},
    "int": {"type": "integer"},
    "double": {"type": "number"},
    "boolean": {"type": "boolean"},
    "string[]": {"type": "array", "items": {"type": "string"}},
    "int[]": {"type": "array", "items": {"type": "integer"}},
    "double[]": {"type": "array", "items": {"type": "number"}},
    "boolean[]": {"type": "array", "items": {"type": "boolean"}},
    "any": {},
}


def constant(key: str) -> str:
    """Return an attribute's Python name: its key in capitals, without our own namespace."""
    return key.removeprefix("blamespan.").replace(".", "_").upper()


def enumeration(key: str) -> str:
    """Return the name of an enumerated attribute's ``StrEnum``: its key in camel case."""
    words = key.removeprefix("blamespan.").replace(".", "_").split("_")
    return "".join(word.capitalize() for word in words)


def outputs(registry: Registry) -> dict[Path, str]:
    """Return the generated files' texts by path relative to the repository."""
    return {
        Path("semconv/attributes.py"): _render("attributes.py.j2", registry),
        Path("docs/convention-reference.md"): _render("convention-reference.md.j2", registry),
        Path("semconv/registry/blamespan.schema.json"): json.dumps(_schema(registry), indent=2) + "\n",
        Path("docs") / registry.schema_path: _schema_file(registry),
    }


def stale(registry: Registry, root: Path) -> list[Path]:
    """Return the generated files that differ from the registry's output."""
    return [
        path
        for path, text in outputs(registry).items()
        if not (root / path).is_file() or (root / path).read_text(encoding="utf-8") != text
    ]


def main(arguments: list[str] | None = None) -> int:
    """Write the generated files, or with ``--check`` list the stale ones; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.registry", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is stale")
    options = parser.parse_args(arguments)
    registry = load(FOLDER)
    old = stale(registry, ROOT)
    if options.check:
        for path in old:
            sys.stderr.write(f"{path} is stale: run python -m tools.registry\n")
        return 1 if old else 0
    texts = outputs(registry)
    for path in old:
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(texts[path], encoding="utf-8")
        sys.stdout.write(f"wrote {path}\n")
    return 0


def _render(template: str, registry: Registry) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "registry_templates"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
        autoescape=False,
    )
    environment.filters.update(
        constant=constant,
        enumeration=enumeration,
        docstring=_docstring,
        cell=_cell,
        example=_example,
        type_name=_type_name,
        level=_level,
        anchor=_anchor,
    )
    by_file = {file: [a for a in registry.attributes.values() if a.file == file] for file in _SECTIONS}
    return environment.get_template(template).render(registry=registry, sections=_SECTIONS, by_file=by_file)


def _docstring(text: str, indent: int = 0) -> str:
    """Return ``text`` as a docstring, wrapped to our line length."""
    one_line = f'"""{text}"""'
    if len(one_line) + indent <= 100:
        return one_line
    lines = textwrap.wrap(text, 100 - indent, initial_indent='"""', break_on_hyphens=False)
    return ("\n" + " " * indent).join([*lines, '"""'])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _example(attribute: Attribute) -> str:
    """Return the first example, or the values of an enumerated attribute."""
    if attribute.members:
        return ", ".join(f"`{member.value}`" for member in attribute.members)
    return f"`{json.dumps(attribute.examples[0], ensure_ascii=False)}`" if attribute.examples else ""


def _type_name(attribute: Attribute) -> str:
    return "enum" if attribute.members else attribute.type


def _level(use: Use) -> str:
    words = use.level.replace("_", " ")
    return f"{words}: {use.condition}" if use.condition else words


def _anchor(key: str) -> str:
    """Return the anchor that GitHub and MkDocs generate for a heading of a key in backticks."""
    return key.replace(".", "")


def _schema_file(registry: Registry) -> str:
    """Return OpenTelemetry's schema file (format 1.1.0): no attribute was renamed yet."""
    version = registry.schema_path.name
    return f"file_format: 1.1.0\nschema_url: {registry.schema_url}\nversions:\n  {version}:\n"


def _schema(registry: Registry) -> dict[str, Any]:
    """Return a JSON schema: the attributes by key, and the required ones of each signal."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Attributes of the blamespan convention, as an object from key to value",
        "type": "object",
        "properties": {key: _property(attribute) for key, attribute in registry.attributes.items()},
        "$defs": {
            signal.id: {
                "description": signal.brief,
                "$ref": "#",
                "required": [use.key for use in signal.uses if use.level == "required"],
            }
            for signal in registry.signals
        },
    }


def _property(attribute: Attribute) -> dict[str, Any]:
    schema: dict[str, Any] = {"description": attribute.brief, **_JSON_TYPES[attribute.type]}
    if attribute.members:
        # OpenTelemetry's enumerations are open: values are listed, not enforced.
        schema["examples"] = [member.value for member in attribute.members]
    elif attribute.examples:
        schema["examples"] = list(attribute.examples)
    if attribute.renamed_to:
        schema["deprecated"] = True
    return schema


if __name__ == "__main__":
    sys.exit(main())
