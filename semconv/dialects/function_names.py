"""Whose step it is where functions are traced and nobody is called an agent.

A plain ``@observe`` or ``@traceable`` leaves spans named after functions, as langgraph leaves them named
after nodes where its metadata is masked. The outermost function below the run's own is the best name
there is for who acted.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from semconv.dialects.langgraph import NAMELESS_GRAPHS, NOBODY, PLUMBING_NODES, Found
from semconv.dialects.surroundings import Surroundings
from semconv.model import AgentSource, Span

_MAX_ANCESTORS = 64
_CLASSES = ("Runnable", "Channel", "Prompt")
_KINDS_OF_CLASS = ("Chain", "Executor", "OutputParser")


def function_agent(
    span: Span,
    surroundings: Surroundings,
    *,
    is_traced: Callable[[Span], bool],
    is_agent: Callable[[Span], bool],
) -> Found:
    """Return the outermost function around ``span`` and below the run's own.

    Nobody, where an agent is above (the calls below it are its own) or no function is between.

    Args:
        span: a model call or a tool.
        surroundings: of the run.
        is_traced: says whether a span is of the same tracer.
        is_agent: says whether a span is an agent's.
    """
    above = [each for each in islice(surroundings.ancestors(span), _MAX_ANCESTORS) if is_traced(each)]
    if any(map(is_agent, above)):
        return NOBODY
    named = [each.name for each in above[:-1] if _is_a_name(each.name)]
    return Found(named[-1], AgentSource.SPAN_NAME) if named else NOBODY


def _is_a_name(name: str) -> bool:
    is_part = name in PLUMBING_NODES or name in NAMELESS_GRAPHS
    is_template = "{" in name  # Logfire
    is_class = name.startswith(_CLASSES) or name.endswith(_KINDS_OF_CLASS)  # langchain's own
    return not is_part and not is_template and not is_class
