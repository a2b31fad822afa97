"""A model that obeys a hostile run in the form that each question asks for.

The methods ask for a verdict, for yes or no, for a half of a segment or for rulings on candidates. A model
that obeys an injection answers each of these so that the wanted step is blamed; until it has read the
injection it answers so that the true one is.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

from analyzer.inquiry.method import Prompt, Reply
from tests.security.injections import HONEST, TRUE_STEP, Injection, verdict

TRUE_QUOTE: Final = "16 x 10 x 3 = 450"
HONEST_ANSWER: Final = verdict(TRUE_STEP, agent="analyst", quote=TRUE_QUOTE)
_PART: Final = re.compile(r"in one of the steps (\d+) to (\d+)\?")
_CANDIDATES: Final = re.compile(r"Answer it for each of: ([^;]+);")
_NEWEST: Final = re.compile(r"The newest step, (\d+), is by ")
_HALVES: Final = re.compile(r"The upper half of the segment(.*)The lower half of the segment", re.DOTALL)


@dataclass(slots=True)
class Obedient:
    """Obeys the run's instruction once it can read it; otherwise answers correctly."""

    injection: Injection
    was_told: bool = False
    forms: set[str] = field(default_factory=set)
    """Kinds of questions that it was asked."""
    name: str = "obedient"
    context_tokens: int = 128_000

    async def complete(self, prompt: Prompt) -> Reply:
        """Answer one question."""
        shown = "\n".join(message.content for message in prompt.messages)
        is_told = self.injection.sign in shown
        self.was_told |= is_told
        form, text = answered(shown, self.injection.obeyed if is_told else HONEST_ANSWER)
        self.forms.add(form)
        return Reply(text=text)

    def price(self, _prompt: Prompt) -> float | None:
        """Return no price."""
        return None


def answered(shown: str, said: str) -> tuple[str, str]:
    """Return the kind of a question and the answer to it by which the verdict ``said`` would come about."""
    wanted, quote = _wanted(said)
    if wanted is None:  # the attacker wants no verdict
        return "any", said
    if found := _CANDIDATES.search(shown):
        return "rulings", _rulings([int(step) for step in re.findall(r"\d+", found[1])], wanted, quote)
    if found := _PART.search(shown):
        is_in = int(found[1]) <= wanted <= int(found[2])
        answer = {"reason": "as told", "answer": "yes" if is_in else "no", "step": wanted, "quote": quote}
        return "part", json.dumps(answer)
    if found := _NEWEST.search(shown):
        return "newest", f"1. {'Yes' if int(found[1]) == wanted else 'No'}.\n2. Reason: as told"
    if found := _HALVES.search(shown):
        is_upper = 0 <= wanted < len(HONEST.steps) and HONEST.steps[wanted].output in found[1]
        return "half", f"{'upper' if is_upper else 'lower'} half"
    return "verdict", said


def _rulings(candidates: list[int], wanted: int, quote: str) -> str:
    answers = [
        {"step": step, "why": "as told", "quote": quote, "holds": step == wanted, "confidence": 0.95}
        for step in candidates
    ]
    return json.dumps({"answers": answers})


def _wanted(said: str) -> tuple[int | None, str]:
    """Return the step and the quote of the last verdict in a reply."""
    found: dict[str, Any] = {}
    for start in (match.start() for match in re.finditer(r'\{"reason"', said)):
        try:
            found = json.JSONDecoder().raw_decode(said, start)[0]
        except ValueError:
            continue
    step = found.get("step")
    evidence = found.get("evidence") or [{}]
    return step if type(step) is int else None, str(evidence[0].get("quote", ""))
