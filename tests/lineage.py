"""The first clue that the readers of the lineage find in a run."""

from __future__ import annotations

from analyzer.lineage.clue import Clue
from analyzer.lineage.known import Known
from analyzer.lineage.readers import READERS
from analyzer.texts.run_view import read
from semconv.model import Step
from tests.runs import calling, run, tool


def found(task: str, *steps: Step, answer: str = "") -> Clue | None:
    """Return the first clue; the answer is the last step's unless given."""
    known = Known(read(run(*steps, task=task, output=answer or steps[-1].output)))
    return next((clue for reader in READERS for clue in reader(known)), None)


def mistake(task: str, *steps: Step, answer: str = "") -> Clue:
    """Return the first clue, of which there is one."""
    clue = found(task, *steps, answer=answer)
    assert clue is not None
    return clue


def called(name: str, arguments: str, result: str) -> tuple[Step, Step]:
    """Return a call that the porter makes, and its result."""
    return calling("porter", (name, arguments)), tool("porter", result, name, input=arguments)
