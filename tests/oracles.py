"""Models that know which step is to blame, and answer questions about it: honest, lying, or obedient."""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass, field
from typing import Final

from analyzer.inquiry.method import Prompt, Reply

_PART: Final = re.compile(r"one of the steps (\d+) to (\d+)\?")


@dataclass(slots=True, kw_only=True)
class PartOracle:
    """Answers whether the decisive step is in the part that is asked about; lies at a rate."""

    step: int
    lies: float = 0.0
    fix: str = ""
    """What it says should be done instead at the step; an oracle need not say."""
    chance: random.Random = field(default_factory=lambda: random.Random(0))
    questions: int = 0

    async def __call__(self, prompt: Prompt) -> Reply:
        self.questions += 1
        asked = _PART.search(prompt.messages[-1].content.rpartition("Is the decisive error")[2])
        assert asked is not None
        says_yes = int(asked.group(1)) <= self.step <= int(asked.group(2))
        if self.chance.random() < self.lies:
            says_yes = not says_yes
        answer = {"reason": "r", "answer": "yes" if says_yes else "no"}
        proposed = {"step": self.step, "fix": self.fix} if self.fix else {}
        return Reply(text=json.dumps({**answer, **proposed}))
