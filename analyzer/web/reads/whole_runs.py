"""Kept runs with their whole steps, for the pages and the API. Remembers those that were read last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from analyzer.inquiry.whole_run import WholeRun, whole_run, whole_steps
from analyzer.issues.labels.kept_run import KeptRun
from analyzer.issues.labels.kept_trace import read_kept, rebuilt
from analyzer.web.reads.archive import RunArchive
from analyzer.web.remembered import Remembered
from collector_processor.core.records import StoredVerdict
from collector_processor.core.runs import CleanRun
from collector_processor.otlp import MalformedRequestError
from collector_processor.rebuild.kept_spans import unpack_spans
from semconv.dialects import USUAL, Reader

MOST_REMEMBERED: Final = 32
"""Runs; a run of a thousand steps takes 0.3 s to read, and its page asks for one step after the other."""
MOST_CHARACTERS: Final = 32_000_000
"""Characters of text in all remembered runs."""

_Key = tuple[str, str, int, int, int | None, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRun:
    """A kept run, read."""

    kept: KeptRun
    whole: WholeRun

    @property
    def is_whole(self) -> bool:
        """Whether it was read from its spans."""
        return self.kept.run is not None


class WholeRuns:
    """Reads kept runs. Safe for several threads."""

    def __init__(self, runs: RunArchive, clean: CleanRun, reader: Reader = USUAL) -> None:
        """``clean`` removes secrets from every text; ``reader`` reads the spans."""
        self._runs: Final = runs
        self._clean: Final = clean
        self._reader: Final = reader
        self._read: Final[Remembered[ReadRun]] = Remembered(MOST_REMEMBERED, MOST_CHARACTERS)

    async def of(self, verdict: StoredVerdict) -> ReadRun | None:
        """Return a run with its steps; ``None`` if neither its spans nor its steps are kept and readable."""
        spans = await self._runs.kept_spans(verdict.tenant, verdict.run_id)
        steps = await self._runs.kept(verdict.tenant, verdict.run_id)
        if spans is None and steps is None:
            return None
        # The packed bytes decide: a run that grew, or was deleted and sent again, is read again.
        key = (verdict.tenant, verdict.run_id, hash(spans), hash(steps), verdict.step, verdict.span_id)
        return self._read.get(key) or await asyncio.to_thread(
            self._remembering, key, lambda: read_run(verdict, spans, steps, self._clean, self._reader)
        )

    def clear(self) -> None:
        """Drop all runs in memory."""
        self._read.clear()

    async def of_trial(self, trial: str, packed: bytes) -> WholeRun | None:
        """Return an experiment's kept trial with its steps; ``None`` if its spans cannot be read."""
        return await asyncio.to_thread(read_trial, trial, packed, self._clean, self._reader)

    def _remembering(self, key: _Key, read: Callable[[], ReadRun | None]) -> ReadRun | None:
        found = read()
        if found is not None:
            self._read.put(key, found, _characters(found.whole))
        return found


def read_run(
    verdict: StoredVerdict,
    packed_spans: bytes | None,
    packed_steps: bytes | None,
    clean: CleanRun,
    reader: Reader = USUAL,
) -> ReadRun | None:
    """Return a run from what is kept of it; ``None`` if that cannot be read."""
    kept = read_kept(verdict, packed_spans, packed_steps, clean, reader)
    if kept is None:
        return None
    whole = whole_steps(kept.trajectory, clean) if kept.run is None else whole_run(kept.run, clean, reader)
    return ReadRun(kept=kept, whole=whole)


def read_trial(trial: str, packed: bytes, clean: CleanRun, reader: Reader = USUAL) -> WholeRun | None:
    """Return a kept trial from its packed spans; ``None`` if they cannot be read."""
    try:
        run = rebuilt(unpack_spans(packed), trial, reader)
    except MalformedRequestError:
        return None
    return None if run is None else whole_run(run, clean, reader)


def _characters(run: WholeRun) -> int:
    """Return the length of a run's texts; the kept spans hold them once more."""
    messages = (message for step in run.steps for message in (*step.messages, *step.answers))
    texts = sum(len(message.text) for message in messages)
    return 2 * texts + sum(len(step.input) + len(step.output) + len(step.instructions) for step in run.steps)
