"""What is measured: a method, a model, and whether the right answer is shown, as ``--compare`` writes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WITH_REFERENCE: Final = "+reference"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One side of a comparison; ``None`` is what the settings say."""

    method: str | None = None
    model: str | None = None
    with_reference: bool = False


def read_contender(text: str, base: Contender) -> Contender:
    """Read ``METHOD[+reference][@MODEL]``; what is not written is as in ``base``."""
    name, at, model = text.partition("@")
    return Contender(
        method=name.removesuffix(WITH_REFERENCE),
        model=model if at else base.model,
        with_reference=base.with_reference or name.endswith(WITH_REFERENCE),
    )
