"""Mappings: tables from attribute to field, for spans without a dialect of their own. Pure.

A mapping is data that users write (``blamespan.mapping.yaml``) or contribute (``semconv/mappings``). Reading
its YAML is the caller's work; this module gets the document, checks it and makes a dialect of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn

from semconv.dialects.reading.action import Action, ActionKind, Dialect, Surroundings
from semconv.dialects.reading.agent_names import NO_AGENT, Found
from semconv.dialects.reading.observations import Observation, action_of
from semconv.dialects.reading.values import structured, text
from semconv.model import AttributeValue, Span
from semconv.record import record, replace

FIELDS: Final[Mapping[str, str]] = {
    "agent": "the agent's name",
    "input": "the input: messages, arguments or a task, as text or JSON",
    "output": "the output: messages, a result or an answer, as text or JSON",
    "tool": "the tool's name, on a tool's span; without it, the span's name",
    "call_id": "the id of the call that a model requested",
    "target": "the agent that is handed over to",
    "instructions": "the system prompt",
    "error": "the error's text; a span with one has failed",
}
"""Fields of a mapping, each with its meaning."""
KINDS: Final[Mapping[str, ActionKind]] = {
    kind.value: kind
    for kind in (
        ActionKind.LLM,
        ActionKind.TOOL,
        ActionKind.AGENT,
        ActionKind.HANDOFF,
        ActionKind.HUMAN,
        ActionKind.WORKFLOW,
        ActionKind.CONTAINER,
    )
}
MAPPED: Final = "mapping:"
"""Beginning of the names of dialects made of mappings."""
_KEYS: Final = ("mapping", "scopes", "kind", "fields")
_KIND_KEYS: Final = ("attribute", "values", "names")
_MOST_ENTRIES: Final = 500
_LONGEST: Final = 200


class MappingError(ValueError):
    """A mapping that cannot be read."""

    def __init__(self, where: tuple[str, ...], expected: str) -> None:
        super().__init__(f"{'.'.join(where) or 'the mapping'}: expected {expected}")
        self.where: Final = where
        """Path of keys to the mistake, the outermost first."""


@record
class SpanMapping:
    """Meanings of the attributes of one framework's spans."""

    name: str
    fields: Mapping[str, str]
    """Field by attribute."""
    kinds: Mapping[str, ActionKind]
    """Kind by the value of ``kind_attribute``."""
    names: Mapping[str, ActionKind]
    """Kind by the span's name; a ``*`` at its end matches any rest."""
    scopes: tuple[str, ...] = ()
    """Prefixes of the scope names of its spans; without any, every span whose kind is known is read."""
    kind_attribute: str = ""


def read_mapping(document: Any) -> SpanMapping:
    """Return the mapping in a document of objects, lists and texts.

    Raises:
        MappingError: it is not a mapping; the message says where, and what was expected.
    """
    top = _object((), document, _KEYS)
    kind = _object(("kind",), top.get("kind"), _KIND_KEYS)
    attribute = kind.get("attribute", "")
    kinds, names = (
        _kinds(("kind", "values"), kind.get("values")),
        _kinds(("kind", "names"), kind.get("names")),
    )
    if kinds and not attribute:
        _refuse(("kind", "attribute"), "the attribute that has these values")
    if not kinds and not names:
        _refuse(("kind",), "`attribute` with `values`, or `names`")
    return SpanMapping(
        name=_text(("mapping",), top.get("mapping")),
        fields=_fields(top.get("fields")),
        scopes=_texts(("scopes",), top.get("scopes", ())),
        kind_attribute=_text(("kind", "attribute"), attribute) if attribute else "",
        kinds=kinds,
        names=names,
    )


def _refuse(where: tuple[str, ...], expected: str) -> NoReturn:
    raise MappingError(where, expected)


