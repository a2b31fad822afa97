"""Speakers: which agent a span of an unknown dialect belongs to.

Sources in order of precedence: a key that names an agent, on the span itself or around it; the name of a span
that states it is an agent; the name of the span around the calls that share a system prompt; the prompt's own
words; last a number of ours, marked as such.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from semconv.dialects.generic.clues import Clues, words_of
from semconv.dialects.reading.action import ActionKind, Key, Surroundings, key_of
from semconv.dialects.reading.agent_names import (
    NAMELESS_GRAPHS,
    NO_AGENT,
    PLUMBING_NODES,
    Found,
    named_in_prompt,
)
from semconv.dialects.reading.messages import system_text
from semconv.dialects.reading.values import mapping
from semconv.model import AgentSource, Span

_VERBS: Final = "invoke|execute|run|running|call|calling|start"
_METHODS: Final = (
    "a?run|a?invoke|execute|kickoff|agent|tool|task|workflow|handoff|forward|__call__|a?call|query"
    "|generate_reply|a?generate|a?chat|step|start|handle|process"
)
_AFFIXES: Final = re.compile(
    rf"^(?:(?:{_VERBS})[ _:.-]+)?(?:(?:agent|tool|task|node|function)(?: run)?[ :.]+)?"
    rf"(?P<name>.+?)(?:[ ._](?:{_METHODS}))*$",
    re.IGNORECASE,
)
_LONGEST_NAME: Final = 200
_QUOTES: Final = "'\"`\u2018\u2019\u201c\u201d\u00ab\u00bb"
_GENERIC: Final = frozenset(
    {"agent", "agents", "run", "runner", "invoke", "call", "execute", "step", "turn", "chain"}
    | {"node", "workflow"}
    | {"task", "session", "trace", "root", "main", "request", "post", "get", "http", "api", "loop"}
    | {"cycle", "event"}
    | {"chat", "completion", "completions", "llm", "model", "generate", "tool", "tools", "react"}
    | {"graph", "process"}
    | {"openai", "anthropic", "response", "responses", "stream", "function", "inference", "handler"}
    | {"span", "id"}
)
_MOST_ABOVE: Final = 64
_DELEGATES: Final = frozenset({"agent", "subagent", "coworker", "member", "assistant", "worker"})
_CALLED: Final = frozenset({ActionKind.TOOL, ActionKind.LLM})
_SPEAKING: Final = frozenset({ActionKind.AGENT, ActionKind.LLM, ActionKind.TOOL})


def bare_name(name: str) -> str:
    """Return a span's name without the affixes that instrumentations add: ``invoke_agent X``, ``X.run``.

    A name that is too long to be one is returned as it is: the search for affixes is not linear.
    """
    if len(name) > _LONGEST_NAME:
        return name
    found = _AFFIXES.match(name.strip().strip(_QUOTES))
    return (found["name"] if found else name).strip(f"{_QUOTES}[]")


def _is_a_name(name: str) -> bool:
    parts = words_of(name)
    is_part = name in PLUMBING_NODES or name in NAMELESS_GRAPHS or "{" in name
    return bool(parts) and not is_part and not all(word in _GENERIC or word.isdecimal() for word in parts)


class Speakers:
    """The agents of a run that no dialect reads."""

    def __init__(
        self, surroundings: Surroundings, clues: Sequence[Clues], kinds: Sequence[ActionKind | None]
    ) -> None:
        self._surroundings: Final = surroundings
        self._clues: Final = clues
        self._kinds: Final = kinds
        self._parents: Final = surroundings.parents
        self._own: Final = [self._stated(position) for position in range(len(clues))]
        self._known: Final[dict[Key, str]] = {}
        self._is_by_prompt = False
        self._drop_placeholders()
        self._name_delegates()
        self._name_the_others()

    def agent(self, position: int) -> Found:
        """Return the agent that a span names; those below it inherit the name."""
        return self._own[position]

    def is_known(self, span: Span) -> bool:
        """Whether some span names the agent that made this call."""
        return key_of(span) in self._known

    def described(self) -> str:
        """Return the way in which agents were distinguished, as text."""
        sources = {found.source for found in self._own if found.name}
        if self._is_by_prompt:
            return "agents distinguished by their prompts"
        if AgentSource.SPAN in sources:
            return "agents named by attributes"
        return "agents named by spans" if sources else "no agent named"

    def _drop_placeholders(self) -> None:
        """Drop names that only calls have, if agents' spans have names.

        The name of an executor, which runs the tools of all agents, is dropped too.
        """
        bearers = {
            found.name
            for found, kind in zip(self._own, self._kinds, strict=True)
            if found.name and kind is ActionKind.AGENT
        }
        runners = {
            found.name
            for found, kind, clues in zip(self._own, self._kinds, self._clues, strict=True)
            if kind is ActionKind.AGENT
            and clues.output_messages
            and all(message.role == "tool" for message in clues.output_messages)
        }
        for position, found in enumerate(self._own):
            is_mark = (
                self._kinds[position] is ActionKind.HANDOFF and self._clues[position].kind is ActionKind.AGENT
            )
            is_other = bool(bearers) and found.name not in bearers and not is_mark
            if found.name and (is_other or found.name in runners):
                self._own[position] = NO_AGENT

    def _name_delegates(self) -> None:
        """Name the spans below a tool after the agent in its arguments: ``subagent_type``, ``coworker``."""
        for position, kind in enumerate(self._kinds):
            above = self._parents[position]
            if kind not in _SPEAKING or above < 0 or self._kinds[above] is not ActionKind.TOOL:
                continue
            named = _delegate_in(mapping(self._clues[above].given))
            if named is not None and self._own[position].source is not AgentSource.SPAN:
                self._own[position] = Found(named, AgentSource.METADATA)

    def _stated(self, position: int) -> Found:
        clues, kind = self._clues[position], self._kinds[position]
        named = next((name for name, _ in clues.agents if _is_a_name(name)), None)
        if named is not None:
            return Found(named, AgentSource.SPAN)
        if kind is ActionKind.LLM and clues.speaker:
            return Found(clues.speaker, AgentSource.METADATA)
        if kind is not ActionKind.AGENT:
            return NO_AGENT
        name = next(filter(_is_a_name, (*clues.names, bare_name(clues.span.name))), None)
        return Found(name, AgentSource.SPAN_NAME) if name else NO_AGENT

    def _name_the_others(self) -> None:
        """Name the remaining calls after the spans around them, else by their prompts."""
        nameless: list[int] = []
        inherited: list[str | None] = []
        for position, found in enumerate(self._own):
            above = self._parents[position]
            inherited.append(found.name or (inherited[above] if above >= 0 else None))
            if self._kinds[position] is ActionKind.LLM:
                name = inherited[-1]
                if name is None:
                    nameless.append(position)
                else:
                    self._known[key_of(self._clues[position].span)] = name
        if not nameless:
            return
        around = branches({position: self._chain(position) for position in nameless}, self._prompt)
        distinct = dict.fromkeys(filter(None, map(self._prompt, nameless)))
        prompts = {prompt: number for number, prompt in enumerate(distinct, start=1)}
        for position in nameless:
            name = around.get(position) or self._by_prompt(self._prompt(position), prompts)
            if name is not None:
                self._own[position] = Found(name, AgentSource.SPAN_NAME)
                self._known[key_of(self._clues[position].span)] = name

    def _by_prompt(self, prompt: str, prompts: Mapping[str, int]) -> str | None:
        if not prompt:
            return None
        self._is_by_prompt = True
        named = named_in_prompt(prompt)
        return (named if named not in _GENERIC else "") or (
            f"agent {prompts[prompt]}" if len(prompts) > 1 else None
        )

    def _prompt(self, position: int) -> str:
        clues = self._clues[position]
        return clues.instructions or system_text(clues.input_messages)

    def _chain(self, position: int) -> tuple[str, ...]:
        """Return the names of the spans around a call, from the outermost on."""
        names: list[str] = []
        above = self._parents[position]
        for _ in range(_MOST_ABOVE):
            if above < 0:
                break
            name = bare_name(self._clues[above].span.name)
            is_repeated = bool(names) and names[-1] == name  # a node and its graph
            if self._kinds[above] not in _CALLED and not is_repeated and _is_a_name(name):
                names.append(name)
            above = self._parents[above]
        return tuple(reversed(names))


def _delegate_in(given: Mapping[str, object]) -> str | None:
    """Return the agent that a tool's arguments name."""
    for key, value in given.items():
        if isinstance(value, str) and 0 < len(value) <= _MOST_ABOVE and _DELEGATES & {*words_of(str(key))}:
            return value
    return None


