"""Reader of the chats that AG2 and AutoGen 0.2 keep: ``chat_messages``, ``ChatResult`` and its history. Pure.

``chat_messages`` holds the messages of an agent by the agent that it talked to. A group chat stands there
once for each member and is read once; chats with several agents follow one another. The role is relative to
the agent that keeps the chat, so the ``name`` tells who speaks; a message with calls has none. What opens a
chat is its task. A proxy runs tools or code for others, and speaks for a person else.
Source: ag2 0.9 and autogen 0.2.40, ``agentchat/conversable_agent.py`` and ``chat.py`` (2025).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from analyzer.recordings.dialogue import Message, Speaker, dialogues_spans
from analyzer.recordings.fields import json_text, text_at
from analyzer.recordings.message_parts import Result, call_of, listed, text_of, turn
from analyzer.recordings.recording import FileFormat, Records, Spans
from semconv.model import ToolCall

_WRAPPERS: Final = ("chat_messages", "oai_messages", "_oai_messages")
_RESULT_KEYS: Final = frozenset({"chat_id", "summary", "cost", "human_input"})
"""Keys of a ``ChatResult`` beside ``chat_history``."""
_HUMAN: Final = re.compile(r"(?:human|user|user[ _-]?proxy|customer|admin)(?:[ _-]?agent)?", re.IGNORECASE)
_EXECUTED: Final = re.compile(r"exitcode: (-?\d{1,5}) \(")
_RESULT_ROLES: Final = frozenset({"tool", "function"})
_SPEAKING: Final = frozenset({"user", "assistant"})
_ROLES: Final = _RESULT_ROLES | _SPEAKING | {"system"}


def is_person(name: str) -> bool:
    """Tell whether a participant is called as AG2 calls people, or not at all."""
    return not name or _HUMAN.fullmatch(name) is not None


def is_ag2(records: Records) -> bool:
    """Tell whether records are a history, or hold the chats of one agent or the result of one each."""
    return _is_history(records) or all(map(_chats, records))


def _is_history(records: Records) -> bool:
    """Tell whether records are messages that all name their speaker, except those with calls."""
    return (
        _are_messages(records)
        and all(
            one["role"] in _ROLES and (text_at(one, "name") or "tool_calls" in one or "tool_responses" in one)
            for one in records
        )
        and any(text_at(record, "name") and record["role"] in _SPEAKING for record in records)
    )


def _chats(document: Any) -> Mapping[str, Sequence[Any]]:
    """Return a document's chats by the other agent's name; empty if it holds none."""
    if not isinstance(document, dict):
        return {}
    history = document.get("chat_history")
    if isinstance(history, list) and _are_messages(history) and not _RESULT_KEYS.isdisjoint(document):
        return {"": history}
    held = next((document[key] for key in _WRAPPERS if isinstance(document.get(key), dict)), None)
    chats = document if held is None else held
    if not all(isinstance(one, list) and (not one or _are_messages(one)) for one in chats.values()):
        return {}
    spoken = [message for chat in chats.values() for message in chat]
    is_sure = held is not None or any(
        text_at(one, "name") in chats or "tool_responses" in one for one in spoken
    )
    return chats if spoken and is_sure else {}


def _are_messages(found: Sequence[Any]) -> bool:
    return bool(found) and all(
        isinstance(one, dict) and text_at(one, "role") and ("content" in one or "tool_calls" in one)
        for one in found
    )


def read_ag2(records: Records) -> Spans:
    """Read one run for each document."""
    runs = [{"": list(records)}] if _is_history(records) else map(_chats, records)
    return dialogues_spans(map(_of_chats, runs), name="ag2")


def _of_chats(chats: Mapping[str, Sequence[Any]]) -> Iterator[Message]:
    return (message for peer, chat in _own_chats(chats) for message in _of_chat(chat, peer))


def _own_chats(chats: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield the chats without those whose messages all stand in a longer one."""
    longest_first = sorted(chats, key=lambda peer: -len(chats[peer]))
    known: set[str] = set()
    kept = set()
    for peer in longest_first:
        said = set(map(_said, chats[peer]))
        if not said <= known:
            kept.add(peer)
        known |= said
    yield from ((peer, chat) for peer, chat in chats.items() if peer in kept)


