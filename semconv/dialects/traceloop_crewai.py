"""What is CrewAI's own in Traceloop's spans.

Source: opentelemetry-instrumentation-crewai 0.62 and crewai 1.15, seen from a sequential crew. The
crew's span says what was planned and what came of it, without any mark of Traceloop's; a task's span
has the words of the agent below it, whose own span has none. Tools have no spans.
"""

from __future__ import annotations

from typing import Final

from semconv.dialects.reading import items, mapping, text, words
from semconv.dialects.surroundings import Surroundings
from semconv.model import Span

CREW_RESULT: Final = "crewai.crew.result"
CREW_TASKS: Final = "crewai.crew.tasks"
TASK_DESCRIPTION: Final = "crewai.task.description"
TASK_OUTPUT: Final = "traceloop.entity.output"


def is_crew(span: Span) -> bool:
    """Say whether the span is that of a crew's whole run."""
    return CREW_TASKS in span.attributes or CREW_RESULT in span.attributes


def crew_plan(span: Span) -> str:
    """Return what a crew was to do: its tasks in order, each wording once."""
    planned = (words(mapping(each).get("description")) for each in items(span.attributes.get(CREW_TASKS)))
    return "\n".join(filter(None, dict.fromkeys(planned)))


def task_words(span: Span, surroundings: Surroundings) -> tuple[str, str]:
    """Return what the agent of ``span`` was asked and what it answered, by the task right above it."""
    above = surroundings.parent(span)
    if above is None or TASK_DESCRIPTION not in above.attributes:
        return "", ""
    is_alone = len(surroundings.children(above)) == 1
    answer = text(above.attributes, TASK_OUTPUT) if is_alone else None
    return text(above.attributes, TASK_DESCRIPTION) or "", answer or ""