def branches(chains: Mapping[int, tuple[str, ...]], prompt_of: Callable[[int], str]) -> Mapping[int, str]:
    """Return, for each call, the name of the enclosing span that distinguishes it from other agents' calls.

    Below the spans that enclose all calls, names differ by agent: researcher, analyst. A name that occurs
    below several of these is a library's class. Further down, names count only if the prompts differ too.
    """
    around: defaultdict[str, set[str]] = defaultdict(set)
    for chain in chains.values():
        for outer, inner in zip(("", *chain), chain, strict=False):
            around[inner].add(outer)
    own = {at: tuple(name for name in chain if len(around[name]) == 1) for at, chain in chains.items()}
    found: dict[int, str] = {}
    _divide(own, 0, prompt_of, found)
    return found


def _divide(
    chains: Mapping[int, tuple[str, ...]], depth: int, prompt_of: Callable[[int], str], found: dict[int, str]
) -> None:
    while True:
        heads = {chain[depth] if len(chain) > depth else None for chain in chains.values()}
        if len(heads) != 1 or None in heads or depth > _MOST_ABOVE:
            break
        depth += 1
    groups: defaultdict[str | None, dict[int, tuple[str, ...]]] = defaultdict(dict)
    for at, chain in chains.items():
        groups[chain[depth] if len(chain) > depth else None][at] = chain
    for head, group in groups.items():
        for at, chain in group.items():
            name = head or (chain[depth - 1] if depth else None)
            if name is not None and (head is not None or depth > 1 or len(groups) > 1):
                found[at] = name
        inner = {chain[depth + 1] if len(chain) > depth + 1 else None for chain in group.values()}
        prompts = {prompt_of(at) for at in group}
        if head is not None and None not in inner and 1 < len(inner) <= len(prompts):
            _divide(group, depth + 1, prompt_of, found)
