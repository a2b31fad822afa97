"""All file formats that are read, in the order in which they are tried."""

from __future__ import annotations

from typing import Final

from analyzer.recordings.ag2_chats import AG2
from analyzer.recordings.agent_framework_messages import AGENT_FRAMEWORK
from analyzer.recordings.anthropic_messages import ANTHROPIC
from analyzer.recordings.autogen_messages import AUTOGEN
from analyzer.recordings.backend_json import JAEGER, TEMPO
from analyzer.recordings.bedrock_messages import BEDROCK
from analyzer.recordings.claude_code_session import CLAUDE_CODE
from analyzer.recordings.codex_session import CODEX
from analyzer.recordings.conversation_log import CONVERSATION_LOG
from analyzer.recordings.crewai_log import CREWAI
from analyzer.recordings.datadog_spans import DATADOG
from analyzer.recordings.file_format import FileFormat
from analyzer.recordings.gemini_contents import ADK, GEMINI
from analyzer.recordings.gemini_session import GEMINI_SESSION
from analyzer.recordings.langchain_messages import LANGCHAIN
from analyzer.recordings.langfuse_export import LANGFUSE
from analyzer.recordings.langgraph_stream import LANGGRAPH
from analyzer.recordings.langsmith_runs import LANGSMITH
from analyzer.recordings.llama_index_messages import LLAMA_INDEX
from analyzer.recordings.logfire_rows import LOGFIRE
from analyzer.recordings.mlflow_traces import MLFLOW
from analyzer.recordings.openai_agents_export import OPENAI_AGENTS
from analyzer.recordings.openai_chat import OPENAI_CHAT
from analyzer.recordings.openai_responses import OPENAI_RESPONSES
from analyzer.recordings.opencode_session import OPENCODE
from analyzer.recordings.openhands_events import OPENHANDS
from analyzer.recordings.otlp_file import OTLP
from analyzer.recordings.phoenix_spans import PHOENIX
from analyzer.recordings.printed_spans import CONSOLE, GO
from analyzer.recordings.pydantic_ai_messages import PYDANTIC_AI
from analyzer.recordings.smolagents_steps import SMOLAGENTS
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
    CLAUDE_CODE,
    CODEX,
    GEMINI_SESSION,
    OPENCODE,
    OPENHANDS,
    SWE_AGENT,
    OPENAI_RESPONSES,
    ANTHROPIC,
    BEDROCK,
    ADK,
    GEMINI,
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
