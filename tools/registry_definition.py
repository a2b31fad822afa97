"""Reader and checker of the registry, in weaver's definition format (``definition/2``).

Supports only the part of the format that our files use; anything else is an error. Needs PyYAML, a
development dependency, so runtime modules must not import this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

FILES: Final = ("emitter", "processor", "analyzer", "compatibility", "upstream")
"""The files, in the order of the reference page: by writer, then upstream names."""

PRIMITIVES: Final = (
    "string",
    "int",
    "double",
    "boolean",
    "string[]",
    "int[]",
    "double[]",
    "boolean[]",
    "any",
)
LEVELS: Final = ("required", "conditionally_required", "recommended", "opt_in")
STABILITIES: Final = ("development", "alpha", "beta", "release_candidate", "stable")


class DefinitionError(Exception):
    """An invalid registry; the message names the file and the item."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One value of an enumerated attribute."""

    id: str
    value: str
    brief: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """One attribute definition."""

    key: str
    type: str
    """A primitive of the format; ``string`` for enumerated attributes."""
    brief: str
    note: str
    stability: str
    examples: tuple[Any, ...]
    members: tuple[Member, ...]
    python: str
    """Existing ``StrEnum`` with the values, as ``module.Class``; empty if one is generated."""
    renamed_to: str
    """Upstream's replacement for this name, if any."""
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """An attribute as used by a signal."""

    key: str
    level: str
    condition: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A span, an event, or a public group of attributes."""

    id: str
    form: str
    """``span``, ``event`` or ``group``."""
    kind: str
    """The span's kind; empty for the other forms."""
    name: str
    """The rule for the span's name; empty for the other forms."""
    brief: str
    note: str
    uses: tuple[Use, ...]
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """All definitions, in the order of ``FILES`` and of each file."""

    attributes: Mapping[str, Attribute]
    signals: tuple[Signal, ...]
    schema_url: str

    @property
    def schema_path(self) -> PurePosixPath:
        """Where the documentation site has the schema file: the path of its URL."""
        return PurePosixPath(urlsplit(self.schema_url).path.lstrip("/"))


def load(folder: Path) -> Registry:
    """Read the registry in ``folder``.

    Raises:
        DefinitionError: An item is malformed, defined twice, or refers to an undefined one.
    """
    documents = {file: _document(folder / f"{file}.yaml") for file in FILES}
    attributes: dict[str, Attribute] = {}
    for file, document in documents.items():
        for raw in document.get("attributes", ()):
            attribute = _attribute(raw, file)
            if attribute.key in attributes:
                raise DefinitionError(f"{file}.yaml: {attribute.key} is defined twice")
            attributes[attribute.key] = attribute
    groups = {
        raw["id"]: raw for document in documents.values() for raw in document.get("attribute_groups", ())
    }
    signals = tuple(
        _signal(raw, form, file, groups)
        for file, document in documents.items()
        for section, form in (("spans", "span"), ("attribute_groups", "group"), ("events", "event"))
        for raw in document.get(section, ())
        if raw.get("visibility") != "internal"
    )
    _check_references(signals, attributes)
    manifest = yaml.safe_load((folder / "manifest.yaml").read_text(encoding="utf-8"))
    return Registry(attributes=attributes, signals=signals, schema_url=manifest["schema_url"])


