"""Tools of one trial: which may run, and the recorded results of those that may not. Pure.

Tools that ask the gateway get their results from the tape: those decorated with ``semconv.instrument``'s
``@tool``, and those that the workflow calls over HTTP or MCP at an address in its environment. All others
really run, so they must be declared read-only. Tools that are not known to be safe are refused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Final

from analyzer.experiment.replay.canonical import canonical_json
from analyzer.experiment.replay.tape import Answer, RecordedTool, RemoteTools, Tape
from semconv.dialects.reading.tools import is_delegation, is_plain_transfer, transfer_target
from semconv.record import record, replace

_OTHERS: Final = re.compile(r"[^a-z0-9]+")


@record
class RunTool:
    """The tool is declared read-only and may run."""


@record
class ToolRules:
    """Rules for a trial's tools, known before it begins."""

    allowed: frozenset[str] = frozenset()
    """Tools declared read-only."""
    remotes: Sequence[RemoteTools] = ()
    must_announce: bool = False
    """Whether the workflow runs in a service, whose decorated tools learn of the trial only by ``rerun``,
    which announces itself."""


class Tools:
    """The tools of one trial."""

    def __init__(self, tape: Tape, rules: ToolRules) -> None:
        """Prepare the tools; ``rules`` say which may run."""
        self._tape: Final = tape
        self._left: Final = list(tape.tools)
        self._agents: Final = _agents_of(tape)
        self._allowed: Final = rules.allowed
        self._played: Final = played_tools(tape, rules.remotes) - rules.allowed
        self._unconnected: Final = {
            each.variable: (each.tools - rules.allowed, each.place) for each in rules.remotes if each.is_mcp
        }
        """Tools of MCP servers to which the workflow has not connected through the gateway."""
        self.is_announced = not (rules.must_announce and any(tool.is_ours for tool in tape.tools))
        self.served = 0

    def connected(self, variable: str) -> None:
        """Record that the workflow connected through the gateway to the MCP server of this variable."""
        self._unconnected.pop(variable, None)

    def use(self, names: Iterable[str], wanted: str) -> RecordedTool | RunTool | None:
        """Return the recorded result of an execution, each once and in order; ``None`` if it must not run.

        Args:
            names: names under which it may have been recorded.
            wanted: its arguments, as ``canonical_json`` writes them.
        """
        among = frozenset(names)
        tools = self._like(among, lambda tool: canonical_json(tool.arguments) == wanted)
        first = next(tools, None)
        return self.run(among) if first is None else self._play(first)

    def run(self, names: Iterable[str]) -> RunTool | None:
        """Let a tool run if it is declared read-only."""
        return RunTool() if self._allowed.intersection(names) else None

    def use_over_http(
        self, names: Iterable[str], is_asked: Callable[[RecordedTool], bool]
    ) -> RecordedTool | None:
        """Return the recorded result for a request; ``None`` unless it matches exactly one tool."""
        tools = list(self._like(frozenset(names), is_asked))
        return self._play(tools[0]) if len({tool.name for tool in tools}) == 1 else None

    def missing(self) -> tuple[str, ...]:
        """Return the tools with an execution that should have been requested but was not."""
        return tuple(dict.fromkeys(tool.name for tool in self._left if self._was_due(tool)))

    def dangerous(
        self, provider_tools: Iterable[str], functions: Iterable[str], transfers: Container[str] = ()
    ) -> list[str]:
        """Return those of the tools offered to a model that would really run if a live answer called them.

        A function hands over if the trace shows that, or if it is among ``transfers`` and its name ends with
        that of an agent of the run.
        """
        away = frozenset[str]().union(*(tools for tools, _ in self._unconnected.values()))
        harmless = (self._tape.delegations | self._played | self._allowed) - away
        own = (name for name in functions if name not in transfers or not _leads_to(self._agents, name, "{}"))
        return [name for name in (*provider_tools, *own) if name not in harmless]

    def runs_elsewhere(self, answer: Answer) -> str:
        """Return why a tool that a recorded answer calls would really run; empty if it would not."""
        away = {name: place for tools, place in self._unconnected.values() for name in tools}
        called = next((call.name for call in answer.calls if call.name in away), None)
        if called is None:
            return ""
        return (
            f"the tool `{called}` would really run: the workflow did not connect to its MCP server through"
            f" the trial's {away[called]}"
        )

    def _like(
        self, names: frozenset[str], is_asked: Callable[[RecordedTool], bool]
    ) -> Iterator[RecordedTool]:
        return (tool for tool in self._left if tool.name in names and is_asked(tool))

    def _play(self, tool: RecordedTool) -> RecordedTool:
        self._left.remove(tool)
        self.served += 1
        return tool

    def _was_due(self, tool: RecordedTool) -> bool:
        """Return whether an execution should be requested: nested ones are replayed with the outer one."""
        return tool.name in self._played and not any(
            other is not tool
            and other.name in self._played
            and other.start_ns <= tool.start_ns
            and tool.end_ns <= other.end_ns
            for other in self._tape.tools
        )


