"""Reader of what ``graph.stream`` yields in the modes ``updates`` and ``messages``, and of its events. Pure.

An update is an object with the changes of each node's state; with ``subgraphs=True`` the namespace stands
before it, with several modes the mode. A node is an agent unless its name marks a part of one (``tools``). A
message that a subgraph yielded before its parent counts once. In the mode ``messages`` each entry is a chunk
with metadata that name the node; where there are updates too, these are read, since they are whole. Only the
mode ``values`` holds the input, and so the task; behind a namespace its states are read too. A node may
write a message as ``role`` and ``content``, which an update holds as written.
Source: langgraph 1.2, ``Pregel.stream``, and langgraph-supervisor 0.0.31 (2026).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, Final

from analyzer.recordings.dialogue import Message, Speaker, dialogue_spans
from analyzer.recordings.fields import all_have, json_text, object_at, objects, text_at
from analyzer.recordings.langchain_messages import are_messages, fields_of, kind_of, message_of, spoken
from analyzer.recordings.message_parts import text_of
from analyzer.recordings.recording import FileFormat, Records, Spans
from semconv.dialects.reading.agent_names import LANGGRAPH_NAMESPACE, LANGGRAPH_NODE, PLUMBING_NODES

_SILENT: Final = frozenset({"__interrupt__", "__metadata__"})
_ANSWERS: Final = frozenset({"data", "result", "results"})
"""Keys of an API's answer, beside which others say where the next page is; no names of nodes."""
_BEGUN: Final = frozenset({"task", "checkpoint"})
"""Types of entries of the mode ``debug`` that repeat what others say."""
_HEAD: Final = frozenset({"run_id", "attempt", "thread_id"})
"""Keys of the event with which LangGraph's server begins a stream."""
_KINDS: Final = {
    "assistant": "ai",
    "ai": "ai",
    "user": "human",
    "human": "human",
    "system": "system",
    "tool": "tool",
}
"""Types of messages by the roles under which nodes may write them."""
_MOST_AROUND: Final = 2
"""Namespace and mode, before an update."""


def is_langgraph(records: Records) -> bool:
    """Tell whether records are updates or chunks of a stream, with messages among them."""
    return bool(_chunks(records) or _events(records) or _mode_of(records))


def _mode_of(records: Records) -> str:
    """Return the mode whose entries are read: all are updates or states, with messages among them."""
    return next((mode for mode in ("updates", "values") if _is_whole(records, mode)), "")


def _is_whole(records: Records, mode: str) -> bool:
    found = [(record, _payload(record)) for record in _of_mode(records, mode)]
    if not all(
        _is_update(payload) or (record is not payload and _is_state(payload)) for record, payload in found
    ):
        return False
    changes = [change for _, payload in found for change in payload.values()]
    return any(map(_messages_in, changes)) or _are_of_nodes([payload for _, payload in found])


