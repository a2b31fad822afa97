"""Lines that add what a trace lacks: settings and code, by framework and language of the spans.

What ``support.toml`` declares (``Support.switches``) comes first. The tables are for settings that several
frameworks share, by prefix of the scope's name; the empty prefix is for all others. They are Python's; for
spans of another language's SDK, Python's settings and code are left out or translated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeAlias

from semconv.attributes import (
    GEN_AI_AGENT_NAME,
    GEN_AI_TOOL_CALL_ID,
    HANDOFF_TARGET,
    TASK_INPUT,
    TASK_OUTCOME,
)
from semconv.emit.content import CAPTURE_VARIABLE
from semconv.model import Span

Lines: TypeAlias = tuple[str, ...]


def _everywhere(*lines: str) -> Mapping[str, Lines]:
    return {"": lines}


_ON_SPANS: Final = f"{CAPTURE_VARIABLE}=SPAN_ONLY"
_OPT_IN: Final = "OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental"
_OPENINFERENCE: Final = "openinference.instrumentation."

CONTENT: Final[Mapping[str, Lines]] = {
    "blamespan.": (_ON_SPANS,),
    _OPENINFERENCE: ("OPENINFERENCE_HIDE_INPUTS=false", "OPENINFERENCE_HIDE_OUTPUTS=false"),
    "pydantic-ai": ("Agent.instrument_all(InstrumentationSettings(include_content=True))",),
    "agent_framework": ("configure_otel_providers(enable_sensitive_data=True)",),
    "strands": ("export span events: Strands writes its messages there",),
    "langfuse": ("@observe(capture_input=True, capture_output=True)",),
    "autogen": ("OpenAIInstrumentor().instrument()  # AutoGen has no spans of model calls itself",),
    "": (_OPT_IN, _ON_SPANS),
}
AGENT: Final[Mapping[str, Lines]] = {
    "blamespan.": ('with agent("researcher"):  # around the calls that are its own',),
    "pydantic-ai": ('Agent("openai:gpt-4o", name="researcher")',),
    "openinference.instrumentation.langchain": ('create_agent(model, tools, name="researcher")',),
    "opentelemetry.instrumentation.genai.langchain": ('create_agent(model, tools, name="researcher")',),
    _OPENINFERENCE: ('with tracer.start_as_current_span("researcher", openinference_span_kind="agent"):',),
    "": (f'span.set_attribute("{GEN_AI_AGENT_NAME}", "researcher")  # on agent, chat and tool spans',),
}
TASK: Final[Mapping[str, Lines]] = {
    "blamespan.": ('with run("trip", task=question) as attempt:',),
    "openinference.instrumentation.openai_agents": (
        'with run("trip", task=question):  # semconv.instrument, around Runner.run',
    ),
    "": (f'root.set_attribute("{TASK_INPUT}", question)',),
}
ROOT: Final = _everywhere(
    "from semconv.instrument import run",
    'with run("trip", task=question) as attempt:  # around all agents of one attempt',
)
CALL_ID: Final = _everywhere(f'span.set_attribute("{GEN_AI_TOOL_CALL_ID}", call.id)')
TARGET: Final = _everywhere(f'span.set_attribute("{HANDOFF_TARGET}", "writer")')
OUTCOME: Final = _everywhere(f'root.set_attribute("{TASK_OUTCOME}", "failure")  # or "success"')
CONTEXT: Final = _everywhere(
    "pool.submit(carry(research), topic)  # semconv.instrument.carry, for threads",
    "propagate.inject(headers)  # opentelemetry.propagate, for calls to other services",
)
CLOCK: Final = _everywhere("chronyc tracking  # on the hosts named; fix their time service")
DOUBLED: Final = _everywhere("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS=<one of the two>")
UNKNOWN: Final = _everywhere(
    f'span.set_attribute("{GEN_AI_AGENT_NAME}", …)  # and gen_ai.operation.name: docs/convention.md'
)

MAPPING: Final = _everywhere(
    "blamespan map FILE  # writes blamespan.mapping.yaml: correct it, then …",
    "BLAMESPAN_MAPPINGS=blamespan.mapping.yaml",
)


def for_scope(lines: Mapping[str, Lines], scope: str) -> Lines:
    """Return the lines of the longest prefix of ``scope``."""
    return lines[max((prefix for prefix in lines if scope.startswith(prefix)), key=len)]


SDK_LANGUAGE: Final = "telemetry.sdk.language"

_SETTING: Final = re.compile(r"\w+\.set_attribute\((?P<key>[^,]+), (?P<value>[^)]+)\)(?:  # (?P<note>.*))?")
_VARIABLE: Final = re.compile(r"(?!OTEL_PYTHON_|OTEL_SEMCONV_)[A-Z][A-Z0-9_]+=")
_ANYWHERE: Final = ("chronyc", "export span events")
_SETTERS: Final = {
    "java": "span.setAttribute({key}, {value});",
    "dotnet": "activity?.SetTag({key}, {value});",
    "go": "span.SetAttributes(attribute.String({key}, {value}))",
    "nodejs": "span.setAttribute({key}, {value});",
    "webjs": "span.setAttribute({key}, {value});",
}
"""Code that sets an attribute, by language of the SDK."""
_ELSEWHERE: Final = "the attributes in docs/convention.md, set in your language"


def language_of(span: Span) -> str:
    """Return the language of the SDK that wrote the span, ``python`` if it is not recorded."""
    said = span.resource.attributes.get(SDK_LANGUAGE)
    return said if isinstance(said, str) and said else "python"


def in_language(lines: Lines, language: str) -> Lines:
    """Translate Python lines into another language; lines without a counterpart are left out."""
    if language == "python":
        return lines
    found = tuple(filter(None, (_translated(line, language) for line in lines)))
    return found or (_ELSEWHERE,)


def _translated(line: str, language: str) -> str:
    setting = _SETTING.match(line)
    if setting is None:
        return line if _VARIABLE.match(line) or line.startswith(_ANYWHERE) else ""
    setter = _SETTERS.get(language, "span attribute {key} = {value}")
    note = f"  // {setting['note']}" if setting["note"] else ""
    return setter.format(key=setting["key"], value=setting["value"]) + note
