"""Strategies for plays: unusual agent names, retries, repaired errors, delegations, many agents, crashes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from hypothesis import strategies as st

from tests.renderings.play import (
    Act,
    Asked,
    Delegation,
    ModelCall,
    Play,
    SideBySide,
    Together,
    ToolUse,
    Transfer,
    Turn,
)

AGENTS: Final = ("Triage Agent", "analyst", "Événements", "writer-2", "研究员", "Ops (EU)")
TOOLS: Final = ("search", "get_weather", "lookup-price", "計算", "run_sql")
_WORDS: Final = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=12)
_ERRORS: Final = st.sampled_from(["HTTP 429 Too Many Requests", "Timeout after 30 s", "disk 'x' full"])


@dataclass(slots=True)
class Author:
    """Draws a play piece by piece; numbers texts and calls, so that no two are equal by chance."""

    draw: st.DrawFn
    _count: int = field(default=0)

    def number(self) -> int:
        self._count += 1
        return self._count

    def text(self, what: str) -> str:
        return f"{what} {self.number()}: {self.draw(_WORDS)}.".replace("\u2028", " ")

    def asked(self, tool: str, **arguments: object) -> Asked:
        given = json.dumps({**arguments, "n": self.number()}, ensure_ascii=False)
        return Asked(tool=tool, arguments=given, call_id=f"call_{self.number()}")

    def turn(self, agent: str, *, depth: int, others: Sequence[str]) -> Turn:
        """Draw a turn that ends with an answer."""
        acts: list[Act] = []
        for _ in range(self.draw(st.integers(0, 2))):
            acts += self.round(depth=depth, others=others)
        acts.append(ModelCall(text=self.text("answer")))
        return Turn(agent=agent, instructions=f"You are {agent}. Be brief.", acts=tuple(acts))

    def round(self, *, depth: int, others: Sequence[str]) -> list[Act]:
        """Draw a model call that requests something, and the requests."""
        kinds = ["tool", "tools", "repaired", "retried"]
        if depth and others:
            kinds += ["delegation", "delegations"]
        match self.draw(st.sampled_from(kinds)):
            case "tool":
                return self._asking(self.tool_use())
            case "tools":
                return self._asking(*[self.tool_use() for _ in range(self.draw(st.integers(2, 3)))])
            case "repaired":  # the model sees the error and asks again
                return [*self._asking(self.tool_use(self.draw(_ERRORS))), *self._asking(self.tool_use())]
            case "retried":  # the model's server fails once
                return [ModelCall(error=self.draw(_ERRORS)), *self._asking(self.tool_use())]
            case "delegation":
                return self._asking(self.delegation(depth=depth, others=others[:1]))
            case _:
                half = len(others) // 2
                shares = [share for share in (others[:half], others[half:]) if share]
                return self._asking(*[self.delegation(depth=depth, others=share) for share in shares])

    def tool_use(self, error: str = "") -> ToolUse:
        result = self.draw(st.sampled_from(["ok", "", json.dumps({"rows": [1, "ü"]}, ensure_ascii=False)]))
        return ToolUse(
            asked=self.asked(self.draw(st.sampled_from(TOOLS)), q=self.draw(_WORDS)),
            result="" if error else result or self.text("result"),
            error=error,
        )

    def delegation(self, *, depth: int, others: Sequence[str]) -> Delegation:
        agent = self.draw(st.sampled_from(others))
        rest = [each for each in others if each != agent]
        brief = self.text("brief")
        turn = self.turn(agent, depth=depth - 1, others=rest)
        return Delegation(
            asked=self.asked(f"ask_{AGENTS.index(agent)}", request=brief),
            brief=brief,
            turn=self.failing(turn) if self.draw(st.integers(0, 4)) == 0 else turn,
        )

    def failing(self, turn: Turn) -> Turn:
        """Return the turn with an error in place of its answer."""
        error = ModelCall(error=self.draw(_ERRORS))
        return Turn(agent=turn.agent, instructions=turn.instructions, acts=(*turn.acts[:-1], error))

    def _asking(self, *acts: ToolUse | Delegation) -> list[Act]:
        said = self.text("thought") if self.draw(st.booleans()) else ""
        call = ModelCall(text=said, asks=tuple(act.asked for act in acts))
        return [call, Together(acts=acts) if len(acts) > 1 else acts[0]]


def transfer_tool(agent: str) -> str:
    """Name the tool as openai-agents does: characters other than ASCII letters and digits become ``_``."""
    kept = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in agent)
    return f"transfer_to_{kept.lower()}"


@st.composite
def plays(draw: st.DrawFn) -> Play:
    """Draw a run: turns that hand over or simply follow each other, some in parallel."""
    author = Author(draw)
    task = author.text("task")
    stages: list[Turn | SideBySide] = []
    names = draw(st.permutations(AGENTS))
    speaker = names[0]
    for _ in range(draw(st.integers(0, 3))):
        match draw(st.sampled_from(["transfer", "transfer", "follow", "beside"])):
            case "transfer":
                target = draw(st.sampled_from([name for name in names if name != speaker]))
                stages.append(_handing_over(author, speaker, target, names))
                speaker = target
            case "follow":
                stages.append(author.turn(speaker, depth=1, others=[n for n in names if n != speaker]))
                speaker = draw(st.sampled_from([name for name in names if name != speaker]))
            case _:
                crowd = [name for name in names if name != speaker][: draw(st.integers(2, 3))]
                stages.append(
                    SideBySide(
                        turns=tuple(author.turn(name, depth=0, others=()) for name in crowd),
                        briefs=tuple(author.text("brief") for _ in crowd),
                    )
                )
    last = author.turn(speaker, depth=2, others=[name for name in names if name != speaker])
    stages.append(author.failing(last) if draw(st.integers(0, 3)) == 0 else last)
    reference = author.text("right") if draw(st.booleans()) else ""
    return Play(name="crew ✈", task=task, stages=tuple(stages), reference=reference)


def _handing_over(author: Author, speaker: str, target: str, names: Sequence[str]) -> Turn:
    turn = author.turn(speaker, depth=1, others=[name for name in names if name not in {speaker, target}])
    asked = author.asked(transfer_tool(target), reason="yours")
    closing: tuple[Act, ...] = (ModelCall(asks=(asked,)), Transfer(asked=asked, target=target))
    return Turn(agent=turn.agent, instructions=turn.instructions, acts=(*turn.acts[:-1], *closing))
