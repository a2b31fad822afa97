"""Dialects: one reader for each way that frameworks write spans.

To add one, write its file and add a line to ``DIALECTS``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from semconv.dialects.conventions.blamespan import BLAMESPAN
from semconv.dialects.conventions.laminar import LAMINAR
from semconv.dialects.conventions.langfuse import LANGFUSE
from semconv.dialects.conventions.langsmith import LANGSMITH
from semconv.dialects.conventions.logfire import LOGFIRE
from semconv.dialects.conventions.mlflow import MLFLOW
from semconv.dialects.conventions.openinference import OPENINFERENCE
from semconv.dialects.conventions.openlit import OPENLIT
from semconv.dialects.conventions.otel_genai import OTEL_GENAI
from semconv.dialects.conventions.traceloop import TRACELOOP
from semconv.dialects.conventions.vercel_ai import VERCEL_AI
from semconv.dialects.frameworks.ag2 import AG2
from semconv.dialects.frameworks.agent_framework import AGENT_FRAMEWORK
from semconv.dialects.frameworks.autogen import AUTOGEN
from semconv.dialects.frameworks.claude_code import CLAUDE_CODE
from semconv.dialects.frameworks.genkit import GENKIT
from semconv.dialects.frameworks.google_adk import GOOGLE_ADK
from semconv.dialects.frameworks.haystack import HAYSTACK
from semconv.dialects.frameworks.langchain4j import LANGCHAIN4J
from semconv.dialects.frameworks.langgraph import resumption_keys
from semconv.dialects.frameworks.litellm import LITELLM
from semconv.dialects.frameworks.mastra import MASTRA
from semconv.dialects.frameworks.openai_agents import OPENAI_AGENTS_V2
from semconv.dialects.frameworks.pydantic_ai import PYDANTIC_AI
from semconv.dialects.frameworks.spring_ai import SPRING_AI
from semconv.dialects.frameworks.strands import STRANDS
from semconv.dialects.generic.infer import Inferred, infer
from semconv.dialects.mapped import MAPPED
from semconv.dialects.reading.action import (
    Action,
    ActionKind,
    Dialect,
    Judgement,
    Message,
    Read,
    RunKeys,
    Surroundings,
    key_of,
)
from semconv.dialects.reading.guardrails import read_judgements, with_finish
from semconv.model import Span, ToolCall
from semconv.record import replace

DIALECTS: Final[tuple[Dialect, ...]] = (
    BLAMESPAN,
    AUTOGEN,
    OPENINFERENCE,  # before gen_ai: OpenInference adds to the gen_ai spans of pydantic-ai and Strands
    GOOGLE_ADK,  # from here to Claude Code: recognised by scope, even if others add attributes
    STRANDS,
    CLAUDE_CODE,
    LANGFUSE,
    LANGSMITH,
    MLFLOW,
    LOGFIRE,
    LITELLM,  # before Traceloop: it writes one of Traceloop's marks, onto other spans too
    OPENAI_AGENTS_V2,  # before gen_ai: it fills gen_ai attributes with placeholders
    TRACELOOP,  # before gen_ai: newer Traceloop versions write both
    PYDANTIC_AI,
    AGENT_FRAMEWORK,
    AG2,
    VERCEL_AI,
    MASTRA,  # before gen_ai: the messages of its calls are on the enclosing span
    SPRING_AI,  # before gen_ai: its operation `framework` carries no information
    GENKIT,
    LAMINAR,  # after Traceloop, whose instrumentations of model SDKs it bundles
    OPENLIT,  # before gen_ai: it uses gen_ai operations for other things
    LANGCHAIN4J,  # before gen_ai: a failure is only an exception event
    OTEL_GENAI,
    HAYSTACK,  # last: known by the span's name alone
)
"""The dialects in order of precedence: the first one that reads a span wins."""

RUN_KEYS: Final[tuple[RunKeys, ...]] = (
    *(dialect.run_keys for dialect in DIALECTS if dialect.run_keys is not None),
    resumption_keys,  # LangGraph has no dialect of its own: several write its spans
)
"""The frameworks' own ids of runs: the keys by which traces are joined besides their links."""


