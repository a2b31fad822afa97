"""Reader of conversation logs: ``{"history": [{"role", "name", "content"}…], "question", …}``.

The formats are distinguished by their keys and not by their file names: ag2tracer's (``history`` or
``conversation``; its step-by-step method has ``agent_id`` and ``message``), Who&When's (hand-crafted logs
have no ``name``: the role carries the agent), uniform JSON lines (``history[{index, agent, role, content}]``,
``label``), and lists of a model API's messages (``messages``, ``chat_history``, or the list alone). Entries
with other plain names (``author`` and ``body``, ``from`` and ``value``) are read if an author is a program.
Step *n* is the n-th entry of the list, regardless of its role or its own ``index``, because labels count that
way.

Missing data stays missing: a step without content is empty, a step without an agent is ``unknown``. A
document without a conversation is refused, and so is a conversation in which no entry names an agent.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from analyzer.inquiry.conversation import Conversation, Label
from analyzer.inquiry.errors import UnreadableInput
from analyzer.inquiry.match_agents import handover_target, strip_suffix
from analyzer.recordings.fields import all_have
from analyzer.recordings.recording import FileFormat, Recording, Records
from semconv.model import UNKNOWN_AGENT, AgentSource, ContentState, Step, StepKind, Trajectory

_LISTS: Final = ("history", "conversation", "chat_history", "conversation_history", "messages")
_SPEAKERS: Final = ("agent", "agent_id", "agent_name", "name", "sender", "speaker", "role")
"""Keys of an entry's agent, most specific first."""
_CONTENTS: Final = ("content", "message", "text", "output")
_QUESTIONS: Final = ("question", "task", "query")
_REFERENCES: Final = ("ground_truth", "groundtruth", "reference")
_RUN_IDS: Final = ("id", "run_id", "question_ID", "question_id")
LOG_LEVELS: Final = ("level", "levelname", "severity", "lvl", "loglevel", "log_level", "log.level")
"""Keys of a log record's severity, as pino, Python's logging, zap, logrus and ECS write them."""
_FINAL_ANSWER: Final = re.compile(
    r"FINAL[^\S\n]{1,3}ANSWER[^\S\n]?[*_]{0,2}[:\uff1a][*_]{0,2}[^\S\n]{0,9}(\S.*)", re.IGNORECASE
)
_TOOL_WORDS: Final = re.compile(
    r"terminal$|interpreter$|executor(?:[ _-]?agent)?$|^environment$|^tools?\b|^function$", re.IGNORECASE
)
_HUMAN_WORDS: Final = re.compile(r"^(?:human|user|user[ _-]?proxy|customer|admin)$", re.IGNORECASE)
_INSTRUCTING: Final = frozenset({"system", "developer"})
"""Roles of instructions, in a list where nobody but a person speaks."""
_SPAN_KINDS: Final[Mapping[str, StepKind]] = {
    # Kinds of entries in logs made from span exports; containers are not actions.
    "LLM": StepKind.LLM,
    "TOOL": StepKind.TOOL,
    "AGENT": StepKind.OTHER,
    "CHAIN": StepKind.OTHER,
    "INTERNAL": StepKind.OTHER,
}
_SIGN_OFF: Final = re.compile(r"[\s*`.]*(?:TERMINATE|EXIT|DONE)[\s*`.!]*", re.IGNORECASE)


def is_conversation_log(records: Records) -> bool:
    """Tell whether records are entries of one conversation, or documents that hold one each."""
    records = _rows_of(records, _LISTS)
    return (
        all(map(is_message, records))
        or all(isinstance(record, dict) and is_conversation(record) for record in records)
        or has_programs(records)
    )


def read_conversation_log(records: Records) -> Recording:
    """Read one conversation, or those of several documents."""
    records = _rows_of(records, _LISTS)
    is_one = all(map(is_message, records)) or has_programs(records)
    documents: Sequence[Any] = [list(records)] if is_one else records
    found = tuple(map(read_conversation, documents))
    spoken = tuple(one for one in found if _has_agents(one.trajectory.steps))
    if not spoken:
        raise UnreadableInput(f"no agent speaks in it: {_ONLY_PEOPLE}")
    steps = [step for one in spoken for step in one.trajectory.steps]
    if steps and not any(step.output for step in steps):
        raise UnreadableInput(f"no message has a text: expected it as one of {', '.join(_CONTENTS)}")
    left_out = len(found) - len(spoken)
    warning = f"left out {left_out} of {len(found)} conversations, in which no agent speaks: {_ONLY_PEOPLE}"
    return Recording(conversations=spoken, warnings=(warning,) if left_out else ())


