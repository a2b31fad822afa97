"""What is CrewAI's own in its OpenInference spans.

Source: openinference-instrumentation-crewai 1.1.21 (wrappers, and the event listener behind
``use_event_listener``) and crewai 1.15, ``tools/agent_tools``, seen from sequential and hierarchical
crews. Wrappers show no model call, and a coworker at work has no span but the tool that delegated to
it; that span is therefore the coworker's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from semconv.dialects.action import Message
from semconv.dialects.conversation import last_request
from semconv.dialects.messages import messages_of
from semconv.dialects.payloads import asked
from semconv.dialects.reading import items, mapping, words
from semconv.dialects.surroundings import Surroundings
from semconv.dialects.transfers import delegation_target
from semconv.model import Span

SCOPE: Final = "openinference.instrumentation.crewai"
CREW_TASKS: Final = "crew_tasks"
CREW_INPUTS: Final = "crew_inputs"
CREW_AGENTS: Final = "crew_agents"

_REFUSED: Final = "Error executing tool"
"""Begins the result of a delegation to a coworker who does not exist, or who could not be run."""
_FAILED: Final = "Error executing task with agent"
"""Begins the result where the coworker failed; the span of the delegation is fine."""
_BLANK: Final = re.compile(r"\{\w+\}")
_NOT_PLANNED: Final = frozenset({"", "None"})


def crew_task(span: Span, got: str) -> str:
    """Return what CrewAI asked: a crew's inputs and tasks, or the prompt in a task's report."""
    tasks = items(span.attributes.get(CREW_TASKS))
    if tasks:
        inputs = asked(span.attributes.get(CREW_INPUTS))
        planned = "\n".join(words(mapping(each).get("description")) for each in tasks)
        # The event listener writes templates without what they were filled with: the first prompt has both.
        return "\n".join(filter(None, (inputs, planned))) if inputs or not _BLANK.search(planned) else ""
    report = mapping(got) if '"expected_output"' in got else {}
    return last_request(messages_of(report.get("messages"))) or words(report.get("description"))


def coworker_at_work(span: Span, tool: str, given: str, got: str, surroundings: Surroundings) -> str | None:
    """Return the role of the agent that ``tool`` had work; ``None`` for any other tool.

    Models spell roles freely, and CrewAI compares them without case, quotes and spaces around.
    """
    if not span.scope.name.startswith(SCOPE) or got.lstrip().startswith(_REFUSED):
        return None
    named = delegation_target(tool, given)
    if named is None:
        return None
    roles = {_plain(role): role for role in _roles(span, surroundings)}
    return roles.get(_plain(named), named)


def failure_in(got: str) -> str:
    """Return what a delegation's result says of the coworker's failure, if it failed."""
    return got.strip() if got.lstrip().startswith(_FAILED) else ""


def _roles(span: Span, surroundings: Surroundings) -> list[str]:
    crew = next((each for each in surroundings.ancestors(span) if CREW_AGENTS in each.attributes), None)
    agents = items(crew.attributes[CREW_AGENTS]) if crew is not None else ()
    return [role for each in agents if (role := words(mapping(each).get("role"))) not in _NOT_PLANNED]


def _plain(role: str) -> str:
    return " ".join(role.replace('"', "").casefold().split())


def calls_in(got: str) -> Sequence[Message]:
    """Return a model's reply that is nothing but the list of calls it asks for (the event listener's)."""
    if not got.startswith("[{") or '"function"' not in got:
        return ()
    said = messages_of({"role": "assistant", "tool_calls": items(got)})
    return said if any(message.calls for message in said) else ()