_STEPS: Final = frozenset(ActionKind) - {
    ActionKind.WORKFLOW,
    ActionKind.CONTAINER,
    ActionKind.EVALUATION,
    ActionKind.SETUP,
}
"""Kinds that show that a dialect knows the run."""


_SCOPE_CHARS: Final = 100
"""Characters of a scope's name that are compared; no dialect needs more."""
_MOST_CANDIDATES: Final = 512
"""Combinations of scope and marking attributes remembered; a deployment sees a few dozen."""


class Reader:
    """Reads spans through dialects; infers the actions of a run that no dialect knows.

    Args:
        dialects: in order of precedence; mappings, which users write, come first.
        infers: whether ``generic`` may infer the actions of a run in which no dialect finds a step.
    """

    def __init__(self, dialects: tuple[Dialect, ...] = DIALECTS, *, infers: bool = True) -> None:
        self.dialects: Final = dialects
        self._infers: Final = infers
        self._marks: Final = frozenset[str]().union(*(dialect.keys for dialect in dialects))
        self._known: Final[dict[tuple[str, frozenset[str]], tuple[Read, ...]]] = {}

    @property
    def marks(self) -> frozenset[str]:
        """The attributes by which mappings recognise their spans: they mark an agent's trace."""
        return frozenset[str]().union(*(each.keys for each in self.dialects if each.name.startswith(MAPPED)))

    def action(self, span: Span, surroundings: Surroundings) -> Action | None:
        """Return the span's action, or ``None`` if no dialect knows it."""
        for read in self._candidates(
            span.scope.name[:_SCOPE_CHARS], self._marks.intersection(span.attributes)
        ):
            action = read(span, surroundings)
            if action is not None:
                return with_finish(_evaluated(_trimmed(action), span), span)
        return None

    def actions(self, surroundings: Surroundings) -> tuple[Sequence[Action | None], Inferred | None]:
        """Return the actions of all spans, parents first, and the inference if no dialect reads the run."""
        walked = surroundings.walked
        actions = [self.action(span, surroundings) for span in walked]
        if not self._infers or any(action is not None and action.kind in _STEPS for action in actions):
            return actions, None
        inferred = infer(
            surroundings, frozenset(key_of(s) for s, a in zip(walked, actions, strict=True) if a)
        )
        if inferred is None:
            return actions, None
        return [
            action or ((guess := inferred.actions.get(key_of(span))) and _evaluated(guess, span))
            for span, action in zip(walked, actions, strict=True)
        ], inferred

    def _candidates(self, scope: str, marks: frozenset[str]) -> tuple[Read, ...]:
        """Return the dialects that may read spans of a scope with these marking attributes, in order."""
        known = self._known.get((scope, marks))
        if known is not None:
            return known
        if len(self._known) >= _MOST_CANDIDATES:
            self._known.clear()
        found = tuple(
            dialect.read
            for dialect in self.dialects
            if not (dialect.scopes or dialect.keys)
            or scope.startswith(dialect.scopes)
            or not marks.isdisjoint(dialect.keys)
        )
        self._known[scope, marks] = found
        return found


def _trimmed(action: Action) -> Action:
    """Return the action with names without space around them: in YAML a name may end with its line."""
    agent, target = (name if name is None else name.strip() or None for name in (action.agent, action.target))
    if (agent, target) == (action.agent, action.target):
        return action
    return replace(action, agent=agent, target=target)


def _evaluated(action: Action, span: Span) -> Action:
    """Add the evaluations on the span: any backend writes them, whatever wrote the span."""
    judgements = read_judgements(span)
    return replace(action, judgements=judgements) if judgements else action


USUAL: Final = Reader()
"""Reads through the dialects alone, then by inference."""


__all__ = [
    "DIALECTS", "RUN_KEYS", "USUAL", "Action", "ActionKind", "Dialect", "Inferred", "Judgement", "Message",
    "Reader", "Surroundings", "ToolCall",
]  # fmt: skip
