"""Regular expressions whose search time is linear in the text, even for hostile text: RE2. Pure."""

from __future__ import annotations

import functools
from typing import Any, Final

import re2

_RE2_MEMORY: Final = 8 << 20
"""Bytes that RE2 may take for one pattern and its states; its default."""
_LONGEST_PATTERN: Final = 2_000


@functools.cache
def compile_rule(pattern: str) -> Any:
    """Compile a pattern with RE2.

    Raises:
        ValueError: RE2 does not accept it.
    """
    try:
        return re2.compile(pattern, re2_options())
    except re2.error as error:
        said = error.args[0] if error.args else error
        reason = said.decode(errors="replace") if isinstance(said, bytes) else said
        raise ValueError(f"expected a regular expression in RE2 syntax: {reason}") from None


def compile_pattern(pattern: str) -> Any:
    """Compile a pattern with RE2, whose search time is linear in the text, even for hostile text.

    Raises: ValueError: RE2 does not accept it, or it is too long.
    """
    if len(pattern) > _LONGEST_PATTERN:
        raise ValueError(f"expected a pattern of at most {_LONGEST_PATTERN} characters")
    return compile_rule(pattern)


def re2_options(*, case_sensitive: bool = True) -> Any:
    """Return the options of all our patterns: errors are not logged, and memory is bounded."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _RE2_MEMORY
    options.case_sensitive = case_sensitive
    return options