_ONLY_PEOPLE: Final = "all messages are a person's or instructions"


def _has_agents(steps: Sequence[Step]) -> bool:
    """Tell whether anyone but people speaks, who are never to blame; an empty conversation is not judged."""
    return not steps or any(
        step.kind is not StepKind.HUMAN and step.name.lower() not in _INSTRUCTING for step in steps
    )


def is_conversation(document: object) -> bool:
    """Tell whether a document is a conversation log."""
    if isinstance(document, list):
        return bool(document) and (all(map(is_message, document)) or has_programs(document))
    return isinstance(document, dict) and (
        any(isinstance(document.get(key), list) for key in _LISTS)
        or any(has_programs(document[key]) for key in _MORE_LISTS if key in document)
    )


def is_message(document: object) -> bool:
    """Tell whether a document is one entry of a conversation: a message or tool calls.

    A record of an application's log has a name and a message too: its logger's. It has a level, which no
    message has, or a ``message`` whose only other key is that ``name``.
    """
    return (
        isinstance(document, dict)
        and any(isinstance(document.get(key), str) for key in _SPEAKERS)
        and any(key in document for key in (*_CONTENTS, "tool_calls"))
        and not _is_logged(document)
        and not is_of_room(document)
        and not is_conversation(document)
    )


def _is_logged(document: Mapping[str, Any]) -> bool:
    if any(isinstance(document.get(key), str | int) for key in LOG_LEVELS) or is_request(document):
        return True
    speakers = [key for key in _SPEAKERS if isinstance(document.get(key), str)]
    return speakers == ["name"] and not any(key in document for key in ("content", "tool_calls"))


def is_of_room(document: object) -> bool:
    """Tell whether a record is an event of a Matrix room, where people chat."""
    return isinstance(document, dict) and {"origin_server_ts", "sender"} <= document.keys()


def is_request(document: Mapping[str, Any]) -> bool:
    """Tell whether a record is of an HTTP server's log, which has the client's program as ``agent``."""
    agent = document.get("agent")
    return isinstance(agent, str) and bool(_BROWSER.match(agent))


OF_A_ROOM: Final = "a chat of people in a Matrix room, not a run of agents"
_BROWSER: Final = re.compile(r'"?[A-Za-z][\w.-]{0,40}/\d{1,4}\.\d')
"""The begin of a ``User-Agent``: ``Mozilla/5.0 (…)``, ``curl/8.5.0``."""


def read_conversation(document: object) -> Conversation:
    """Read one conversation log.

    Raises:
        UnreadableInput: the document has no list of messages, or no message names an agent.
    """
    if not is_conversation(document):
        raise UnreadableInput(f"not a conversation log: expected messages, or a list of them as {_LISTS[0]}")
    is_list_alone = not isinstance(document, dict)
    if not isinstance(document, dict):
        document = {_LISTS[0]: document}
    lists: Iterator[Any] = (document.get(key) for key in (*_LISTS, *_MORE_LISTS))
    given = next(found for found in lists if isinstance(found, list))
    if any(map(is_of_room, given)):
        raise UnreadableInput(OF_A_ROOM)
    entries = _plainly_named(given)
    instructions, calls = _instructions(document), _calls(entries)
    steps = tuple(_step(index, entry, instructions, calls) for index, entry in enumerate(entries))
    if steps and all(step.agent == UNKNOWN_AGENT for step in steps):
        raise UnreadableInput(
            f"no message says which agent it is from: expected one of {', '.join(_SPEAKERS)}"
        )
    task = _first_text(document, _QUESTIONS)
    trajectory = Trajectory(
        run_id=_first_text(document, _RUN_IDS) or _content_id(document),
        steps=steps,
        task=task or next((step.output for step in steps if step.kind is StepKind.HUMAN), ""),
        output=_final_answer(steps),
        reference=_first_text(document, _REFERENCES) or None,
        agents=tuple(dict.fromkeys(step.agent for step in steps)),
        warnings=() if steps else ("the conversation is empty",),
        is_recorded_conversation=not is_list_alone
        and (("history" in document and not calls) or is_labelled(document) or not _is_chat(steps)),
    )
    return Conversation(
        trajectory=trajectory,
        label=label_of(document),
        source=_first_text(document, ("source",)),
        subset=_first_text(document, ("subset",)),
    )


