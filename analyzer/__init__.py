"""The analyzer: triage, attribution methods, verdicts, and the command line that joins everything.

The names in ``__all__`` are the public Python API; everything else may change in any release. They are
imported when they are first used, so that ``import analyzer`` takes no time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analyzer.api.client import AsyncClient, Client, ServiceError
    from analyzer.api.local import Source, attribute, attribute_async, diff, read_run, read_runs
    from analyzer.api.retrying import Retried, RetryAdvice, RetryAttempt, RetryGate, retry
    from analyzer.history.run_diff import RunDiff, StepPair
    from analyzer.inquiry.errors import AnalyzerError, ModelNeeded, UnknownMethod, UnreadableInput
    from analyzer.inquiry.whole_run import OfferedTool, RequestedCall, StepMessage, WholeRun, WholeStep
    from analyzer.records.issue_records import Issue, Workflow, WorkflowInFull
    from analyzer.records.json_records import (
        GivenLabel,
        Job,
        Label,
        LabelledRun,
        ListedRun,
        Opinion,
        QueuedRun,
        QueuedRuns,
        Quote,
        Run,
        RunPage,
        RunSteps,
        RunVerdict,
        Suspect,
        Totals,
        VerdictVersion,
    )

_PLACES = {
    "analyzer.api.client": ("AsyncClient", "Client", "ServiceError"),
    "analyzer.api.local": ("Source", "attribute", "attribute_async", "diff", "read_run", "read_runs"),
    "analyzer.api.retrying": ("Retried", "RetryAdvice", "RetryAttempt", "RetryGate", "retry"),
    "analyzer.inquiry.errors": ("AnalyzerError", "ModelNeeded", "UnknownMethod", "UnreadableInput"),
    "analyzer.history.run_diff": ("RunDiff", "StepPair"),
    "analyzer.inquiry.whole_run": ("OfferedTool", "RequestedCall", "StepMessage", "WholeRun", "WholeStep"),
    "analyzer.records.issue_records": ("Issue", "Workflow", "WorkflowInFull"),
    "analyzer.records.json_records": (
        *(
            "GivenLabel",
            "Job",
            "Label",
            "LabelledRun",
            "ListedRun",
            "Opinion",
            "QueuedRun",
            "QueuedRuns",
            "Quote",
            "Run",
        ),
        *("RunPage", "RunSteps", "RunVerdict", "Suspect", "Totals", "VerdictVersion"),
    ),
}
_PLACE_OF = {name: place for place, names in _PLACES.items() for name in names}

__all__ = [
    "AnalyzerError",
    "AsyncClient",
    "Client",
    "GivenLabel",
    "Issue",
    "Job",
    "Label",
    "LabelledRun",
    "ListedRun",
    "ModelNeeded",
    "OfferedTool",
    "Opinion",
    "QueuedRun",
    "QueuedRuns",
    "Quote",
    "RequestedCall",
    "Retried",
    "RetryAdvice",
    "RetryAttempt",
    "RetryGate",
    "Run",
    "RunDiff",
    "RunPage",
    "RunSteps",
    "RunVerdict",
    "ServiceError",
    "Source",
    "StepMessage",
    "StepPair",
    "Suspect",
    "Totals",
    "UnknownMethod",
    "UnreadableInput",
    "VerdictVersion",
    "WholeRun",
    "WholeStep",
    "Workflow",
    "WorkflowInFull",
    "attribute",
    "attribute_async",
    "diff",
    "read_run",
    "read_runs",
    "retry",
]

if not TYPE_CHECKING:  # the type checker would accept any name

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used."""
        place = _PLACE_OF.get(name)
        if place is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(place), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
