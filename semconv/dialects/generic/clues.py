"""Clues: facts found in a span of an unknown dialect, whatever its attributes are called.

A key is split into words: ``genkit:metadata:subtype``, ``agentName`` and ``gen_ai.usage.input_tokens`` name
their content, whatever their namespace. Values are better evidence than keys: JSON in the shape of messages,
pairs of token counts, one word of a short list. Span events and log records count as attributes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, TypeAlias

from semconv.dialects.generic.shapes import conversation, nested
from semconv.dialects.reading.action import ActionKind, Message
from semconv.dialects.reading.values import EXCEPTION_EVENT, structured, words
from semconv.model import Span, ToolCall
from semconv.record import replace

Path: TypeAlias = tuple[str, ...]

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_MOST_KEYS: Final = 4096
"""Attribute names remembered as words; a deployment sees some hundred."""
_MOST_FIELDS: Final = 512
"""Most fields read of one span; instrumentations write fewer."""
_DEEPEST: Final = 3
_LONGEST_NAME: Final = 80
_LEAST_CLEAR: Final = 2

_IN: Final = frozenset(
    {"input", "inputs", "prompt", "prompts", "request", "query", "arguments", "args", "params"}
)
_OUT: Final = frozenset(
    {"output", "outputs", "completion", "completions", "response", "result", "results", "choice", "choices"}
    | {"generation", "generations", "answer", "return", "final"}
)
_CONTENT: Final = (
    _IN | _OUT | {"message", "messages", "content", "history", "schema", "body", "tools", "definitions"}
)
"""Words of keys whose values are agents' own texts, not facts stated by the instrumentation."""
_LONGEST_COUNT: Final = 12
_TOKENS: Final = frozenset({"token", "tokens", "usage"})
_TOKENS_IN: Final = frozenset({"input", "prompt"})
_TOKENS_OUT: Final = frozenset({"output", "completion", "candidates"})
_NOT_TEXT: Final = frozenset(
    {"type", "format", "mime", "schema", "id", "count", "length", "tokens", "mode", "hash", "model"}
    | {"name", "reason"}
    | {"reasons", "temperature", "seed", "p", "k", "penalty", "role", "size", "status", "level", "time"}
)
_KINDS: Final[Mapping[str, ActionKind]] = {
    **dict.fromkeys(("llm", "chat", "generation", "completion", "completions", "responses"), ActionKind.LLM),
    **dict.fromkeys(("inference", "model", "generate"), ActionKind.LLM),
    **dict.fromkeys(("tool", "function", "toolcall", "retriever", "retrieval"), ActionKind.TOOL),
    **dict.fromkeys(("agent", "subagent"), ActionKind.AGENT),
    **dict.fromkeys(("handoff",), ActionKind.HANDOFF),
    **dict.fromkeys(("workflow", "crew", "swarm", "graph", "conversation"), ActionKind.WORKFLOW),
    **dict.fromkeys(("chain", "task", "step", "turn", "cycle", "flow", "usage"), ActionKind.CONTAINER),
    **dict.fromkeys(("embedding", "embeddings", "prompt", "util", "interaction"), ActionKind.CONTAINER),
    **dict.fromkeys(("guardrail",), ActionKind.GUARDRAIL),
    **dict.fromkeys(("evaluator", "evaluation"), ActionKind.EVALUATION),
}
_MEANINGS: Final = (
    ActionKind.HANDOFF,
    ActionKind.TOOL,
    ActionKind.GUARDRAIL,
    ActionKind.EVALUATION,
    ActionKind.AGENT,
    ActionKind.WORKFLOW,
    ActionKind.CONTAINER,
    ActionKind.LLM,
)
"""Precedence of kinds if a value names several: ``tool_call`` is a tool, ``llm_request`` a model call."""
_OTHERS: Final = frozenset({"executor", "edge", "message", "event", "payload", "mime", "standard"})
"""Words of values that are a program's own classes."""
_CREATION: Final = frozenset({"create", "build", "init", "setup"})
_OF_OTHERS: Final = frozenset(
    {"parent", "sender", "recipient", "from", "source", "model", "provider", "workflow", "response", "schema"}
    | {"service", "sdk", "telemetry", "host", "server", "process", "k8s", "deployment", "user", "db"}
    | {"http", "url"}
    | {"last", "previous", "next"}
)
"""Words of keys that name something other than the span's own agent or tool."""
_MESSAGE_KEYS: Final = frozenset({"role", "content", "parts", "text", "function", "arguments"})
"""Keys of messages, their parts and tool calls: typed too, but no things with names."""
_KIND_KEYS: Final = frozenset({"kind", "type", "subtype", "operation", "op"})
_ROLE_EVENTS: Final[Mapping[str, str]] = {
    **{role: role for role in ("system", "user", "assistant", "tool")},
    "choice": "assistant",
}