def _are_of_nodes(updates: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether several nodes wrote messages as plain dictionaries, which hold no input of a person."""
    wrote = [
        (node, messages)
        for update in updates
        for node, change in update.items()
        if isinstance(change, dict) and (messages := _messages_in(_typed(change)))
    ]
    nodes = {node for node, _ in wrote}
    kinds = {kind_of(one) for _, messages in wrote for one in messages}
    return len(nodes) > 1 and "ai" in kinds and kinds <= {"ai", "tool"}


def _typed(change: Any) -> Any:
    """Return a node's change with messages as LangGraph stores them; nodes may write roles."""
    if not isinstance(change, dict) or "messages" not in change:
        return change
    written = change["messages"]
    is_list = isinstance(written, list)
    return {**change, "messages": [_as_stored(one) for one in written] if is_list else _as_stored(written)}


def _as_stored(one: Any) -> Any:
    kind = _KINDS.get(text_at(one, "role"))
    if kind is None or fields_of(one) or "content" not in one:
        return one
    calls = [call for call in objects(one.get("tool_calls")) if "function" in call]
    return {
        **one,
        "type": kind,
        **({"additional_kwargs": {"tool_calls": calls}, "tool_calls": []} if calls else {}),
    }


def _chunks(records: Records) -> list[Any]:
    """Return the chunks, each with its metadata; empty unless the stream has nothing else."""
    is_stream = all(map(_is_chunk, _payloads(records, "messages")))
    return list(_payloads(records, "messages")) if is_stream else []


def _payloads(records: Records, mode: str) -> Iterator[Any]:
    return map(_payload, _of_mode(records, mode))


def _is_chunk(one: Any) -> bool:
    return (
        isinstance(one, list)
        and len(one) == len(("message", "metadata"))
        and bool(fields_of(one[0]))
        and isinstance(one[1], dict)
        and LANGGRAPH_NODE in one[1]
    )


def _payload(one: Any) -> Any:
    """Return an entry without the namespace and the mode before it; the mode ``debug`` has both around it."""
    if isinstance(one, dict) and one.get("type") == "task_result":
        done = object_at(one, "payload")
        result = done.get("result")
        if isinstance(result, list) and all(isinstance(each, list) and len(each) == 2 for each in result):
            result = {json_text(key): value for key, value in result}
        return {json_text(done.get("name")): result}
    is_led = isinstance(one, list) and 1 < len(one) <= _MOST_AROUND + 1 and all(map(_is_lead, one[:-1]))
    return one[-1] if is_led else one


def is_empty_state(one: Any) -> bool:
    """Tell whether an entry is a state before anything was written: ``["values", null]``."""
    return isinstance(one, list) and len(one) > 1 and one[-1] is None and "values" in one[:-1]


def _is_lead(one: Any) -> bool:
    return isinstance(one, str) or (isinstance(one, list) and all(isinstance(each, str) for each in one))


def _of_mode(records: Records, mode: str) -> Iterator[Any]:
    """Yield the entries of a mode, or all if the stream has only one mode; without those that begin."""
    for record in records:
        if isinstance(record, dict) and (text_at(record, "type") in _BEGUN or record.keys() <= _HEAD):
            continue
        if is_empty_state(record):
            continue
        lead = record[:-1] if isinstance(record, list) else ()
        if next((each for each in lead if isinstance(each, str)), mode) in {"", mode}:
            yield record


def _namespace(one: Any) -> list[str]:
    """Return the nodes around an update's graph, outermost first."""
    given = one[0] if isinstance(one, list) and isinstance(one[0], list) else []
    return [json_text(each).partition(":")[0] for each in given]


def _is_update(one: Any) -> bool:
    return (
        isinstance(one, dict)
        and bool(one)
        and _ANSWERS.isdisjoint(one)
        and all(
            key in _SILENT or change is None or isinstance(change, dict | list) for key, change in one.items()
        )
    )


def _messages_in(change: Any) -> Sequence[Any]:
    """Return the messages of a node's change, which may be one, a list, or those of a state."""
    found = change.get("messages") if isinstance(change, dict) and "messages" in change else change
    listed = [found] if fields_of(found) else found
    return spoken(listed) if isinstance(listed, list) and are_messages(listed) else ()


def read_langgraph(records: Records) -> Spans:
    """Read one stream."""
    if events := _events(records):
        return dialogue_spans(_of_events(events), name="langgraph")
    if mode := _mode_of(records):
        found = list(_of_updates(_of_mode(records, mode), _input(records)))
    else:
        found = list(_of_chunks(_chunks(records)))
    answer = next((message.text for message, is_said in reversed(found) if is_said and message.text), "")
    return dialogue_spans([message for message, _ in found], name="langgraph", answer=answer)


def _input(records: Records) -> Sequence[Any]:
    """Return the messages of the first state, where the mode ``values`` is one of several."""
    states = (record for record in records if isinstance(record, list) and "values" in record[:-1])
    first = _payload(next(states, None))
    return _messages_in(first) if _is_state(first) else ()


def _is_state(payload: Any) -> bool:
    """Tell a whole state from an update, whose keys are nodes."""
    listed = payload.get("messages") if isinstance(payload, dict) else None
    return isinstance(listed, list) and are_messages(listed)


def _of_updates(records: Iterable[Any], given: Sequence[Any]) -> Iterator[tuple[Message, bool]]:
    """Yield what each node wrote, and whether an agent said it: other changes of a state are no answer.

    Args:
        records: updates, or states behind their namespaces.
        given: messages of the graph's input.
    """
    seen = {*_keys(given, is_state=True)}
    yield from ((message_of(one, ""), False) for one in given)
    for record in records:
        around, payload = _namespace(record), _payload(record)
        is_state = _is_state(payload)
        for node, change in {"": payload}.items() if is_state else payload.items():
            agent = next((one for one in [node, *reversed(around)] if one and one not in PLUMBING_NODES), "")
            found = _messages_in(_typed(change))
            for one, key in zip(found, _keys(found, is_state=is_state), strict=True):
                if not key or key not in seen:
                    message = message_of(one, agent)
                    yield message, message.speaker is Speaker.AGENT
                seen.add(key)
            if not found and _says(change) and node not in _SILENT and node == agent:
                yield Message(speaker=Speaker.AGENT, text=json_text(change), agent=agent), False


def _says(change: Any) -> bool:
    """Tell whether a change without messages says more than that there are none."""
    return bool(change) and change != {"messages": []}


def _keys(messages: Sequence[Any], *, is_state: bool) -> Iterator[str]:
    """Yield what tells each message from the others; empty for one without an id in an update.

    A state repeats its messages, and two of them may be alike: without ids, their number tells them apart.
    """
    times: Counter[str] = Counter()
    for one in messages:
        key = _identity(one)
        if not key and is_state:
            text = json_text(one)
            times[text] += 1
            key = f"{times[text]} {text}"
        yield key


# --- events of ``astream_events`` ---


def _events(records: Records) -> Records:
    return records if all_have(records, "event", "run_id", "data") else ()


def _of_events(found: Records) -> Iterator[Message]:
    """Yield what models answered and tools returned; the first input is the task."""
    calls: dict[str, str] = {}
    heard = (object_at(object_at(one, "data"), "input").get("messages") for one in found)
    asked = next((each for each in heard if isinstance(each, list) and are_messages(each)), [])
    yield from map(message_of, asked, repeat(""))
    for one in found:
        kind, data = text_at(one, "event"), object_at(one, "data")
        output = data.get("output")
        node = text_at(one.get("metadata"), LANGGRAPH_NODE)
        if kind == "on_chat_model_end" and fields_of(output):
            message = message_of(output, "" if node in PLUMBING_NODES else node)
            calls |= {call.name: call.call_id for call in message.calls}
            yield message
        elif kind == "on_tool_end":
            name = text_at(one, "name")
            plain = Message(
                speaker=Speaker.TOOL, text=json_text(output), tool=name, call_id=calls.get(name, "")
            )
            yield message_of(output, "") if fields_of(output) else plain
        elif kind == "on_tool_error":
            name, error = text_at(one, "name"), json_text(data.get("error"))
            call_id = calls.get(name, "")
            yield Message(speaker=Speaker.TOOL, text=error, tool=name, call_id=call_id, failed=True)


def _identity(one: Any) -> str:
    """Return what the copies of a message have in common; empty if nothing is sure.

    A message gets its id when the graph stores it, so its calls tell more.
    """
    fields = fields_of(one)
    if fields.get("tool_call_id"):
        return f"result {fields['tool_call_id']}"
    asked = [json_text(call.get("id")) for call in objects(fields.get("tool_calls"))]
    return f"calls {asked}" if any(asked) else json_text(fields.get("id"))


def _of_chunks(found: Records) -> Iterator[tuple[Message, bool]]:
    """Yield messages put together from their chunks, which have one id and may be interleaved."""
    chunks: dict[str, list[Mapping[str, Any]]] = {}
    nodes: dict[str, Mapping[str, Any]] = {}
    for place, (one, metadata) in enumerate(found):
        key = json_text(fields_of(one).get("id")) or str(place)
        chunks.setdefault(key, []).append(one)
        nodes.setdefault(key, metadata)
    for key, parts in chunks.items():
        named = [text_at(nodes[key], LANGGRAPH_NODE), *_around(nodes[key])]
        agent = next((node for node in named if node not in PLUMBING_NODES), "")
        message = message_of(parts[0] if len(parts) == 1 else _whole(parts), agent)
        yield message, message.speaker is Speaker.AGENT


def _around(metadata: Mapping[str, Any]) -> list[str]:
    path = text_at(metadata, LANGGRAPH_NAMESPACE).split("|")
    return [one.partition(":")[0] for one in reversed(path) if one]


def _whole(chunks: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the message that its chunks amount to."""
    fields = [fields_of(chunk) for chunk in chunks]
    calls: dict[Any, dict[str, Any]] = {}
    for part in (part for field in fields for part in objects(field.get("tool_call_chunks"))):
        call = calls.setdefault(json_text(part.get("index")), {"args": ""})
        call["args"] += json_text(part.get("args"))
        call |= {key: part[key] for key in ("name", "id") if part.get(key)}
    whole = {key: value for field in fields for key, value in field.items() if value}
    content = "".join(text_of(field["content"]) for field in fields)
    rest = {"tool_calls": list(calls.values()), "invalid_tool_calls": []} if calls else {}
    return {**whole, "type": kind_of(chunks[0]), "content": content, **rest}


LANGGRAPH: Final = FileFormat(
    name="a langgraph stream",
    example="langgraph-updates.jsonl",
    source="langgraph, `Pregel.stream`",
    how=(
        "`json.dumps(update, default=lambda m: m.model_dump())` for each `update` of "
        '`graph.stream(…, stream_mode="updates")`, one a line'
    ),
    recognizes=is_langgraph,
    read=read_langgraph,
)