def _said(one: Mapping[str, Any]) -> str:
    """Return what is the same in all copies of a message: its role is not."""
    return json_text(
        [one.get(key) for key in ("name", "content", "tool_calls", "tool_responses", "function_call")]
    )


def _of_chat(chat: Sequence[Mapping[str, Any]], peer: str) -> Iterator[Message]:
    speakers = _speakers(chat, peer)
    callers = {name for one, name in zip(chat, speakers, strict=True) if _asks(one)}
    proxies = {name for one, name in zip(chat, speakers, strict=True) if _is_result(one)} - callers
    for place, (one, name) in enumerate(zip(chat, speakers, strict=True)):
        results = list(_results(one))
        if results:
            yield from turn(Message(speaker=Speaker.USER), results)
            continue
        is_asking = name in proxies or is_person(name) or not place
        speaker = Speaker.USER if is_asking and not _asks(one) else Speaker.AGENT
        speaker = Speaker.SYSTEM if one["role"] == "system" else speaker
        agent = name if speaker is Speaker.AGENT else ""
        text = text_of(one.get("content"))
        calls = list(_calls(one))
        yield from turn(
            Message(speaker=speaker, agent=agent), ["" if calls and text == "None" else text, *calls]
        )


def _speakers(chat: Sequence[Mapping[str, Any]], peer: str) -> list[str]:
    """Return who speaks each message; empty for the agent that keeps the chat, if nothing names it."""
    names = dict.fromkeys(
        filter(None, [peer, *(text_at(one, "name") for one in chat if one["role"] in _SPEAKING)])
    )
    found: list[str] = []
    for one in chat:
        before = found[-1] if found else ""
        own = text_at(one, "name") if one["role"] != "function" else ""
        others = [name for name in names if name != before]
        if own:
            found.append(own)
        elif _asks(one) or not peer:  # only two talk: it is the one that did not speak before
            found.append(others[0] if len(others) == 1 else "")
        else:
            found.append(peer if one["role"] == "user" else "")
    return found


def _asks(one: Mapping[str, Any]) -> bool:
    return bool(one.get("tool_calls") or one.get("function_call"))


def _is_result(one: Mapping[str, Any]) -> bool:
    return one["role"] in _RESULT_ROLES or _EXECUTED.match(text_of(one.get("content"))) is not None


def _results(one: Mapping[str, Any]) -> Iterator[Result]:
    """Yield the results in a message of tools, or of code that was run."""
    text, answers = text_of(one.get("content")), listed(one.get("tool_responses"))
    executed = _EXECUTED.match(text)
    if answers:
        yield from (Result(text=text_of(each.get("content")), call_id=_call_id(each)) for each in answers)
    elif one["role"] in _RESULT_ROLES:
        tool = text_at(one, "name") if one["role"] == "function" else ""
        yield Result(text=text, call_id=_call_id(one), tool=tool)
    elif executed:
        yield Result(text=text, tool="code_execution", failed=executed[1] != "0")


def _call_id(one: Mapping[str, Any]) -> str:
    return json_text(one.get("tool_call_id"))


def _calls(one: Mapping[str, Any]) -> Iterator[ToolCall]:
    for call in listed(one.get("tool_calls")):
        function = call.get("function") or {}
        yield call_of(function.get("name"), function.get("arguments"), call.get("id"))
    single = one.get("function_call")
    if isinstance(single, dict):
        yield call_of(single.get("name"), single.get("arguments"), "")


AG2: Final = FileFormat(
    name="AG2 or AutoGen 0.2 chats",
    example="ag2-chat-messages.json",
    source="ag2, `agentchat/conversable_agent.py` and `chat.py`",
    how=("`json.dumps(result.chat_history)`, or `agent.chat_messages` with the other agents' names as keys"),
    recognizes=is_ag2,
    read=read_ag2,
)