@dataclass(slots=True)
class Clues:
    """Facts found in one span."""

    span: Span
    kinds: list[tuple[ActionKind, str]] = field(default_factory=list)
    """Kinds stated by values, each with its attribute."""
    tokens_in: int = 0
    tokens_out: int = 0
    model: str = ""
    input_messages: tuple[Message, ...] = ()
    output_messages: tuple[Message, ...] = ()
    history: tuple[Message, ...] = ()
    """A conversation under a key of the output that holds more than an answer."""
    state: Any = None
    """The value that holds it: the output, if there is no other."""
    given: Any = None
    """The input as found, for spans that are not model calls."""
    got: Any = None
    agents: list[tuple[str, str]] = field(default_factory=list)
    """Names under keys that mention an agent, with the keys' words, the clearest first."""
    speaker: str = ""
    """The agent's name in a model call's output; in other spans' outputs it may come from a tool's result."""
    tools: list[str] = field(default_factory=list)
    """Names under keys that mention a tool."""
    requested: list[str] = field(default_factory=list)
    """Names of tools that a model call asked for, where its messages may not say so."""
    names: list[str] = field(default_factory=list)
    """Names under other keys."""
    ids: set[str] = field(default_factory=set)
    """Values that may be a tool call's id."""
    target: str = ""
    """The target of a handoff, by its key."""
    instructions: str = ""
    sources: dict[str, str] = field(default_factory=dict)
    """Attribute by the field of a mapping that it fills; ``kind`` is one of them."""
    used: set[str] = field(default_factory=set)
    """Attributes that were used."""

    def found(self, name: str, source: str) -> None:
        """Note that a field was read from an attribute, the first one that has it."""
        self.sources.setdefault(name, source)
        self.used.add(source)

    @property
    def has_tokens(self) -> bool:
        """Whether it counts a model's tokens, in and out."""
        return self.tokens_in > 0 and self.tokens_out >= 0 and self.tokens_in + self.tokens_out > 0

    @property
    def kind(self) -> ActionKind | None:
        """The kind stated by the clearest value."""
        return self.kinds[0][0] if self.kinds else None


@lru_cache(maxsize=_MOST_KEYS)
def words_of(key: str) -> Path:
    """Return a key's or a name's words in lower case, numbers among them."""
    return tuple(word.lower() for word in _WORD.findall(key[:200]))


def clues_of(span: Span) -> Clues:
    """Return the clues in ``span``."""
    clues = Clues(span)
    flat: dict[str, dict[tuple[str, ...], Any]] = {}
    for source, key, value in _fields(span):
        head, rest = _indexed(key)
        if rest:
            flat.setdefault(head, {})[rest] = value
            clues.used.add(source)
        else:
            _look_at(clues, source, words_of(key), structured(value), 0)
    for head, pieces in flat.items():
        listed = nested(pieces)
        if _are_entities(listed):
            _read_entities(clues, head, listed)
        else:
            _look_at(clues, head, words_of(head), listed, 0)
    _read_events(clues)
    clues.kinds.sort(key=lambda found: _clearness(found[1]))
    _split_history(clues)
    clues.got = clues.state if clues.got is None else clues.got
    _add_requests(clues)
    if clues.kinds:
        clues.sources["kind"] = clues.kinds[0][1]
    clues.sources = {name: key for name, key in clues.sources.items() if key in span.attributes}
    clues.agents.sort(key=lambda found: _nameness(words_of(found[1])))
    return clues


def _fields(span: Span) -> Iterator[tuple[str, str, Any]]:
    """Yield each attribute, and those of events and log records: as attribute, key, value."""
    left = _MOST_FIELDS
    for key, value in span.attributes.items():
        yield key, key, value
        if (left := left - 1) < 0:
            return
    for event in (*span.events, *span.logs):
        if event.name == EXCEPTION_EVENT or _speaker(event.name):
            continue
        for key, value in event.attributes.items():
            yield f"{event.name} {key}", key, value
            if (left := left - 1) < 0:
                return


def _indexed(key: str) -> tuple[str, tuple[str, ...]]:
    """Split ``llm.input_messages.0.message.role`` at the first number; no second part without one."""
    parts = key.split(".")
    at = next((index for index, part in enumerate(parts) if part.isdecimal() and index), None)
    return (key, ()) if at is None else (".".join(parts[:at]), tuple(parts[at:]))


def _are_entities(listed: Sequence[Any]) -> bool:
    """Say whether a flattened list describes things, each by its type and most by a name: Monocle's."""
    return all(
        isinstance(each, Mapping) and isinstance(each.get("type"), str) and not each.keys() & _MESSAGE_KEYS
        for each in listed
    ) and any(isinstance(each.get("name"), str) for each in listed)