def _object(where: tuple[str, ...], value: Any, keys: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        _refuse(where, f"an object with {', '.join(keys)}")
    unknown = next((key for key in value if key not in keys), None)
    if unknown is not None:
        _refuse((*where, str(unknown)), f"one of {', '.join(keys)}")
    return value


def _text(where: tuple[str, ...], value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST:
        _refuse(where, f"a text of 1 to {_LONGEST} characters")
    return value


def _texts(where: tuple[str, ...], value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)):
        _refuse(where, "a list of texts")
    return tuple(_text(where, each) for each in value)


def _kinds(where: tuple[str, ...], value: Any) -> Mapping[str, ActionKind]:
    found: dict[str, ActionKind] = {}
    for key, kind in _entries(where, value or {}):
        if kind not in KINDS:
            _refuse((*where, key), f"one of {', '.join(KINDS)}")
        found[key] = KINDS[kind]
    return found


def _fields(value: Any) -> Mapping[str, str]:
    if not value and not isinstance(value, Mapping):
        _refuse(("fields",), "what each attribute holds, as `attribute: field`")
    found: dict[str, str] = {}
    for key, name in _entries(("fields",), value):
        if name not in FIELDS:
            _refuse(("fields", key), f"one of {', '.join(FIELDS)}")
        found[key] = name
    return found


def _entries(where: tuple[str, ...], value: Any) -> list[tuple[str, str]]:
    if not isinstance(value, Mapping) or len(value) > _MOST_ENTRIES:
        _refuse(where, f"an object of at most {_MOST_ENTRIES} entries")
    return [
        (_text((*where, str(key)), key), _text((*where, str(key)), entry)) for key, entry in value.items()
    ]


def document_of(mapping: SpanMapping) -> Mapping[str, Any]:
    """Return a mapping as the document that ``read_mapping`` reads."""
    kind: dict[str, Any] = {}
    if mapping.kind_attribute:
        kind |= {"attribute": mapping.kind_attribute, "values": _values(mapping.kinds)}
    if mapping.names:
        kind["names"] = _values(mapping.names)
    scopes = {"scopes": list(mapping.scopes)} if mapping.scopes else {}
    return {"mapping": mapping.name, **scopes, "kind": kind, "fields": dict(mapping.fields)}


def _values(kinds: Mapping[str, ActionKind]) -> dict[str, str]:
    return {key: kind.value for key, kind in kinds.items()}


def dialect_of(mapping: SpanMapping) -> Dialect:
    """Return the dialect that reads spans by a mapping; its name is ``mapping:…``."""
    sources: dict[str, list[str]] = {}
    for attribute, name in mapping.fields.items():
        sources.setdefault(name, []).append(attribute)
    dialect = f"{MAPPED}{mapping.name}"

    def read(span: Span, _: Surroundings) -> Action | None:
        kind = _kind_of(mapping, span)
        return None if kind is None else _action(dialect, kind, span, sources)

    # With names alone, or a scope, a span need not have any of the attributes.
    keys = frozenset({mapping.kind_attribute} if mapping.kind_attribute else mapping.fields)
    return Dialect(
        name=dialect, read=read, scopes=mapping.scopes, keys=keys if not mapping.names else frozenset()
    )


def _kind_of(mapping: SpanMapping, span: Span) -> ActionKind | None:
    if mapping.scopes and not span.scope.name.startswith(mapping.scopes):
        return None
    if mapping.kind_attribute:
        kind = mapping.kinds.get(text(span.attributes, mapping.kind_attribute) or "")
        if kind is not None:
            return kind
    return next(
        (
            kind
            for name, kind in mapping.names.items()
            if (span.name.startswith(name[:-1]) if name.endswith("*") else span.name == name)
        ),
        None,
    )


def _action(dialect: str, kind: ActionKind, span: Span, sources: Mapping[str, list[str]]) -> Action:
    def value(field: str) -> AttributeValue:
        found = (span.attributes.get(attribute) for attribute in sources.get(field, ()))
        return next((each for each in found if each not in (None, "")), None)

    def text_of(field: str) -> str:
        found = structured(value(field))
        return found if isinstance(found, str) else text({"": found}, "") or ""

    name, error = text_of("agent"), text_of("error")
    seen = Observation(
        dialect=dialect,
        kind=kind,
        agent=Found(name) if name else NO_AGENT,
        given=value("input"),
        got=value("output"),
        tool=text_of("tool"),
        call_id=text_of("call_id"),
        instructions=text_of("instructions"),
        failed=bool(error),
        error=error,
    )
    action = action_of(span, seen)
    target = text_of("target")
    return replace(action, target=target) if target else action
