"""Adds times, places in the tree and each model call's messages to a play, and gives its expected steps.

Renderers take the *scenes*, tests compare with the *lines*. A message is new to a call if its agent has
neither received nor said it before; texts are never compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

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

ORIGIN_NS: Final = 1_770_000_000_000_000_000
TICK_NS: Final = 1_000_000
"""Nanoseconds between two events; parallel branches start a few nanoseconds apart."""
TRANSFERRED: Final = "transferred"
"""The tool's result of a requested handoff."""


@dataclass(frozen=True, slots=True, eq=False)
class Spoken:
    """One message of a conversation; equal only to itself."""

    role: str
    text: str = ""
    asks: tuple[Asked, ...] = ()
    answers: str = ""
    """Id of the call whose result it is."""

    @property
    def body(self) -> str:
        calls = (f"call {each.tool}({each.arguments})" for each in self.asks)
        return "\n".join(filter(None, (self.text, *calls)))


Played: TypeAlias = Play | Turn | ModelCall | ToolUse | Delegation | Transfer


@dataclass(slots=True, kw_only=True, eq=False)
class Scene:
    """One event that becomes a span."""

    played: Played
    agent: str
    parent: Scene | None
    start_ns: int
    end_ns: int = 0
    heard: tuple[Spoken, ...] = ()
    said: Spoken | None = None
    """A model call's answer; the last words of turns and plays are in ``played``."""
    fresh: tuple[Spoken, ...] = ()
    """The part of ``heard`` that is new to the agent."""
    group: int | None = None
    brief: str = ""
    """The turn's task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """An expected step."""

    agent: str
    kind: str
    target: str | None = None
    heard: str = ""
    said: str = ""
    error: str = ""
    group: int | None = None


@dataclass(slots=True)
class _Memory:
    """Tracks which agent received and said which message."""

    heard_by: dict[str, set[Spoken]] = field(default_factory=dict)
    heard: set[Spoken] = field(default_factory=set)
    said_by: dict[str, set[Spoken]] = field(default_factory=dict)

    def fresh(self, agent: str, heard: Sequence[Spoken]) -> tuple[Spoken, ...]:
        if agent in self.heard_by:
            known = self.heard_by[agent] | self.said_by.get(agent, set())
            new = [each for each in heard if each not in known]
        else:
            new = [each for each in heard if each not in self.heard] or list(heard[-1:])
        self.heard_by[agent] = set(heard)
        self.said_by.pop(agent, None)  # set again if the call does not fail
        self.heard.update(heard)
        return tuple(new)


class Stage:
    """Stages one play: fills ``scenes``, in order of start, parents first."""

    def __init__(self, play: Play) -> None:
        self.play: Final = play
        self.scenes: list[Scene] = []
        self._memory = _Memory()
        self._groups = 0
        self._group: int | None = None
        self._clock_ns = ORIGIN_NS
        root = self._open(play, agent="", parent=None)
        shared = [Spoken("user", play.task)]
        for stage in play.stages:
            if isinstance(stage, Turn):
                self._turn(stage, root, shared)
            else:
                self._side_by_side(stage, root, shared)
        self._close(root)

    def lines(self) -> list[Line]:
        """Return the expected steps, in order."""
        found = (_line(scene) for scene in sorted(self.scenes, key=lambda each: each.start_ns))
        return [line for line in found if line is not None]

    def _tick(self) -> int:
        self._clock_ns += TICK_NS
        return self._clock_ns

    def _open(self, played: Played, *, agent: str, parent: Scene | None) -> Scene:
        start_ns = self._tick()
        scene = Scene(played=played, agent=agent, parent=parent, start_ns=start_ns, group=self._group)
        self.scenes.append(scene)
        return scene

    def _close(self, scene: Scene) -> None:
        scene.end_ns = self._tick()

    def _turn(self, turn: Turn, parent: Scene, conversation: list[Spoken], *, brief: str = "") -> None:
        """Stage a turn; its messages are added to ``conversation``."""
        scene = self._open(turn, agent=turn.agent, parent=parent)
        scene.brief = brief
        for act in turn.acts:
            self._act(act, scene, conversation)
        self._close(scene)

    def _act(self, act: Act, turn: Scene, conversation: list[Spoken]) -> None:
        match act:
            case ModelCall():
                self._model_call(act, turn, conversation)
            case Together(acts=acts):
                self._at_once([partial(self._call, each, turn) for each in acts])
                conversation += [_result(each) for each in acts]
            case ToolUse() | Delegation():
                self._call(act, turn)
                conversation.append(_result(act))
            case Transfer():
                scene = self._open(act, agent=turn.agent, parent=turn)
                conversation.append(Spoken("tool", TRANSFERRED, answers=act.asked.call_id))
                self._close(scene)

    def _model_call(self, call: ModelCall, turn: Scene, conversation: list[Spoken]) -> None:
        scene = self._open(call, agent=turn.agent, parent=turn)
        scene.heard = tuple(conversation)
        scene.fresh = self._memory.fresh(turn.agent, scene.heard)
        if not call.error:
            scene.said = Spoken("assistant", call.text, call.asks)
            self._memory.said_by[turn.agent] = {scene.said}
            conversation.append(scene.said)
        self._close(scene)

    def _call(self, act: ToolUse | Delegation, turn: Scene) -> None:
        scene = self._open(act, agent=turn.agent, parent=turn)
        if isinstance(act, Delegation):
            self._turn(act.turn, scene, [Spoken("user", act.brief)], brief=act.brief)
        self._close(scene)

    def _side_by_side(self, crowd: SideBySide, root: Scene, shared: list[Spoken]) -> None:
        self._at_once(
            [
                partial(self._turn, turn, root, [Spoken("user", brief)], brief=brief)
                for turn, brief in zip(crowd.turns, crowd.briefs, strict=True)
            ]
        )
        shared += [Spoken("user", turn.last_words) for turn in crowd.turns]

    def _at_once(self, branches: Sequence[Callable[[], None]]) -> None:
        """Stage branches that begin a nanosecond apart; the outermost such set is a group."""
        outer, start_ns, end_ns = self._group, self._clock_ns, self._clock_ns
        if outer is None:
            self._group, self._groups = self._groups, self._groups + 1
        for number, branch in enumerate(branches):
            self._clock_ns = start_ns + number
            branch()
            end_ns = max(end_ns, self._clock_ns)
        self._clock_ns, self._group = end_ns, outer


def _result(act: ToolUse | Delegation) -> Spoken:
    said = act.result if isinstance(act, Delegation) else act.error or act.result
    return Spoken("tool", said, answers=act.asked.call_id)


def _line(scene: Scene) -> Line | None:
    """Return the step of ``scene``; an agent's turn and a tool that only encloses one are no steps."""
    match scene.played:
        case ModelCall(error=error):
            return Line(
                agent=scene.agent,
                kind="llm",
                heard="\n".join(f"{each.role}: {each.body}" for each in scene.fresh),
                said=scene.said.body if scene.said else "",
                error=error,
                group=scene.group,
            )
        case ToolUse(asked=asked, result=result, error=error):
            return Line(
                agent=scene.agent,
                kind="tool",
                target=asked.tool,
                heard=asked.arguments,
                said=result,
                error=error,
                group=scene.group,
            )
        case Transfer(target=target):
            return Line(agent=scene.agent, kind="handoff", target=target, group=scene.group)
        case _:
            return None
