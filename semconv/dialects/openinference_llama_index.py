"""What is LlamaIndex's own in its OpenInference spans.

Source: openinference-instrumentation-llama-index 4.6 and llama-index-core 0.14
(``agent/workflow``), seen from an ``AgentWorkflow`` of three function agents. It
writes every method call with its arguments as they print: no span names the
agent, but what a step of the workflow was given ends in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import Final

from semconv.dialects.payloads import content_of
from semconv.dialects.reading import mapping, text, words
from semconv.dialects.surroundings import Surroundings
from semconv.model import Span

SCOPE: Final = "openinference.instrumentation.llama_index"
INPUT_VALUE: Final = "input.value"

_STATE: Final = '{"init_state":'
"""Begins the input of a workflow's run: its wiring, and of what was asked not a word."""
_EVENT: Final = re.compile(r"(?:Stop|AgentWorkflowStart|Start)Event\(|Agent(?:Output|Input|Setup)\(")
_METHOD_KEYS: Final = frozenset({"args", "kwargs"})
_CONTEXT: Final = frozenset({"ctx", "context"})
"""Arguments that a workflow hands to its tools, and no model wrote."""
_OUTPUT_KEYS: Final = frozenset({"blocks", "tool_name", "is_error"})
_AGENT: Final = re.compile(r"\bcurrent_agent_name='([^']{1,200})'\)*$")
"""Stands at the end, behind all that users and models said."""
_TAIL: Final = 300
"""Characters at an event's end in which the agent is looked for."""
_MAX_ANCESTORS: Final = 16


def is_preparation(span: Span) -> bool:
    """Say whether the span is a private method's, which no model answers: ``_prepare_chat_with_tools``."""
    return span.scope.name == SCOPE and span.name.rpartition(".")[2].startswith("_")


def is_machinery(told: str) -> bool:
    """Say whether a run's input or output is a workflow's wiring, not what a person asked or was told."""
    return told.startswith(_STATE) or _EVENT.match(told) is not None


def without_context(given: str) -> str:
    """Return a tool's arguments out of the method call that they were handed over in."""
    call = mapping(given) if '"kwargs"' in given else {}
    named = call.get("kwargs")
    if not call.keys() <= _METHOD_KEYS or not isinstance(named, Mapping) or call.get("args"):
        return given
    return words({name: value for name, value in named.items() if name not in _CONTEXT})


def tool_words(got: str) -> str:
    """Return a tool's result out of the ``ToolOutput`` that it is handed back in."""
    value = mapping(got) if '"blocks"' in got else {}
    if not value.keys() >= _OUTPUT_KEYS:
        return got
    return content_of({"role": "tool", "content": value["blocks"]}) or words(value.get("raw_output"))


def workflow_agent(span: Span, surroundings: Surroundings) -> str | None:
    """Return the agent whose step of an ``AgentWorkflow`` encloses ``span``."""
    if span.scope.name != SCOPE:
        return None
    for each in (span, *islice(surroundings.ancestors(span), _MAX_ANCESTORS)):
        if (found := surroundings.once(_stepping, each)) is not None:
            return found
    return None


def _stepping(span: Span) -> str | None:
    """Return the agent that the event names which a step was given."""
    event = text(mapping(span.attributes.get(INPUT_VALUE)), "ev") or ""
    found = _AGENT.search(event[-_TAIL:])
    return found[1] if found else None
