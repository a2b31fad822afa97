"""What is Agno's own in Traceloop's spans.

Source: opentelemetry-instrumentation-agno 0.62 (``_tool_wrappers.py``) and agno 3.1, seen from a team. A
team is a workflow's span, and its leader an agent like any other; model calls have no spans. A tool's
output is the ``str`` of agno's ``FunctionExecutionResult``; a delegation returns a generator, so its span
ends before the member begins, beside it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from semconv.dialects.python_repr import from_repr
from semconv.dialects.reading import text, words
from semconv.model import Span

TEAM_NAME: Final = "agno.team.name"

_EXECUTION: Final = re.compile(
    r"status='(?P<status>success|failure)' result=(?P<result>.*) error=(?P<error>.*) updated_session_state=",
    re.DOTALL,
)
_GENERATOR: Final = re.compile(r"<(?:async_)?generator object ")


@dataclass(frozen=True, slots=True)
class Execution:
    """What came of a tool."""

    result: Any
    failed: bool = False
    error: str = ""


def team_of(span: Span) -> str | None:
    """Return the name of the team whose run this is."""
    return text(span.attributes, TEAM_NAME)


def execution_in(got: Any) -> Execution:
    """Return what came of a tool, out of Agno's report where it is one."""
    report = _EXECUTION.match(got) if isinstance(got, str) else None
    if report is None:
        return Execution(got)
    fields: Mapping[str, Any] = {key: _literal(report[key]) for key in ("result", "error")}
    return Execution(fields["result"], report["status"] == "failure", words(fields["error"]))


def _literal(shown: str) -> Any:
    """Return what a ``repr`` shows; nothing of a generator, whose results are told elsewhere."""
    if _GENERATOR.match(shown):
        return None
    found = from_repr(f"({shown},)")
    return found[0] if isinstance(found, tuple) else shown
