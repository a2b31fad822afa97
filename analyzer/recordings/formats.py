"""Registry of the formats of files, and the reader of any records: the format is detected by content.

The first of ``FORMATS`` that recognises the records reads them. Spans in a foreign form are converted to
OTLP, so that a file is processed like live spans from there on.
"""

from __future__ import annotations

from typing import Final

from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.ag2_chats import AG2
from analyzer.recordings.agent_framework_messages import AGENT_FRAMEWORK
from analyzer.recordings.agent_runs import AGENT_RUNS
from analyzer.recordings.agent_turns import AGENT_TURNS
from analyzer.recordings.anthropic_messages import ANTHROPIC
from analyzer.recordings.autogen_messages import AUTOGEN
from analyzer.recordings.backend_json import JAEGER, TEMPO
from analyzer.recordings.bedrock_messages import BEDROCK
from analyzer.recordings.chatgpt_export import CHATGPT
from analyzer.recordings.claude_code_session import CLAUDE_CODE
from analyzer.recordings.claude_export import CLAUDE_EXPORT
from analyzer.recordings.codex_session import CODEX
from analyzer.recordings.conversation_log import (
    CONVERSATION_LOG,
    LOG_LEVELS,
    OF_A_ROOM,
    is_conversation,
    is_of_room,
    is_request,
    pair_of,
)
from analyzer.recordings.crewai_log import CREWAI
from analyzer.recordings.datadog_spans import DATADOG
from analyzer.recordings.defects import DOCUMENTS, ROWS, Words
from analyzer.recordings.fields import json_text, opened
from analyzer.recordings.file_text import EMPTY, TABLES, FileText
from analyzer.recordings.gemini_contents import ADK, GEMINI
from analyzer.recordings.gemini_session import GEMINI_SESSION
from analyzer.recordings.haystack_messages import HAYSTACK
from analyzer.recordings.langchain_messages import LANGCHAIN
from analyzer.recordings.langfuse_export import LANGFUSE
from analyzer.recordings.langgraph_stream import LANGGRAPH, is_empty_state
from analyzer.recordings.langsmith_runs import LANGSMITH
from analyzer.recordings.llama_index_messages import LLAMA_INDEX
from analyzer.recordings.logfire_rows import LOGFIRE
from analyzer.recordings.mlflow_traces import MLFLOW
from analyzer.recordings.model_calls import whole_calls
from analyzer.recordings.openai_agents_export import OPENAI_AGENTS
from analyzer.recordings.openai_chat import OPENAI_CHAT
from analyzer.recordings.openai_responses import OPENAI_RESPONSES
from analyzer.recordings.opencode_session import OPENCODE
from analyzer.recordings.openhands_events import OPENHANDS
from analyzer.recordings.otlp_file import OTLP
from analyzer.recordings.phoenix_spans import PHOENIX
from analyzer.recordings.printed_spans import CONSOLE, GO
from analyzer.recordings.pydantic_ai_messages import PYDANTIC_AI
from analyzer.recordings.recording import FileFormat, Recording, Records, merged, read_as
from analyzer.recordings.smolagents_steps import SMOLAGENTS
from analyzer.recordings.span_rows import SPAN_ROWS
from analyzer.recordings.swe_agent import SWE_AGENT
from analyzer.recordings.vercel_messages import VERCEL
from analyzer.recordings.weave_calls import WEAVE
from analyzer.recordings.zipkin_spans import ZIPKIN

FORMATS: Final[tuple[FileFormat, ...]] = (
    OTLP,
    JAEGER,
    TEMPO,
    CONSOLE,
    GO,
    MLFLOW,
    PHOENIX,
    LANGSMITH,
    OPENAI_AGENTS,
    LOGFIRE,
    WEAVE,
    DATADOG,
    ZIPKIN,
    LANGFUSE,
    SPAN_ROWS,
    AGENT_RUNS,
    AGENT_TURNS,
    CLAUDE_CODE,
    CODEX,
    GEMINI_SESSION,
    OPENCODE,
    OPENHANDS,
    SWE_AGENT,
    CHATGPT,
    CLAUDE_EXPORT,
    OPENAI_RESPONSES,
    ANTHROPIC,
    BEDROCK,
    ADK,
    GEMINI,
    HAYSTACK,
    LANGCHAIN,
    LANGGRAPH,
    VERCEL,
    SMOLAGENTS,
    PYDANTIC_AI,
    LLAMA_INDEX,
    CREWAI,
    AUTOGEN,
    AGENT_FRAMEWORK,
    AG2,
    OPENAI_CHAT,
    CONVERSATION_LOG,
)
"""Exports of spans first, then messages; of two that may recognise the same keys, the stricter one first."""