def played_tools(tape: Tape, remotes: Iterable[RemoteTools] = ()) -> frozenset[str]:
    """Return the tools that get their results from the gateway."""
    ours = frozenset(tool.name for tool in tape.tools if tool.is_ours)
    return ours.union(*(remote.tools for remote in remotes))


@record
class Planned:
    """Treatment of a tool in the trials."""

    tool: str
    fate: str
    """A clause that follows the tool's name."""
    is_certain: bool = True
    """False if the tool really runs in the first trial when the workflow differs from what was declared."""


def plan(tape: Tape, rules: ToolRules) -> tuple[Planned, ...]:
    """Return the treatment of each tool that the run executed or a model called, in order of names."""
    called = (tool_call.name for call in tape.calls for tool_call in call.answer.calls)
    names = {tool.name for tool in tape.tools}.union(called, rules.allowed)
    return tuple(_planned(name, tape, rules) for name in sorted(names - tape.delegations))


def _planned(name: str, tape: Tape, rules: ToolRules) -> Planned:
    if name in rules.allowed:
        return Planned(tool=name, fate="really runs in every trial (--allow-tool)")
    remote = next((tools for tools in rules.remotes if name in tools.tools), None)
    if remote is not None and remote.is_mcp:
        return Planned(tool=name, fate=f"gets recorded results over MCP ({remote.place})")
    if remote is not None:
        fate = (
            f"gets recorded results over HTTP ({remote.place}); really runs in the first trial if the"
            " workflow takes the address from elsewhere"
        )
        return Planned(tool=name, fate=fate, is_certain=False)
    if any(tool.name == name and tool.is_ours for tool in tape.tools):
        fate = "gets recorded results by @tool; really runs in the first trial if no longer decorated"
        return Planned(tool=name, fate=fate, is_certain=False)
    return Planned(tool=name, fate="hands over to an agent")


@record
class Undeclared:
    """A tool that would really run, and what it did in the recording."""

    name: str
    span_id: str
    """Its first execution, or the first model call that asked for it."""
    arguments: str
    """Of the first time: JSON, as recorded."""
    result: str = ""
    """Of its first execution; empty if the trace shows only that a model asked for it."""
    times: int = 1
    """Executions, or a model's requests if the trace shows no execution."""


def undeclared(tape: Tape, rules: ToolRules) -> tuple[Undeclared, ...]:
    """Return all tools that would really run and are not declared read-only, in the order of their use."""
    harmless, agents = played_tools(tape, rules.remotes) | tape.delegations | rules.allowed, _agents_of(tape)
    executed = [
        Undeclared(name=tool.name, span_id=tool.span_id, arguments=tool.arguments, result=tool.result)
        for tool in tape.tools
        if tool.name not in harmless
    ]
    known = harmless.union(each.name for each in executed)
    asked = [
        Undeclared(name=each.name, span_id=call.span_id, arguments=each.arguments)
        for call in tape.calls
        for each in call.answer.calls
        if each.name not in known
        and not (is_plain_transfer(each.arguments) and _leads_to(agents, each.name, each.arguments))
    ]
    found = [*executed, *asked]
    times = Counter(each.name for each in found)
    first = {each.name: each for each in reversed(found)}
    return tuple(replace(first[name], times=number) for name, number in times.items())


def _plain(agent: str) -> str:
    """Return an agent's name as frameworks write it in a function's name."""
    return _OTHERS.sub("_", agent.lower()).strip("_")


def _agents_of(tape: Tape) -> frozenset[str]:
    return frozenset(_plain(call.agent) for call in tape.calls if call.agent)


def _leads_to(agents: frozenset[str], name: str, arguments: str) -> bool:
    """Say whether a function's name and arguments are those of a handoff to one of these agents."""
    return is_delegation(name) or _plain(transfer_target(name, arguments) or "") in agents