def _read_entities(clues: Clues, source: str, listed: Sequence[Mapping[str, Any]]) -> None:
    """Read the names of agents and tools: an entry's type says what its name names.

    The first entry is what the span itself is about, so its type is evidence of the span's kind. A tool
    further down is one that the span's model asked for.
    """
    for place, each in enumerate(listed):
        meant, name = words_of(each["type"]), each.get("name")
        if place == 0:
            _read_kind(clues, (*words_of(source), "type"), each["type"], source)
        if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME:
            continue
        if meant[:1] == ("agent",):
            clues.agents.append((name, "agent name"))
            clues.used.add(source)
        elif meant[:1] == ("tool",):
            (clues.requested if place else clues.tools).append(name)
            clues.used.add(source)


def _look_at(clues: Clues, source: str, path: Path, value: Any, depth: int) -> None:
    """Read one value, and the values inside an object."""
    if isinstance(value, bool) or value is None or not path:
        return
    if isinstance(value, int):
        _count(clues, source, path, value)
    elif isinstance(value, str):
        if value.isdecimal() and len(value) <= _LONGEST_COUNT:  # Micrometer writes numbers as text
            _count(clues, source, path, int(value))
        _read_text(clues, source, path, value)
    if depth == 0 and not isinstance(value, (int, float)):
        _read_content(clues, source, path, value)
    if isinstance(value, Mapping) and depth < _DEEPEST:
        for key, inner in list(value.items())[:64]:
            _look_at(clues, source, path + words_of(str(key)), inner, depth + 1)


def _count(clues: Clues, source: str, path: Path, value: int) -> None:
    if (
        not _TOKENS & {*path}
        or value < 0
        or {"cache", "cached", "details", "reasoning"} & {*path[-4:]} - {"details"}
    ):
        return
    ends = {*path[-3:]}
    if ends & _TOKENS_IN:
        clues.tokens_in = max(clues.tokens_in, value)
        clues.used.add(source)
    elif ends & _TOKENS_OUT:
        clues.tokens_out = max(clues.tokens_out, value)
        clues.used.add(source)


def _read_text(clues: Clues, source: str, path: Path, value: str) -> None:
    if not value or len(value) > _LONGEST_NAME or "\n" in value:
        return
    last = path[-1]
    if path[-2:] == ("agent", "name") and _OUT & {*path}:
        clues.speaker = clues.speaker or value
    if _CONTENT & {*path} and "call" not in path:
        return
    before = _named(clues)
    if {"handoff", "agent", "goto"} & {*path} and {"to", "target", "goto"} & {*path}:
        clues.target = clues.target or value
        clues.found("target", source)
    elif last in _KIND_KEYS or path[-2:] in {("operation", "name"), ("operation", "id")}:
        _read_kind(clues, path, value, source)
    elif last == "model" or path[-2:] == ("model", "name"):
        clues.model = clues.model or value
        clues.used.add(source)
    elif last in {"name", "node", "agent"} or path[-2:] in {("node", "id"), ("agent", "type")}:
        _read_name(clues, source, path, value)
    elif last == "id" and "call" in path:
        clues.ids.add(value)
        clues.found("call_id", source)
    if _named(clues) > before:
        clues.used.add(source)


def _named(clues: Clues) -> int:
    return len(clues.kinds) + len(clues.agents) + len(clues.tools) + len(clues.names)


def _read_kind(clues: Clues, path: Path, value: str, source: str) -> None:
    parts = words_of(value)
    if " " in value or _OTHERS & {*parts}:
        return
    if _CREATION & {*parts}:
        clues.kinds.append((ActionKind.SETUP, source))
        return
    kinds = {_KINDS[word] for word in parts if word in _KINDS}
    if kinds and not {"mime", "content", "output", "error", "event", "provider"} & {*path}:
        clues.kinds.append((next(kind for kind in _MEANINGS if kind in kinds), source))


def _read_name(clues: Clues, source: str, path: Path, value: str) -> None:
    parts = {*path}
    if parts & _OF_OTHERS:
        return
    if "tool" in parts or "function" in parts:
        clues.tools.append(value)
        clues.found("tool", source)
    elif "agent" in parts or "node" in parts:
        if _nameness(path) <= min(
            (_nameness(words_of(key)) for _, key in clues.agents), default=_LEAST_CLEAR
        ):
            clues.sources["agent"] = source
        clues.agents.append((value, " ".join(path)))
    elif path[-1] == "name":
        clues.names.append(value)


