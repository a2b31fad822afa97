"""Names agents after the functions around their calls, if no attribute names them.

Users trace functions by hand (``logfire.instrument``, ``@observe``, ``openlit.trace``, a tracer's spans), and
an instrumentation of the model's SDK writes the calls below.

A nameless call belongs to one of the functions around it. Instructions tell which one: a function is an agent
if all of its calls have the same instructions and no other function's calls have them; an orchestrator's
calls have several. Without instructions, the agent is the innermost function. Helpers that all calls of
several functions go through (``ask_model``) are not agents, nor is the run's own function, unless it calls a
model itself.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, pairwise, starmap
from typing import Final, TypeAlias

from collector_processor.trajectory.acts import AGENT, LLM, Act, Ordering
from semconv.dialects import Action
from semconv.dialects.reading.agent_names import (
    is_agents_own,
    named_in_prompt,
    names_an_agent,
    titled_in_prompt,
)
from semconv.model import AgentSource, Span
from semconv.record import replace

_CLASS: Final = re.compile(r"(?:[A-Z][A-Za-z0-9]*)?Agent")
"""What may be a framework's class of agents, or its author's name for one."""
_OF_FRAMEWORKS: Final = frozenset(
    {"Agent", "ReActAgent", "ReactAgent", "FunctionAgent", "ToolCallingAgent", "CodeAgent", "AssistantAgent"}
    | {"RequirementAgent", "ConversableAgent", "ChatAgent", "LlmAgent", "LLMAgent", "OpenAIAgent"}
    | {"FunctionCallingAgent", "ToolLoopAgent", "ChatCompletionAgent", "ChatClientAgent", "BedrockAgent"}
)
_WORD: Final = re.compile(r"\w+")
_SEVERAL: Final = 2
_Path: TypeAlias = tuple[str, ...]
"""Names of the functions around a span, the innermost first."""

_INTERNAL: Final = (0, 1)
_OPENLIT: Final = "openlit"
"""Scope of ``openlit.trace``, which marks functions as clients."""
_LIBRARIES: Final = (
    "opentelemetry.instrumentation.",
    "@opentelemetry/",
    "io.opentelemetry.",
    "go.opentelemetry.io/",
)
"""Scopes of instrumentations: an unread span of theirs is a library's work, not the user's function."""
_CALLING: Final = "Calling "
"""Begins the name that ``logfire.instrument`` gives: ``Calling module.function``."""
_LOCALS: Final = "<locals>"
_NAME: Final = re.compile(r"^[^\W\d][\w .:()-]{0,79}$")
_AGENT_WORD: Final = re.compile(r"agent|assistant|specialist|expert", re.IGNORECASE)
_BY_FUNCTION: Final = frozenset({AgentSource.SPAN_NAME, AgentSource.UNKNOWN})
_DEEPEST: Final = 64
"""Bound on the functions examined around a call."""
_INSTRUCTIONS: Final = 160
"""Characters of instructions that are compared: parts that vary from call to call tend to come later."""


def function_name(name: str) -> str:
    """Return a function's own name: ``Calling office.Purser.run`` is ``Purser``.

    Empty for a name that is not a function's (a route, a template) or is too general (``run``).
    """
    name = name.removeprefix(_CALLING)
    if _LOCALS in name:
        name = name.rpartition(f"{_LOCALS}.")[2]
    if not _NAME.match(name):
        return ""
    parts = [name] if " " in name else name.split(".")
    return next((part for part in reversed(parts) if part and names_an_agent(part)), "")


def name_by_function(ordering: Ordering) -> Ordering:
    """Name calls without an agent after the functions around them."""
    nameless = [act for act in ordering.acts if act.agent is None and not act.action.pseudo_agent]
    if not nameless or any(act.action.kind is AGENT and act.agent for act in ordering.acts):
        return ordering  # where spans name agents, functions are only the way to them
    paths = _paths(ordering)
    around = [(act, path) for act in nameless if (path := paths.get(act.position))]
    if not around:
        return ordering
    chosen = _Functions([(act, path) for act, path in around if act.action.kind is LLM])
    named = [(act, chosen.agent_of(act, path)) for act, path in around]
    return ordering.with_acts(
        replace(act, agent=name, agent_source=AgentSource.SPAN_NAME) for act, name in named if name
    )


def name_by_prompt(ordering: Ordering) -> Ordering:
    """Name calls after the agents in their prompts, where several agents share one function or have none.

    ``You are the registrar …``: a program that traces nothing but the model's SDK has no other names.
    """
    unsaid = [act for act in ordering.acts if act.action.agent is None and act.agent_source in _BY_FUNCTION]
    several: defaultdict[str | None, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for act in unsaid:
        if act.action.kind is LLM:
            several[act.agent][named_in_prompt(act.action.instructions)].add(_instructions_of(act))
    shared = {
        name for name, prompts in several.items() if len(prompts) > 1 and all(map(_is_one, prompts.items()))
    }
    if not shared or any(act.action.kind is AGENT and act.agent for act in ordering.acts):
        return ordering
    named = [
        (act, named_in_prompt(act.action.instructions) if act.action.kind is LLM else None)
        for act in unsaid
        if act.agent in shared
    ]
    return ordering.with_acts(  # tools lose the function's name: they belong to the call that requests them
        replace(act, agent=name, agent_source=AgentSource.METADATA if name else AgentSource.UNKNOWN)
        for act, name in named
    )


def name_behind_tools(ordering: Ordering) -> Ordering:
    """Name agents after their prompts if their only name is that of the tool that runs them."""
    wrapped = {act.agent for act in ordering.acts if act.action.is_named_by_tool}
    if not wrapped:
        return ordering
    told: defaultdict[str | None, set[str]] = defaultdict(set)
    for act in ordering.acts:
        if act.agent in wrapped and act.action.kind is LLM:
            told[act.agent].add(titled_in_prompt(act.action.instructions))
    names = {tool: name for tool, (name, *others) in told.items() if name and not others}
    return ordering.with_acts(
        replace(act, agent=names[act.agent], agent_source=AgentSource.METADATA)
        for act in ordering.acts
        if act.agent in names
    )


def name_behind_classes(ordering: Ordering) -> Ordering:
    """Tell agents apart by their prompts if several share a class's name, as two of BeeAI's do.

    A framework calls an agent after its class if its author gave no name. Prompts with different titles are
    then different agents'. Prompts without titles may be one agent's, so they are told apart only under a
    name that is certainly a framework's, and if they have few words in common: ``ReActAgent 1``. Prompts that
    smolagents writes once for an agent, from its tools and instructions, are compared whole.
    """
    calls = [act for act in ordering.acts if act.action.kind is LLM and _CLASS.fullmatch(act.agent or "")]
    told: defaultdict[str, dict[str, dict[str, None]]] = defaultdict(lambda: defaultdict(dict))
    marks: defaultdict[tuple[str | None, int], set[str]] = defaultdict(set)
    for act in calls:
        prompt = act.action.instructions
        title = titled_in_prompt(prompt)
        if not is_agents_own(prompt):
            prompt = prompt[:_INSTRUCTIONS]
        told[act.agent or ""][title][prompt] = None
        marks[act.agent, _run_of(act, ordering)].add(title or prompt)
    names = {cls: _names_in_class(cls, prompts) for cls, prompts in told.items()}
    named: list[Act] = []
    for act in ordering.acts:
        within = act.position if act.action.kind is AGENT else _run_of(act, ordering)
        mark, *others = marks.get((act.agent, within), {""})
        name = names.get(act.agent or "", {}).get(mark)
        if name and not others:
            named.append(replace(act, agent=name, agent_source=AgentSource.METADATA))
    return ordering.with_acts(named) if named else ordering


def _run_of(act: Act, ordering: Ordering) -> int:
    """Return the position of the agent's span around an act; of any span, if no dialect knows an agent's."""
    return ordering.parents[act.position] if act.runner is None else ordering.acts[act.runner].position


def _names_in_class(cls: str, prompts: Mapping[str, Mapping[str, None]]) -> Mapping[str, str]:
    """Return the agents of a class by their titles, or by their prompts; empty if it may be one agent."""
    untitled = [prompt for prompt in prompts.get("", ()) if prompt]
    titled = {title: title for title in prompts if title}
    is_clear = all(len(prompts[title]) == 1 for title in titled)
    if not is_clear or len(titled) + len(untitled) < _SEVERAL:
        return {}
    if "" in prompts and (cls not in _OF_FRAMEWORKS or any(starmap(_are_alike, combinations(untitled, 2)))):
        return {}
    numbered = {prompt: f"{cls} {number}" for number, prompt in enumerate(untitled, start=1)}
    return titled | (numbered if len(untitled) > 1 else {})


def _are_alike(one: str, other: str) -> bool:
    """Say whether at least half of the shorter prompt's words are in the other: a template, filled twice."""
    if is_agents_own(one) and is_agents_own(other):
        return False
    first, second = ({*_WORD.findall(text.lower())} for text in (one, other))
    return 2 * len(first & second) >= min(len(first), len(second))