def _is_chat(steps: Sequence[Step]) -> bool:
    """Tell whether a person talks with one program: no data set of failed runs has these keys and labels.

    Under ``history`` one may, unless the program calls tools as an API writes it.
    """
    kinds = {step.agent: step.kind for step in steps}
    return sorted(kinds.values()) == sorted((StepKind.HUMAN, StepKind.LLM))


def _step(
    index: int, entry: object, instructions: Mapping[str, str], calls: Mapping[str, tuple[str, str, str]]
) -> Step:
    fields: Mapping[str, Any] = entry if isinstance(entry, dict) else {"content": entry}
    role, speaker, content = _text(fields.get("role")), _speaker(fields), _content(fields)
    agent = strip_suffix(speaker) or UNKNOWN_AGENT
    if (call := calls.get(str(fields.get("tool_call_id")))) is not None:
        caller, tool, arguments = call
        return Step(
            index=index, agent=strip_suffix(caller) or UNKNOWN_AGENT, kind=StepKind.TOOL, name=role,
            input=arguments, output=content, target=tool,
            content=ContentState.COMPLETE if content else ContentState.ABSENT,
        )  # fmt: skip
    return Step(
        index=index,
        agent=agent,
        kind=_kind(agent, role),
        agent_source=AgentSource.UNKNOWN if agent == UNKNOWN_AGENT else AgentSource.SPAN,
        name=role,
        output=content,
        target=handover_target(role) or handover_target(speaker),
        content=ContentState.COMPLETE if content else ContentState.ABSENT,
        instructions=instructions.get(agent, ""),
    )


def _speaker(fields: Mapping[str, Any]) -> str:
    return next((found for key in _SPEAKERS if (found := _text(fields.get(key)))), "")


def _calls(entries: Sequence[Any]) -> Mapping[str, tuple[str, str, str]]:
    """Return agent, tool and arguments of the calls that a model API's messages make, by the call's id."""
    found = {}
    for entry in entries:
        asked = entry.get("tool_calls") if isinstance(entry, dict) else None
        for call in asked if isinstance(asked, list) else ():
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict) and call.get("id"):
                named = _text(function.get("name")), _text(function.get("arguments"))
                found[str(call["id"])] = (_speaker(entry), *named)
    return found


def _kind(agent: str, role: str) -> StepKind:
    """Guess a step's kind from its agent: logs do not state it unless the role is ``KIND:name``."""
    recorded = _SPAN_KINDS.get(role.partition(":")[0]) if ":" in role else None
    if recorded:
        return recorded
    if handover_target(role):
        return StepKind.HANDOFF
    if role.lower() in {"tool", "function"} or _TOOL_WORDS.search(agent):
        return StepKind.TOOL
    if role.lower() == "system":
        return StepKind.OTHER
    # The role "user" carries no information: AG2 gives it to every agent except the log's owner.
    return StepKind.HUMAN if _HUMAN_WORDS.match(agent) else StepKind.LLM


def _content(fields: Mapping[str, Any]) -> str:
    content = next((fields[key] for key in _CONTENTS if fields.get(key) is not None), None)
    parts = content if isinstance(content, list) else [content]
    texts = [_text(part.get("text", part) if isinstance(part, dict) else part) for part in parts]
    calls = fields.get("tool_calls")
    texts += [_text(call) for call in calls] if isinstance(calls, list) else []
    return "\n".join(text for text in texts if text)


_sorted_json: Final = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, default=str, check_circular=False
).encode


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return _sorted_json(value)


def _first_text(document: Mapping[str, Any], keys: Sequence[str]) -> str:
    return next((_text(document[key]) for key in keys if document.get(key) not in (None, "")), "")


