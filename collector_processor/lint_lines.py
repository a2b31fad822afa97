"""The line that mends a lack, for the framework that wrote the spans.

What a dialect declares (``Support.switches``) comes first. The tables below are for the settings
that several frameworks share, told by the beginning of the scope's name; the last entry of each is
for all others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from semconv.attributes import (
    GEN_AI_AGENT_NAME,
    GEN_AI_TOOL_CALL_ID,
    HANDOFF_TARGET,
    TASK_INPUT,
    TASK_OUTCOME,
)
from semconv.dialects import DIALECTS
from semconv.emit.content import CAPTURE_VARIABLE
from semconv.model import Span

Lines: TypeAlias = tuple[str, ...]

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
ROOT: Final[Lines] = (
    "from semconv.instrument import run",
    'with run("trip", task=question) as attempt:  # around all agents of one attempt',
)
CALL_ID: Final[Lines] = (f'span.set_attribute("{GEN_AI_TOOL_CALL_ID}", call.id)',)
TARGET: Final[Lines] = (f'span.set_attribute("{HANDOFF_TARGET}", "writer")',)
OUTCOME: Final[Lines] = (f'root.set_attribute("{TASK_OUTCOME}", "failure")  # or "success"',)
CONTEXT: Final[Lines] = (
    "pool.submit(carry(research), topic)  # semconv.instrument.carry, for threads",
    "propagate.inject(headers)  # opentelemetry.propagate, for calls to other services",
)
CLOCK: Final[Lines] = ("chronyc tracking  # on the hosts named; mend their time service",)
DOUBLED: Final[Lines] = ("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS=<one of the two>",)
UNKNOWN: Final[Lines] = (
    f'span.set_attribute("{GEN_AI_AGENT_NAME}", …)  # and gen_ai.operation.name: docs/convention.md',
)


def limit_of(spans: Sequence[Span]) -> Lines:
    """Return the limit that would have kept every attribute, a power of two."""
    needed = max(len(span.attributes) + span.dropped_attributes for span in spans)
    return (f"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT={1 << max(needed - 1, 1).bit_length()}",)


def for_scope(lines: Mapping[str, Lines], scope: str) -> Lines:
    """Return the lines under the longest beginning of ``scope``."""
    return lines[max((prefix for prefix in lines if scope.startswith(prefix)), key=len)]


def for_content(dialect: str, scope: str) -> Lines:
    """Return what turns content on: as the dialect declares it for this scope, else by the table."""
    declared = (
        support.switches
        for each in DIALECTS
        if each.name == dialect
        for support in each.support
        if support.switches and support.scopes and scope.startswith(support.scopes)
    )
    return next(declared, for_scope(CONTENT, scope))
