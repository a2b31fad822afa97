"""Checks whether the workflow succeeded: by the user's command, or by a text in its output. Not pure."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import Final, TypeAlias

from analyzer.experiment.running.workflow import Ended, run_command
from analyzer.inquiry.errors import AnalyzerError
from semconv.record import record

CHECK_TIMEOUT_S: Final = 60.0

Check: TypeAlias = Callable[[Ended], Awaitable[bool]]
"""Returns whether a run that ended on its own succeeded."""


class CheckFailed(AnalyzerError):  # noqa: N818 - a statement reads better at the ``raise``
    """The check itself could not be run."""


@record
class CommandCheck:
    """Check by a command that reads the output and exits with 0 for success."""

    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables added to ours."""

    async def __call__(self, ended: Ended) -> bool:
        """Run the check.

        Raises:
            CheckFailed: it cannot be started, or does not end.
        """
        try:
            checked = await run_command(
                self.arguments, {**os.environ, **self.environment}, ended.output.encode(), CHECK_TIMEOUT_S
            )
        except OSError as error:
            raise CheckFailed(f"--check {self.arguments[0]}: {error.strerror or error}") from error
        if checked.timed_out:
            raise CheckFailed(f"--check {self.arguments[0]}: not done in {CHECK_TIMEOUT_S:g} s")
        return checked.code == 0


@record
class Contains:
    """Check that the output contains a text."""

    text: str

    async def __call__(self, ended: Ended) -> bool:
        """Look for the text."""
        return self.text in ended.output


def every(checks: Sequence[Check]) -> Check:
    """Return a check that passes if all of these pass."""

    async def check(ended: Ended) -> bool:
        for each in checks:
            if not await each(ended):
                return False
        return True

    return check
