"""The user's program in trials, with what is seen of it: which agent broke a trial that failed. Not pure.

Model calls pass a recorder on their way to the replay gateway, and OpenTelemetry spans come here, as with
``blamespan run``: a program that sends no spans is judged by its calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from analyzer.cli.run_report import Reporter
from analyzer.experiment.captured import Capture
from analyzer.experiment.running.trial_runner import Ran
from analyzer.experiment.running.workflow import Command, Ended
from analyzer.inquiry.errors import AnalyzerError
from analyzer.programs.child import Ended as ChildEnded
from analyzer.programs.child import Seen
from analyzer.programs.model_call import PassedCall
from analyzer.programs.recording_gateway import recording
from collector_processor.otlp import CollectorError
from semconv.emit.tool_playback import TRIAL_VARIABLE
from semconv.model import Blame

_NAME: Final = "workflow"


class Watching:
    """What was seen of trials that are not judged yet."""

    def __init__(self, capture: Capture, reporter: Reporter, blamed: Mapping[str, str]) -> None:
        """Expect trials.

        Args:
            capture: receives the trials' spans.
            reporter: judges runs that failed.
            blamed: the agent that each recorded run's verdict blames, by the run's id.
        """
        self._capture: Final = capture
        self._reporter: Final = reporter
        self._blamed: Final = blamed
        self._calls: Final[dict[str, tuple[PassedCall, ...]]] = {}

    def keep(self, root_url: str, calls: tuple[PassedCall, ...]) -> None:
        """Keep the calls of a trial until it is judged."""
        self._calls[root_url.rpartition("/")[2]] = calls

    async def judge(self, run: str, ran: Ran) -> str:
        """Return the agent that broke a trial; empty if none did, or names cannot be compared.

        The names of a program's agents come from its spans or its prompts. If no agent of the trial has the
        name that the recorded run's verdict blames, another name says nothing.
        """
        telemetry, calls = self._capture.take(ran.trial), self._calls.pop(ran.trial, ())
        if ran.result.success or ran.result.invalid:
            return ""
        seen = Seen(
            program=_NAME,
            ended=ChildEnded(code=0),
            traces=telemetry.spans,
            logs=telemetry.logs,
            calls=calls,
            has_gateway=True,
        )
        try:
            judged = await self._reporter.judge(seen)
        except (AnalyzerError, CollectorError):  # its telemetry is damaged: the trial's outcome still counts
            return ""
        if not judged:
            return ""
        last, verdict = judged[-1].trajectory, judged[-1].attribution.verdict
        is_comparable = self._blamed.get(run) in {step.agent for step in last.steps}
        return verdict.agent if is_comparable and isinstance(verdict, Blame) else ""


class WatchedProgram:
    """A command whose model calls are recorded too."""

    def __init__(self, command: Command, watching: Watching) -> None:
        """Run ``command`` once for each trial."""
        self._command: Final = command
        self._watching: Final = watching

    async def __call__(self, environment: Mapping[str, str], timeout_s: float) -> Ended:
        """Run it to its end or to the time limit.

        Raises:
            OSError: it cannot be started.
        """
        async with recording(environment) as recorder:
            ended = await self._command({**environment, **recorder.environment()}, timeout_s)
            self._watching.keep(environment[TRIAL_VARIABLE], tuple(recorder.calls))
        return ended
