"""Experiment on a recorded run, from Python: the same as ``blamespan experiment``, for any kind of workflow.

::

    async def workflow(environment: Mapping[str, str]) -> str:
        client = AsyncOpenAI(base_url=environment["OPENAI_BASE_URL"])
        ...

    result = await experiment(run, Function(call=workflow), Contains(text="480"), price=prices)
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import field
from pathlib import Path

from analyzer.experiment.call_budget import BUDGET_USD, Ledger, Price
from analyzer.experiment.candidates import Fix, Suspects, beliefs_of_calls, suspects
from analyzer.experiment.captured import Capture, capturing
from analyzer.experiment.conduct import Conductor, Watch
from analyzer.experiment.findings import Experiment
from analyzer.experiment.kept_experiments import TrialFolder
from analyzer.experiment.replay.gateway_options import GatewayOptions
from analyzer.experiment.replay.gateway_server import serving
from analyzer.experiment.replay.read_tape import read_tape, undeclared_tool
from analyzer.experiment.replay.tape import NotReplayable, Tape
from analyzer.experiment.trial_runner import Options, Parts
from analyzer.experiment.workflow import Check, Endpoint, Workflow
from analyzer.inquiry.errors import AnalyzerError
from collector_processor.core.runs import Run
from semconv.model import Ranked
from semconv.record import record, replace


class CannotReplay(AnalyzerError):  # noqa: N818 - a statement reads better at the ``raise``
    """The run cannot be replayed; the message says why and how to fix it."""


class NoSuchStep(AnalyzerError):  # noqa: N818 - as above
    """No model call of the run is the requested step or of the requested agent."""


@record
class Request:
    """The steps to try, and the budget."""

    ranking: tuple[Ranked, ...] = ()
    """The steps to suspect first; all model calls of the run follow."""
    step: int | None = None
    """Try only this step."""
    agent: str | None = None
    """Try only this agent's steps."""
    fix: Fix = field(default_factory=Fix)
    budget_usd: float = BUDGET_USD
    max_calls: int | None = None
    options: Options = field(default_factory=Options)
    gateway: GatewayOptions = field(default_factory=GatewayOptions)
    resource: str = ""
    issue: Callable[[], Awaitable[str]] | None = None
    keep: Path | None = None
    """Folder for the trials' traces, which then go nowhere else."""


@record
class Prepared:
    """A run that can be replayed, and its suspects."""

    tape: Tape
    suspects: Suspects


def prepare(run: Run, request: Request) -> Prepared:
    """Read the tape and choose the suspects; nothing is started.

    Raises:
        CannotReplay: the trace lacks data that a replay needs.
        NoSuchStep: the step or agent has no model call.
    """
    tape = tape_of(run, request.gateway)
    beliefs = _chosen(tape, beliefs_of_calls(tape, request.ranking), request)
    found = suspects(tape, beliefs, request.fix)
    if not found.candidates:
        raise NoSuchStep(f"no model call of {tape.run_id} is a step that can be tried")
    return Prepared(tape=tape, suspects=found)


def tape_of(run: Run, options: GatewayOptions) -> Tape:
    """Read a run's tape; none of its undeclared tools would really run.

    Raises:
        CannotReplay: the trace lacks data that a replay needs.
    """
    tape = read_tape(run, allow_tools=options.allow_tools)
    unsafe = None if isinstance(tape, NotReplayable) else undeclared_tool(tape, options.rules())
    if (obstacle := tape if isinstance(tape, NotReplayable) else unsafe) is not None:
        mends = (line.replace("  # ", " (") + ")" * ("  # " in line) for line in obstacle.mend)
        raise CannotReplay(f"{obstacle.reason}; {', or '.join(mends)}" if obstacle.mend else obstacle.reason)
    assert isinstance(tape, Tape)
    return tape


def _chosen(tape: Tape, beliefs: Mapping[int, float], request: Request) -> Mapping[int, float]:
    calls = [tape.calls[index] for index in beliefs]
    chosen = {
        call.index: beliefs[call.index]
        for call in calls
        if request.step in {None, call.step} and request.agent in {None, call.agent}
    }
    if chosen:
        return chosen
    steps = ", ".join(f"{call.step} ({call.agent})" for call in calls[:20])
    raise NoSuchStep(f"the step to try is no model call: expected one of {steps}")


async def experiment(  # noqa: PLR0917 - the first four define the experiment
    run: Run,
    workflow: Workflow,
    check: Check,
    price: Price,
    request: Request | None = None,
    watch: Watch | None = None,
    begun: Callable[[Conductor], None] | None = None,
) -> Experiment:
    """Find the step of a failed run whose change heals it.

    Args:
        run: the recorded run.
        workflow: runs the user's workflow once.
        check: returns whether it succeeded.
        price: prices of models, for the budget.
        request: which steps to try, and the budget.
        watch: called after each trial.
        begun: called with the conductor before the first trial, so that the caller can stop it.

    Raises:
        CannotReplay: the run cannot be replayed.
        NoSuchStep: the step or agent has no model call.
        OSError: the workflow cannot be started.
        CheckFailed: the check cannot be run.
    """
    asked = request or Request()
    prepared = prepare(run, asked)
    ledger = Ledger(price, budget_usd=asked.budget_usd, max_calls=asked.max_calls)
    options = replace(asked.gateway, reserve=ledger.reserve, settle=ledger.settle)
    async with serving(options) as gateway, AsyncExitStack() as opened:
        capture = await opened.enter_async_context(capturing()) if asked.keep else None
        parts = Parts(
            gateway=gateway,
            workflow=workflow,
            check=check,
            ledger=ledger,
            clock=time.monotonic,
            resource=asked.resource,
            issue=asked.issue,
            telemetry=capture.environment if capture else None,
            must_announce=isinstance(workflow, Endpoint),
        )
        folder = _folder(asked.keep, capture, prepared)
        keep = folder.keep if folder else None
        conductor = Conductor(prepared.tape, prepared.suspects, asked.fix, parts, asked.options, keep)
        if begun is not None:
            begun(conductor)
        result = await conductor.run(watch or (lambda _: None))
        return replace(result, kept=folder.kept(result.decisive)) if folder else result


def _folder(keep: Path | None, capture: Capture | None, prepared: Prepared) -> TrialFolder | None:
    if keep is None or capture is None:
        return None
    return TrialFolder(keep, capture, prepared.suspects.candidates)