def _is_one(named: tuple[str, set[str]]) -> bool:
    """Say whether exactly one prompt was found with the name."""
    name, prompts = named
    return bool(name) and len(prompts) == 1


def _paths(ordering: Ordering) -> Mapping[int, _Path]:
    """Return the functions around each span that has any; those inside an agent are parts of it."""
    paths: dict[int, _Path] = {}
    inside: set[int] = set()
    for position, action in enumerate(ordering.actions):
        parent = ordering.parents[position]
        path = paths.get(parent, ())
        if parent in inside or (action is not None and action.kind is AGENT):
            inside.add(position)
        elif name := _function(ordering.spans[position], action):
            path = (name, *path[: _DEEPEST - 1])
        if path:
            paths[position] = path
    return paths


def _function(span: Span, action: Action | None) -> str:
    if action is not None:
        return function_name(action.function) if action.function else ""
    is_users = span.kind in _INTERNAL and not span.scope.name.startswith(_LIBRARIES)
    return function_name(span.name) if is_users or span.scope.name == _OPENLIT else ""


class _Functions:
    """The functions around a run's model calls, and which of them are agents."""

    def __init__(self, calls: Sequence[tuple[Act, _Path]]) -> None:
        paths = [path for _, path in calls]
        self._own = frozenset(path[0] for path in paths)
        """Functions that call a model with no other function between, helpers included."""
        helpers = _helpers(paths)
        self._instructions: defaultdict[str, set[str]] = defaultdict(set)
        self._calls: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._total: defaultdict[str, int] = defaultdict(int)
        self._helpers = helpers
        for act, path in calls:
            instructions = _instructions_of(act)
            self._total[instructions] += 1
            for name in dict.fromkeys(path):
                self._instructions[name].add(instructions)
                self._calls[name, instructions] += 1
        self._agents = {self._choose(_instructions_of(act), self._candidates(path)) for act, path in calls}

    def agent_of(self, act: Act, path: _Path) -> str | None:
        """Return the function that is the agent of ``act``, whose functions are ``path``."""
        candidates = self._candidates(path)
        if act.action.kind is LLM:
            return self._choose(_instructions_of(act), candidates)
        known = (name for name in candidates if name in self._agents)
        return next(known, candidates[0] if len(path) > 1 and candidates else None)

    def _candidates(self, path: _Path) -> Sequence[str]:
        """Return the functions that may be the agent: the run's own only if no other is left."""
        found = [name for name in path if name not in self._helpers]
        below = found[:-1] if found and found[-1] == path[-1] else found
        return below or found[-1:]

    def _choose(self, instructions: str, candidates: Sequence[str]) -> str | None:
        if not candidates:
            return None
        if instructions and len(self._total) > 1:
            own = [name for name in candidates if self._instructions[name] == {instructions}]
            whole = [name for name in own if self._calls[name, instructions] == self._total[instructions]]
            if own:
                return (whole or own)[0]
        return next(filter(_AGENT_WORD.search, candidates), candidates[0])


def _instructions_of(act: Act) -> str:
    return act.action.instructions[:_INSTRUCTIONS]


def _helpers(paths: Sequence[_Path]) -> frozenset[str]:
    """Return the functions that all calls of several others go through."""
    through: defaultdict[str, set[str]] = defaultdict(set)
    inner: defaultdict[str, set[str]] = defaultdict(set)
    for path in paths:
        for name, caller in _pairs(path):
            through[name].add(caller)
            inner[caller].add(name)
        inner[path[0]].add("")
    return frozenset(
        name
        for name, callers in through.items()
        if len(callers) > 1 and all(inner[caller] == {name} for caller in callers)
    )


def _pairs(path: _Path) -> Iterator[tuple[str, str]]:
    return ((name, caller) for name, caller in pairwise(path) if name != caller)