_MESSAGES: Final = (None, *FORMATS[FORMATS.index(OPENAI_RESPONSES) :])
"""Formats that may hold the requests and answers of a model API."""
_BY_NAME: Final = frozenset(_MESSAGES) - {None, CONVERSATION_LOG}
"""Formats of dialogues that may stand below names of any kind: a log's keys are too common there."""
_MOST_WRAPPERS: Final = 6
"""Objects around the records that are opened, one in the other."""
_MOST_KEYS: Final = 8
_LONGEST_KEY: Final = 24
_PRINTED: Final = " additional_kwargs={"
"""Part of a message of LangChain as Python prints it."""
_HOW_PRINTED: Final = (
    "messages of LangChain that Python printed as text: json.dumps(…, default=lambda one: one.model_dump())"
    " keeps what they are, default=str does not"
)
_EXPECTED: Final = (
    "expected OTLP (JSON or protobuf), an export of Jaeger, Tempo, Langfuse, Phoenix, LangSmith, MLflow or"
    " another tracing tool, the messages of a model API or framework, or a coding agent's session:"
    f" docs/files.md lists all {len(FORMATS)} formats; spans with keys of your own: blamespan map"
)


def read_records(text: FileText) -> Recording:
    """Read records as one recording or, if they are of several kinds, each by itself.

    Raises:
        UnreadableInput: they have none of the formats; the message describes what they look like.
    """
    records: Records | None = text.records
    refusal: UnreadableInput | None = None
    words = ROWS if text.form in TABLES else DOCUMENTS
    for _ in range(_MOST_WRAPPERS):
        if not records:
            break
        try:
            if (found := _known(records, words)) is not None:
                return found
        except UnreadableInput as error:
            if _recognized(records) is not CONVERSATION_LOG:
                raise
            refusal = refusal or error  # the messages of other formats may stand in objects of their own
        records = opened(records)
    if (found := _by_name(text.records)) is not None:
        return found
    if _PRINTED in json_text(list(text.records[:_MOST_KEYS])):
        raise UnreadableInput(_HOW_PRINTED)
    if refusal is not None:
        raise refusal
    parts = _parts(text.records)
    unknown = next((part for part in parts if _format_of(part)[0] is None), [])
    raise UnreadableInput(described(text, unknown))


def _known(records: Records, words: Words) -> Recording | None:
    """Read records of one format, or of a known format each."""
    whole, calls = _format_of(records)
    if whole is not None and (whole is not CONVERSATION_LOG or not all(map(is_conversation, records))):
        return read_as(whole, calls, words=words)
    # Documents with messages: what seems to be a log of each may be a session or a state of a framework.
    found = [_format_of(part) for part in _parts(records)]
    formats = [own for own, _ in found if own is not None]
    if len(formats) == len(found) and (whole is None or CONVERSATION_LOG not in formats):
        return merged(
            read_as(own, part, place=f"document {number}, ")
            for number, (own, (_, part)) in enumerate(zip(formats, found, strict=True), start=1)
        )
    return None if whole is None else read_as(whole, calls, words=words)


def _by_name(records: Records) -> Recording | None:
    """Read the only document as dialogues by their names: ``{"first": {"messages": …}, "second": …}``."""
    only = records[0] if len(records) == 1 and isinstance(records[0], dict) else {}
    found = [_format_of(part) for part in _parts([*only.values()]) if part]
    known = [(own, part) for own, part in found if own in _BY_NAME and own is not None]
    if not known or len(known) < len(only):
        return None
    return merged(read_as(own, part) for own, part in known)


def _parts(records: Records) -> list[Records]:
    return [record if isinstance(record, list) else [record] for record in records]


def _format_of(records: Records) -> tuple[FileFormat | None, Records]:
    """Return the format of records, and the records as its reader takes them."""
    found = _recognized(records)
    calls = whole_calls(records) if found in _MESSAGES else records
    return (found, records) if calls is records else (_recognized(calls), calls)


def _recognized(records: Records) -> FileFormat | None:
    found = (one.of(records) for one in FORMATS if records)
    return next(filter(None, found), None)


# --- refusals ---


def described(text: FileText | None, unknown: Records) -> str:
    """Return the reason why a file is refused.

    Args:
        text: the file's records; ``None`` if it is neither JSON nor YAML nor a table.
        unknown: the first records that no format recognises.
    """
    if text is not None and not text.records:
        return "is empty" if text.form == EMPTY else f"{text.form} without content"
    return f"{_looks_like(text, unknown)}; {_EXPECTED}"


def _looks_like(text: FileText | None, unknown: Records) -> str:
    if text is None:
        return (
            "neither JSON nor YAML nor a table nor OTLP protobuf, nor a transcript whose turns begin with"
            " **User:** and **Assistant:**, one of them twice"
        )
    one = unknown[0] if unknown else None
    if is_empty_state([*text.records]) or all(map(is_empty_state, text.records)):
        return "a LangGraph stream of empty states only, which is no run: nothing was written yet"
    if not isinstance(one, dict) or is_of_room(one):
        return OF_A_ROOM if is_of_room(one) else f"{text.form} of unknown content ({type(one).__name__})"
    keys = ", ".join(" ".join(str(key).split())[:_LONGEST_KEY] for key in list(one)[:_MOST_KEYS]) or "none"
    if any(key in one for key in LOG_LEVELS) or is_request(one):
        return f"the log of an application: {text.form} with the keys {keys}"
    if pair_of(text.records) is not None:
        return (
            f"comments, e-mails or commits, by their keys and authors: {text.form} with the keys {keys}; if"
            " agents wrote them, name the keys 'agent' and 'content'"
        )
    return f"unknown format: {text.form} with the keys {keys}"
