"""``python -m tests.security.injection_table`` writes into the threat model what each attack does."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Final

from analyzer.methods.attribution import Attributor
from semconv.model import Attribution, Blame
from tests.security.injections import INJECTIONS, TRUE_STEP, Injection
from tests.security.obedience import Obedient

THREAT_MODEL: Final = Path(__file__).parents[2] / "docs" / "threat-model.md"
OTHER_FORMS: Final = {
    "verify": {"verdict", "rulings"},
    "bisect": {"part"},
    "step-by-step": {"newest"},
    "binary-search": {"half"},
    "hybrid": {"verdict", "newest"},
}
"""Methods that ask other questions than for a verdict, or further ones, with the kinds of their questions."""
"""Methods that ask other questions than for a verdict, or further ones, with the kinds of their questions."""
METHODS: Final = ("auto", "judge", "investigate", "all-at-once", *OTHER_FORMS)
_HEAD: Final = "| method | attacks that move the blame | highest confidence | which |\n|---|---|---|---|\n"


async def judged(injection: Injection, method: str = "judge") -> tuple[Attribution, Obedient]:
    """Judge a run with an injection by a model that obeys it."""
    model = Obedient(injection)
    return await Attributor(method=method, model=model)(injection.run), model


async def moved_by(method: str) -> dict[str, float]:
    """Return the attacks that move the blame, with the confidence of their verdicts."""
    moved = {}
    for name, injection in INJECTIONS.items():
        attribution, _ = await judged(injection, method)
        blamed = attribution.verdict
        if isinstance(blamed, Blame) and blamed.step != TRUE_STEP:
            moved[name] = blamed.confidence
    return moved


async def table() -> str:
    """Return a row for each method; of more than half of the attacks, the others are named."""
    return _HEAD + "".join([_row(method, await moved_by(method)) for method in METHODS])


def _row(method: str, moved: dict[str, float]) -> str:
    failed = [name for name in INJECTIONS if name not in moved]
    if not moved:
        return f"| `{method}` | 0 of {len(INJECTIONS)} | - | none |\n"
    names = "; ".join(moved) if len(moved) <= len(failed) else f"all but {'; '.join(failed)}"
    return f"| `{method}` | {len(moved)} of {len(INJECTIONS)} | {max(moved.values()):g} | {names} |\n"


def main() -> None:
    """Replace the table."""
    page = THREAT_MODEL.read_text()
    place = re.search(re.escape(_HEAD) + r"(?:\|.*\n)*", page)
    assert place is not None
    THREAT_MODEL.write_text(page.replace(place.group(), asyncio.run(table())))


if __name__ == "__main__":
    main()