def _document(path: Path) -> Mapping[str, Any]:
    document: Mapping[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    if document.get("file_format") != "definition/2":
        raise DefinitionError(f"{path.name}: file_format must be definition/2")
    known = {"file_format", "attributes", "attribute_groups", "spans", "events"}
    if unknown := document.keys() - known:
        raise DefinitionError(f"{path.name}: unknown section {sorted(unknown)}")
    return document


def _attribute(raw: Mapping[str, Any], file: str) -> Attribute:
    where = f"{file}.yaml: {raw.get('key', raw)}"
    _check_keys(
        raw,
        where,
        required={"key", "type", "brief", "stability"},
        optional={"note", "examples", "annotations", "deprecated"},
    )
    members = _members(raw["type"], where)
    kind = "string" if members else raw["type"]
    if kind not in PRIMITIVES or raw["stability"] not in STABILITIES:
        raise DefinitionError(f"{where}: unknown type or stability")
    if kind in {"string", "string[]"} and not members and not raw.get("examples"):
        raise DefinitionError(f"{where}: string attributes need examples")
    return Attribute(
        key=raw["key"],
        type=kind,
        brief=_line(raw["brief"]),
        note=_line(raw.get("note", "")),
        stability=raw["stability"],
        examples=tuple(raw.get("examples", ())),
        members=members,
        python=raw.get("annotations", {}).get("blamespan", {}).get("python", ""),
        renamed_to=raw.get("deprecated", {}).get("renamed_to", ""),
        file=file,
    )


def _members(kind: str | Mapping[str, Any], where: str) -> tuple[Member, ...]:
    if isinstance(kind, str):
        return ()
    for raw in kind["members"]:
        _check_keys(raw, f"{where}: a member", required={"id", "value", "brief", "stability"}, optional=set())
    return tuple(
        Member(id=raw["id"], value=raw["value"], brief=_line(raw["brief"])) for raw in kind["members"]
    )


def _signal(raw: Mapping[str, Any], form: str, file: str, groups: Mapping[str, Mapping[str, Any]]) -> Signal:
    naming = {"span": "type", "event": "name", "group": "id"}[form]
    where = f"{file}.yaml: {raw.get(naming, raw)}"
    own = {"span": {"kind", "name"}, "event": set[str](), "group": {"visibility"}}[form]
    _check_keys(
        raw,
        where,
        required={naming, "brief", "stability", "attributes"} | own,
        optional={"note"},
    )
    return Signal(
        id=raw[naming],
        form=form,
        kind=raw["kind"] if form == "span" else "",
        name=_line(raw["name"]["note"]) if form == "span" else "",
        brief=_line(raw["brief"]),
        note=_line(raw.get("note", "")),
        uses=tuple(_uses(raw["attributes"], where, groups)),
        file=file,
    )


def _uses(
    references: list[Mapping[str, Any]], where: str, groups: Mapping[str, Mapping[str, Any]]
) -> list[Use]:
    uses: list[Use] = []
    for reference in references:
        if "ref_group" in reference:
            if reference["ref_group"] not in groups:
                raise DefinitionError(f"{where}: undefined group {reference['ref_group']}")
            # One level only: the format advises against nested groups.
            uses.extend(_use(inner, where) for inner in groups[reference["ref_group"]]["attributes"])
        else:
            uses.append(_use(reference, where))
    return uses


def _use(reference: Mapping[str, Any], where: str) -> Use:
    _check_keys(reference, where, required={"ref", "requirement_level"}, optional={"note"})
    level = reference["requirement_level"]
    condition = ""
    if not isinstance(level, str):
        ((level, condition),) = level.items()
    if level not in LEVELS:
        raise DefinitionError(f"{where}: unknown requirement level {level}")
    return Use(
        key=reference["ref"], level=level, condition=_line(condition), note=_line(reference.get("note", ""))
    )


def _check_keys(raw: Mapping[str, Any], where: str, *, required: set[str], optional: set[str]) -> None:
    if missing := required - raw.keys():
        raise DefinitionError(f"{where}: missing {sorted(missing)}")
    if unknown := raw.keys() - required - optional:
        raise DefinitionError(f"{where}: unknown {sorted(unknown)}")


def _check_references(signals: tuple[Signal, ...], attributes: Mapping[str, Attribute]) -> None:
    for signal in signals:
        keys = [use.key for use in signal.uses]
        if unknown := set(keys) - attributes.keys():
            raise DefinitionError(f"{signal.file}.yaml: {signal.id} refers to undefined {sorted(unknown)}")
        if len(keys) != len(set(keys)):
            raise DefinitionError(f"{signal.file}.yaml: {signal.id} lists an attribute twice")


def _line(text: str) -> str:
    """Return YAML's folded text as one line."""
    return " ".join(text.split())