def _instructions(document: Mapping[str, Any]) -> Mapping[str, str]:
    """Return system prompts by agent, which Who&When's algorithm-generated logs contain."""
    meta = document.get("meta")
    prompts = document.get("system_prompt") or (meta.get("system_prompt") if isinstance(meta, dict) else None)
    if not isinstance(prompts, dict):
        return {}
    return {strip_suffix(str(agent)): _text(prompt) for agent, prompt in prompts.items()}


def _final_answer(steps: Sequence[Step]) -> str:
    """Return the run's answer: a marked final answer near the end, else the last agent's text."""
    for step in reversed(steps[-3:]):
        marked = _FINAL_ANSWER.findall(step.output)
        if marked:
            return str(marked[-1]).strip(" \t\r*")
    speaking = (StepKind.LLM, StepKind.HANDOFF, StepKind.AGENT)
    return next(
        (
            step.output
            for step in reversed(steps)
            if step.kind in speaking and step.output.strip() and not _SIGN_OFF.fullmatch(step.output)
        ),
        "",
    )


def is_labelled(document: Mapping[str, Any]) -> bool:
    """Tell whether a document states what went wrong in its conversation, or the right answer."""
    return any(key in document for key in ("label", "mistake_agent", "mistake_step", *_REFERENCES))


def label_of(document: Mapping[str, Any]) -> Label | None:
    """Return the label in a document of a data set; ``None`` if it has none."""
    label = document.get("label")
    if isinstance(label, dict):
        return Label(
            agent=_text(label.get("agent")) or None,
            step=_integer(label.get("step")),
            category=_text(label.get("category")),
            trust=_weight(label.get("weight")),
        )
    if "mistake_agent" in document or "mistake_step" in document:
        return Label(
            agent=_text(document.get("mistake_agent")) or None, step=_integer(document.get("mistake_step"))
        )
    return None


def _weight(value: object) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and 0 < value <= 1 else 1.0  # type: ignore[operator, arg-type]


def _integer(value: object) -> int | None:
    """Return a whole number given as a number or in digits; ``None`` for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and re.fullmatch(r"\d{1,9}", value.strip()) else None


def _content_id(document: Mapping[str, Any]) -> str:
    """Return an id for a log that has none; the same content gives the same id."""
    canonical = json.dumps(document, sort_keys=True, ensure_ascii=True, default=str)
    return f"log-{hashlib.sha256(canonical.encode()).hexdigest()[:16]}"


# --- entries with other plain names ---

_MORE_LISTS: Final = ("conversations", "turns", "dialogue", "dialog", "transcript")
"""Keys of lists that are read only if ``has_programs``."""
_AUTHORS: Final = ("agent", "author", "from", "speaker", "sender", "role")
_BODIES: Final = ("body", "text", "content", "message", "utterance", "value")
_PUBLISHED: Final = frozenset(
    {"subject", "cc", "bcc", "message_id", "in_reply_to", "thread_id", "title", "url", "html_url"}
    | {"issue", "issue_url", "author_association", "reactions", "likes", "upvotes", "rating"}
    | {"permalink", "subreddit"}
    | {"sha", "commit", "hash", "committer", "parents"}
)
"""Keys of e-mails, comments, reviews and commits, whoever wrote them."""
_LONGEST_AUTHOR: Final = 200
"""Characters of an author's name that are looked at."""
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_PROGRAM_WORDS: Final = frozenset({"agent", "assistant", "orchestrator"})
"""Words in a name without a space: ``Support Agent`` may be a person's title, and ``Agent Smith`` a name."""
_SAID_OF_PROGRAMS: Final = frozenset({"AI", "LLM"})
"""Words in any name of an agent or model, in capitals: people are called Ai."""
_PROGRAMS: Final = re.compile(r"(?:chat)?gpt(?:-[0-9][\w.-]*)?|ai|llm|model|bot|chatbot|tool", re.IGNORECASE)
"""Whole names of agents, models and tools."""
_DIALOGUES: Final = ({"user", "system"}, {"human", "system"})
"""Names of the two sides of a dialogue with a program."""


