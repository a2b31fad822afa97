"""The same trajectories under other names: nothing that a rule could have learned by heart is left.

Every word of tools, keys, values and texts is replaced by one of an invented language, the same everywhere;
two unrelated tools are called at random places, and calls that do not need each other change their order.
"""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import Any, Final

_WORD: Final = re.compile(r"[A-Za-z]+")
_SYLLABLES: Final = ("ba", "de", "fi", "go", "ku", "la", "me", "ni", "po", "ru", "sa", "te", "vi", "xo", "zu")
_SHARES: Final = (0.35, 0.25)
"""Shares of runs that call the first and the second unrelated tool."""


class _Language:
    """Invented words, one for each word."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._words: dict[str, str] = {}
        self._taken: set[str] = set()

    def word(self, word: str) -> str:
        small = word.casefold()
        while small not in self._words:
            made = "".join(self._draw.choices(_SYLLABLES, k=max(2, (len(small) + 1) // 2)))[
                : max(3, len(small))
            ]
            if made not in self._taken:
                self._taken.add(made)
                self._words[small] = made
        found = self._words[small]
        return found.upper() if word.isupper() else found.capitalize() if word[0].isupper() else found

    def __call__(self, value: Any) -> Any:
        match value:
            case str():
                return _WORD.sub(lambda found: self.word(found[0]), value)
            case dict():
                return {self(name): self(part) for name, part in value.items()}
            case list():
                return [self(part) for part in value]
            case _:
                return value


def disguised(rows: Sequence[dict[str, Any]], seed: int) -> list[dict[str, Any]]:
    """Return trajectories under other names, with unrelated calls and another order; labels follow."""
    draw = random.Random(seed)
    language, early = _Language(draw), _early_tools(rows)
    return [_disguised(row, language, early, draw) for row in rows]


def _early_tools(rows: Sequence[dict[str, Any]]) -> set[str]:
    """Return the tools of the first half of good runs: none of them changes anything in the world."""
    places = defaultdict(list)
    for row in rows:
        if not row["label"]["faulty"]:
            for place, step in enumerate(row["steps"]):
                places[step["call"]["tool"]].append(place / len(row["steps"]))
    return {tool for tool, found in places.items() if median(found) < 0.5}


def _disguised(
    row: dict[str, Any], language: _Language, early: set[str], draw: random.Random
) -> dict[str, Any]:
    steps = [dict(step, place=place) for place, step in enumerate(row["steps"])]
    fault = row["label"].get("failure_step")
    for at in range(len(steps) - 1):
        first, second = steps[at], steps[at + 1]
        if fault in {first["place"], second["place"]}:
            continue
        tools = {first["call"]["tool"], second["call"]["tool"]}
        if (
            len(tools) == 2
            and tools <= early
            and draw.random() < 0.5
            and not _needs(second, first, row["goal"])
        ):
            steps[at], steps[at + 1] = second, first
    steps = [_renamed(step, language) for step in steps]
    for share, (tool, key, result) in zip(_SHARES, _unrelated(language), strict=True):
        if draw.random() < share:
            call = {"tool": tool, "args": {key: language.word(draw.choice("abcdefghijk") * 4)}}
            data = {result: draw.randint(1, 999), language.word("found"): draw.random() < 0.5}
            place, seen = draw.randint(0, len(steps)), {"ok": True, "data": data}
            beside = {"agent": steps[max(0, place - 1)].get("agent", "agent")} if steps else {}
            steps.insert(place, {"thought": "", "call": call, "observation": seen, "place": -1} | beside)
    places = [step["place"] for step in steps]
    moved = places.index(fault) if fault in places else len(steps)
    return row | {
        "trajectory_id": f"{row['trajectory_id']}-disguised",
        "goal": language(row["goal"]),
        "steps": steps,
        "final_answer": language(row["final_answer"]),
        "label": row["label"] | {"failure_step": moved if row["label"]["faulty"] else None},
    }


def _needs(later: dict[str, Any], earlier: dict[str, Any], goal: str) -> bool:
    returned = json.dumps(earlier["observation"].get("data") or {})
    return any(str(value) in returned and str(value) not in goal for value in later["call"]["args"].values())


def _renamed(step: dict[str, Any], language: _Language) -> dict[str, Any]:
    seen = step["observation"]
    return step | {
        "thought": language(step["thought"] or ""),
        "call": {"tool": language(step["call"]["tool"]), "args": language(step["call"]["args"])},
        "observation": seen | {"data": language(seen.get("data")), "error": language(seen.get("error"))},
    }


def _unrelated(language: _Language) -> list[tuple[str, str, str]]:
    return [
        (language("weather_report"), language("place"), language("degrees")),
        (language("calendar_search"), language("query"), language("hits")),
    ]
