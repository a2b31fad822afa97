"""The settings as a page may show them: no secret, and nothing that could hold one. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic.fields import FieldInfo

from collector_processor.settings import PREFIX, Settings

_ADDRESSES: Final = ("_endpoint", "_url")
_MAY_HOLD_SECRETS: Final = frozenset({"redact_patterns"})
"""People write there what their secrets look like."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownSetting:
    """One setting."""

    name: str
    value: str
    meaning: str
    is_default: bool


def shown_settings(settings: Settings) -> tuple[ShownSetting, ...]:
    """Return all settings; of those that are or may be secret, only whether they are set."""
    fields: Mapping[str, FieldInfo] = type(settings).model_fields
    return tuple(
        ShownSetting(
            name=PREFIX + name.upper(),
            value=_shown(name, getattr(settings, name), is_secret=not field.repr),
            meaning=field.description,
            is_default=getattr(settings, name) == field.get_default(call_default_factory=True),
        )
        for name, field in fields.items()
        if field.description
    )


def _shown(name: str, value: Any, *, is_secret: bool) -> str:
    if value is None or value in ("", ()):
        return "not set"
    if is_secret or name in _MAY_HOLD_SECRETS:
        return "set, not shown"
    if name.endswith(_ADDRESSES):  # keys are sometimes written into a query
        return str(value).partition("?")[0]
    return str(value)