def has_programs(entries: object) -> bool:
    """Tell whether a list holds messages of agents, each with its author and its text under one pair of keys.

    People write comments, e-mails and commits in this form too, so all authors but one must be called as
    agents, models and tools are (``ResearchAgent``, ``assistant``, ``gpt``), or be ``user`` and ``system``.
    """
    if (pair := pair_of(entries)) is None or not isinstance(entries, list | tuple):
        return False
    if any(map(_is_logged, entries)) or any(not _PUBLISHED.isdisjoint(entry) for entry in entries):
        return False
    authors = {entry[pair[0]].strip() for entry in entries}
    if any("@" in author for author in authors):
        return False
    is_dialogue = {author.lower() for author in authors} in _DIALOGUES
    programs = sum(map(is_program, authors))
    return is_dialogue or (programs > 0 and len(authors) - programs <= 1) or pair[0] == "agent"


def pair_of(entries: object) -> tuple[str, str] | None:
    """Return the keys of author and text that all of at least two messages have, both as texts."""
    if not isinstance(entries, list | tuple) or len(entries) < 2:
        return None
    pairs = ((author, body) for author in _AUTHORS for body in _BODIES)
    return next((pair for pair in pairs if all(_has_texts(entry, pair) for entry in entries)), None)


def _has_texts(one: object, keys: tuple[str, str]) -> bool:
    return isinstance(one, dict) and all(isinstance(one.get(key), str) for key in keys) and bool(one[keys[0]])


def is_program(author: str) -> bool:
    """Tell whether an author is called as agents, models and tools are."""
    words = _WORD.findall(author[:_LONGEST_AUTHOR])
    is_one_word = " " not in author and not _PROGRAM_WORDS.isdisjoint(map(str.lower, words))
    return is_one_word or not _SAID_OF_PROGRAMS.isdisjoint(words) or bool(_PROGRAMS.fullmatch(author))


def _plainly_named(entries: Sequence[Any]) -> Sequence[Any]:
    """Return entries whose author and text the other keys of this format do not name with those that do."""
    if any(map(is_message, entries)) or not has_programs(entries) or (pair := pair_of(entries)) is None:
        return entries
    return [{**entry, "agent": entry[pair[0]], "content": entry[pair[1]]} for entry in entries]


# --- data sets kept by column ---
#
# Hugging Face's `Dataset.to_dict()` gives a list for each column, and a list of objects within a row may come
# as an object of lists. The API of its data set viewer gives `{"rows": [{"row": …}]}`.
# Source: Hugging Face `datasets`, `Dataset.to_dict` and `Sequence` of a dictionary; `/rows` (2026).


def _rows_of(records: Records, lists: Sequence[str]) -> Records:
    """Return records as rows.

    Args:
        records: rows, or the only document that holds them by column.
        lists: keys of a row that hold a list of objects.
    """
    rows = _rows(records, lists)
    return [_row(row, lists) if isinstance(row, dict) else row for row in rows]


def _rows(records: Records, lists: Sequence[str]) -> Records:
    only = records[0] if len(records) == 1 and isinstance(records[0], dict) else {}
    held = only.get("rows")
    if isinstance(held, list) and all_have(held, "row"):
        return [one["row"] for one in held]
    columns = [only[key] for key in lists if isinstance(only.get(key), list)]
    is_by_column = any(column and all(map(_is_dialogue, column)) for column in columns)
    return _transposed(only) if is_by_column and _is_table(only) else records


def _is_dialogue(one: Any) -> bool:
    return _is_table(one) or (isinstance(one, list) and all(isinstance(each, dict) for each in one))


def _is_table(one: Any) -> bool:
    """Tell whether an object holds columns of one length."""
    if not isinstance(one, dict) or not all(isinstance(column, list) for column in one.values()):
        return False
    return len({len(column) for column in one.values()}) == 1


def _transposed(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]


def _row(row: Mapping[str, Any], lists: Sequence[str]) -> Mapping[str, Any]:
    tables = {key: _transposed(row[key]) for key in lists if _is_table(row.get(key))}
    return {**row, **tables} if tables else row


CONVERSATION_LOG: Final = FileFormat(
    name='a conversation log (messages, or a list of them as "history")',
    example="conversation-log.json",
    source="Who&When, ag2tracer",
    how=(
        '`json.dumps({"history": [{"role": …, "name": AGENT, "content": …}, …], "question": '
        "TASK})`; Who&When's files as they are"
    ),
    recognizes=is_conversation_log,
    read=read_conversation_log,
)
