"""The author of made-up runs: names, goods and numbers from a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any, Final

from benchmarks.accuracy.suspicion.story import Story

CITIES: Final = ("Lyon", "Porto", "Graz", "Turku", "Ghent", "Bergen", "Kraków", "Leeds", "Osaka", "Quito")
GOODS: Final = (
    "laptop",
    "router",
    "monitor",
    "desk lamp",
    "headset",
    "projector",
    "scanner",
    "tablet",
    "webcam",
)


PEOPLE: Final = ("Ines Prado", "Tom Okafor", "Mei Tanaka", "Jan de Vries", "Aisha Khan", "Luca Bianchi")
AGENTS: Final = (
    ("researcher", "analyst", "writer"),
    ("planner", "worker", "reviewer"),
    ("Lookup Agent", "Calculator", "Reporter"),
    ("triage", "specialist", "closer"),
    ("data_agent", "finance_agent", "summary_agent"),
)


def money(value: float) -> str:
    return f"{value:,.2f}"


class Author:
    """Draws the parts of a story."""

    def __init__(self, seed: int) -> None:
        self.chance: Final = random.Random(seed)
        self.agents: Final = self.chance.choice(AGENTS)

    def some(self, values: Sequence[Any], least: int, most: int) -> list[Any]:
        return self.chance.sample(list(values), self.chance.randint(least, most))

    def maybe(self, share: float) -> bool:
        return self.chance.random() < share

    def fetch(self, story: Story, agent: str, tool: str, arguments: dict[str, Any], result: Any) -> None:
        """Call a tool; sometimes it fails first, or an irrelevant tool fails."""
        fate = self.chance.random()
        if fate < 0.08:
            story.fail(
                agent, tool, arguments, self.chance.choice(["HTTP 429 Too Many Requests", "TimeoutError"])
            )
        elif fate < 0.12:
            story.call(agent, "cache_get", {"key": json.dumps(arguments)[:40]}, "not found")
        elif fate < 0.14:
            story.fail(agent, "log_metric", {"name": tool}, "ConnectionError: metrics endpoint refused")
        story.call(agent, tool, arguments, result, is_key=True)
        if self.maybe(0.05):
            story.call(agent, tool, arguments, result)  # looks it up again

    def aside(self) -> str:
        """Return a remark with a number that no tool gave, or an empty string."""
        if self.maybe(0.72):
            return ""
        return self.chance.choice(
            [
                " I am 90 % confident in this.",
                " I would add a buffer of 15 % to be safe.",
                " A year has 365 days and a working week 40 hours.",
                " You may want to check again in 30 days.",
                " Consider a timeout of 45 seconds.",
                " Note that 1 kW is 1,000 W.",
                " The standard VAT rate in Germany is 19 %, not included here.",
                " For reference, water boils at 100 °C at sea level.",
                " Call 112 in an emergency.",
                " This took 4 tool calls.",
                " Let me know if you need more than these.",
                " See https://docs.python.org/3/library/statistics.html for the method.",
            ]
        )
