"""Reader of ChatGPT's data export, ``conversations.json``, and of a conversation as its page loads it. Pure.

A conversation's messages are nodes of a tree, ``mapping``: a prompt that was edited and an answer that was
made again are branches. The branch that the page shows ends at ``current_node``; the others are left out.
A message to a tool names it as its ``recipient``; the tool's answer follows it.
Source: ChatGPT's data export (2026).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from analyzer.recordings.dialogue import SPEAKERS, Message, Speaker, dialogue_spans
from analyzer.recordings.fields import branch, json_text, nanoseconds, object_at, text_at
from analyzer.recordings.message_parts import call_of, finish_of
from analyzer.recordings.recording import FileFormat, Records, Spans

_NAME: Final = "ChatGPT"
_UNSAID: Final = {"thoughts", "reasoning_recap", "model_editable_context", "user_editable_context"}
"""Contents that are thoughts, memories, and what an account's owner wants every conversation to know."""


def is_chatgpt(records: Records) -> bool:
    """Tell whether all records are trees of messages, of which one has an author."""
    return all(map(_is_tree, records)) and any(
        object_at(object_at(node, "message"), "author") for one in records for node in one["mapping"].values()
    )


def _is_tree(one: Any) -> bool:
    nodes = one.get("mapping") if isinstance(one, dict) else None
    return isinstance(nodes, dict) and all(
        isinstance(node, dict) and isinstance(node.get("children"), list) for node in nodes.values()
    )


def read_chatgpt(records: Records) -> Spans:
    """Read one run for each conversation."""
    return (span for record in records for span in _conversation(record))


def _conversation(document: Mapping[str, Any]) -> Spans:
    tree, leaf = document["mapping"], text_at(document, "current_node")
    nodes = branch(tree, leaf if leaf in tree else next(reversed(tree), ""), "parent")
    key = json_text(document.get("conversation_id", document.get("id")))
    messages = _messages(object_at(node, "message") for node in nodes)
    return dialogue_spans(messages, name="chatgpt", key=f"chatgpt {key}" if key else "")


def _messages(said: Iterable[Mapping[str, Any]]) -> Iterator[Message]:
    asked = ""
    for one in said:
        author, content, about = (object_at(one, key) for key in ("author", "content", "metadata"))
        speaker, text = SPEAKERS.get(text_at(author, "role")), _text(content)
        is_call = speaker is Speaker.AGENT and one.get("recipient", "all") != "all"
        asked = json_text(one.get("id")) if is_call else asked
        if speaker is None or not text:  # exports leave out what some tools returned
            continue
        outcome = text_at(object_at(about, "aggregate_result"), "status") or text_at(content, "content_type")
        yield Message(
            speaker=speaker,
            text="" if is_call else text,
            agent="" if speaker is Speaker.USER else _NAME,
            calls=(call_of(one["recipient"], text, asked),) if is_call else (),
            call_id=asked if speaker is Speaker.TOOL else "",
            tool=text_at(author, "name"),
            failed=speaker is Speaker.TOOL and outcome.startswith(("failed", "system_error")),
            time_ns=nanoseconds(one.get("create_time")),
            model=text_at(about, "model_slug"),
            finish=finish_of(object_at(about, "finish_details").get("type")),
        )


def _text(content: Mapping[str, Any]) -> str:
    """Return what a content says; media are named."""
    if text_at(content, "content_type") in _UNSAID:
        return ""
    held = next((content[key] for key in ("parts", "text", "result", "content") if content.get(key)), "")
    parts = held if isinstance(held, list) else [held]
    media = (text_at(part, "text") or f"[{text_at(part, 'content_type')}]" for part in parts)
    return "\n".join(
        named if isinstance(part, dict) else json_text(part) for part, named in zip(parts, media, strict=True)
    )


CHATGPT: Final = FileFormat(
    name="ChatGPT's data export",
    example="chatgpt-export.json",
    source="ChatGPT's data export, 2026",
    how="*Settings*, *Data controls*, *Export data*: `conversations.json` in the archive that is sent to you",
    agent=_NAME,
    recognizes=is_chatgpt,
    read=read_chatgpt,
)