def _read_content(clues: Clues, source: str, path: Path, value: Any) -> None:
    """Read the input or output of a model or a tool."""
    parts = {*path}
    is_out, is_in = bool(parts & _OUT), bool(parts & _IN)
    if "definitions" in parts or "schema" in parts or path[-1] in _NOT_TEXT:
        return
    if {"instructions", "system"} <= parts or path[-1] == "instructions":
        clues.instructions = clues.instructions or _text_in(value)
        clues.found("instructions", source)
        return
    messages = conversation(value, "assistant" if is_out and not is_in else "user")
    if messages:
        _keep_conversation(clues, messages, source, is_out=is_out and not is_in, is_in=is_in)
    if is_out == is_in:
        return
    if is_out and clues.history and messages == clues.history:
        clues.state = value
        return
    weight = len(value) if isinstance(value, (str, Mapping, list, tuple)) else 1
    current = clues.got if is_out else clues.given
    if current is None or weight > len(words(current)):
        if is_out:
            clues.got = value
        else:
            clues.given = value
        clues.found("output" if is_out else "input", source)


def _text_in(value: Any) -> str:
    messages = conversation(value, "system")
    return "\n".join(message.text for message in messages) if messages else words(value)


def _keep_conversation(
    clues: Clues, messages: tuple[Message, ...], source: str, *, is_out: bool, is_in: bool
) -> None:
    """Keep a conversation as the span's input or output: the longest one, since a conversation grows."""
    if not is_out and not is_in:
        is_out = _answer_at(messages) == 0
    if is_out and _answer_at(messages) > 0:  # the state of a graph; of a model's call, all that was said
        if len(messages) > len(clues.history):
            clues.history = messages
        return
    if is_out and (
        len(messages) > len(clues.output_messages) or _calls(messages) > _calls(clues.output_messages)
    ):
        clues.output_messages = messages
        clues.sources["output_messages"] = source
    elif not is_out and len(messages) > len(clues.input_messages):
        clues.input_messages = messages
        clues.sources["input_messages"] = source
    clues.used.add(source)


def _answer_at(messages: Sequence[Message]) -> int:
    """Return where the answer begins at the end of a conversation: what one agent said last."""
    at = len(messages)
    while at and messages[at - 1].role == "assistant" and messages[at - 1].name == messages[-1].name:
        at -= 1
    return at


def _split_history(clues: Clues) -> None:
    """Read the answer from a conversation that holds also what the model was told, as a model's call may.

    Only a call's own: any span may hold the state of a graph, which ends with an agent's answer too.
    """
    is_call = clues.has_tokens or clues.kind is ActionKind.LLM
    if not is_call or clues.output_messages:
        return
    history = clues.history or (clues.input_messages if clues.got is None else ())
    at = _answer_at(history)
    clues.output_messages = history[at:]
    if at > len(clues.input_messages) or history is clues.input_messages:
        clues.input_messages = history[:at]


def _calls(messages: Sequence[Message]) -> int:
    return sum(len(message.calls) for message in messages)


def _read_events(clues: Clues) -> None:
    """Read events that are each one message, named after the speaker: ``gen_ai.user.message``."""
    span = clues.span
    events = sorted((*span.events, *span.logs), key=lambda event: event.time_ns)
    input_messages: list[Message] = []
    output_messages: list[Message] = []
    for event in events:
        role = _speaker(event.name)
        if role:
            body = event.attributes or (
                event.body if isinstance(event.body, Mapping) else {"content": event.body}
            )
            value = next((body[key] for key in ("content", "message", "body") if body.get(key)), None)
            messages = conversation(value, role) or (Message(role=role, text=words(value)),)
            (output_messages if event.name.endswith("choice") else input_messages).extend(messages)
    clues.input_messages = clues.input_messages or tuple(input_messages)
    clues.output_messages = clues.output_messages or tuple(output_messages)
    if events and not clues.given and input_messages:
        clues.given = "\n".join(message.text for message in input_messages if message.role != "system")
    if events and not clues.got and output_messages:
        clues.got = "\n".join(message.text for message in output_messages)


def _add_requests(clues: Clues) -> None:
    """Add the requested tools to an answer in words that leaves them out."""
    if clues.requested and clues.output_messages and not _calls(clues.output_messages):
        *before, last = clues.output_messages
        calls = tuple(ToolCall(name=name) for name in dict.fromkeys(clues.requested))
        clues.output_messages = (*before, replace(last, calls=calls))


def _speaker(name: str) -> str:
    return next((_ROLE_EVENTS[word] for word in words_of(name)[-2:] if word in _ROLE_EVENTS), "")


def _clearness(key: str) -> int:
    """Return how reliably a key states a kind: ``span.kind`` before ``operation.name`` before ``type``."""
    parts = words_of(key)
    if "observation" in parts or ("span" in parts and "sdk" not in parts):
        return 0
    return 1 if "operation" in parts or "subtype" in parts else 2


def _nameness(path: Path) -> int:
    if path[-2:] == ("agent", "name"):
        return 0
    return 1 if "agent" in path else _LEAST_CLEAR
