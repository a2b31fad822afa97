"""What is DSPy's own in its OpenInference spans.

Source: openinference-instrumentation-dspy 0.1 (``__init__.py``) and dspy 3.4, seen from a program of three
modules. A module's call is named after its class, ``Office.forward``; DSPy's own modules stand inside
those that a user wrote. Tools are named after their function, and ``finish`` is ``ReAct``'s own: the model
says by it that it has asked for enough.
"""

from __future__ import annotations

import re
from itertools import islice, takewhile
from typing import Final

from semconv.attributes import GEN_AI_AGENT_NAME, OPENINFERENCE_SPAN_KIND
from semconv.dialects.reading import structured, words
from semconv.dialects.surroundings import Surroundings
from semconv.model import Span

SCOPE: Final = "openinference.instrumentation.dspy"

_MODULE: Final = re.compile(r"^(?P<name>[^.()]+)\.a?forward$")
_OWN_MODULES: Final = frozenset(
    {"Predict", "ChainOfThought", "ChainOfThoughtWithHint", "ReAct", "CodeAct", "ProgramOfThought", "RLM"}
    | {"MultiChainComparison", "BestOfN", "Refine", "Parallel", "Avatar", "KNN", "Retrieve", "Ensemble"}
)
_AGENT_NAMES: Final = (GEN_AI_AGENT_NAME, "agent.name")
_CALLED: Final = (".__call__", ".acall")
_FINISH: Final = "finish"
_MAX_ANCESTORS: Final = 32
"""How far up a user's module is looked for; DSPy puts four spans between it and a model call."""


def called_tool(name: str) -> str:
    """Return the function's name out of a tool's span's."""
    return next((name.removesuffix(each) for each in _CALLED if name.endswith(each)), name)


def is_finish(span: Span) -> bool:
    """Say whether a tool only ends ``ReAct``'s loop."""
    return span.scope.name == SCOPE and called_tool(span.name) == _FINISH


def plain_result(got: str) -> str:
    """Return a tool's result as it was; a text stands there as JSON."""
    return words(structured(got)) if got.startswith('"') else got


def module_around(span: Span, surroundings: Surroundings) -> str | None:
    """Return the nearest module of the user's own that ``span`` is called in.

    None where an agent of another framework's is nearer, which a module may call: the work is that agent's.
    """
    if span.scope.name != SCOPE:
        return None
    above = takewhile(_is_no_agent, islice(surroundings.ancestors(span), _MAX_ANCESTORS))
    names = (_MODULE.match(each.name) for each in above)
    return next((each["name"] for each in names if each and each["name"] not in _OWN_MODULES), None)


def _is_no_agent(span: Span) -> bool:
    if span.scope.name == SCOPE:
        return True
    is_said = span.attributes.get(OPENINFERENCE_SPAN_KIND) == "AGENT"
    return not is_said and not any(span.attributes.get(key) for key in _AGENT_NAMES)
