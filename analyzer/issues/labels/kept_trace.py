"""The trace of a kept run: its spans and logs as received, without their secrets.

Commands accept it instead of a trace file, and a run's page shows its steps from it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import Final

from analyzer.inquiry.errors import AnalyzerError, UnreadableInput
from analyzer.issues.labels.kept_run import KeptRun, has_texts, unpack
from analyzer.issues.labels.labelling import find_run
from collector_processor.core.records import StoredVerdict
from collector_processor.core.runs import CleanRun, Run
from collector_processor.otlp import MalformedRequestError, Signal, Tenant
from collector_processor.otlp.otlp_json import to_json
from collector_processor.rebuild.kept_spans import KeptSpans, unpack_spans
from collector_processor.rebuild.stages import rebuild
from collector_processor.store.database.connection import StoreConnection
from collector_processor.store.verdicts import RunStore
from semconv.dialects import USUAL, Reader
from semconv.model import Trajectory

_REASONS: Final = (
    "evicted by its quota or age, or BLAMESPAN_STORAGE_BYTES, or keep_failed_bytes, keep_passed_bytes or"
    " BLAMESPAN_EXPORT_TEXT excludes it"
)


class NotKept(AnalyzerError):  # noqa: N818 - a statement reads better at the ``raise``
    """The run has a verdict, but its spans are not kept, or cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTrace:
    """A kept run."""

    verdict: StoredVerdict
    """Its current verdict."""
    spans: KeptSpans
    """Its OTLP requests, and the changes made by redaction and shortening."""
    reader: Reader = field(compare=False, repr=False)
    """Reader of its spans."""

    def run(self) -> Run:
        """Return its repaired spans and its steps, under the id of its verdict.

        Raises:
            NotKept: they hold no run.
        """
        found = rebuilt(self.spans, self.verdict.run_id, self.reader)
        if found is None:
            raise NotKept(f"run {self.verdict.run_id}: the kept spans hold no run")
        return found


def kept_trace(
    db: StoreConnection, run: str, tenant: Tenant | None = None, reader: Reader = USUAL
) -> KeptTrace:
    """Return the kept run whose id is, or begins with, ``run``.

    Raises:
        NoSuchRun: the id matches no run or several.
        NotKept: its spans are not kept.
    """
    verdicts = RunStore(db)
    verdict = find_run(verdicts, run, tenant)
    packed = verdicts.spans.packed(verdict.tenant, verdict.run_id)
    if packed is None:
        raise NotKept(f"run {verdict.run_id}: its spans are not kept ({_REASONS})")
    try:
        return KeptTrace(verdict=verdict, spans=unpack_spans(packed), reader=reader)
    except MalformedRequestError as error:
        raise NotKept(f"run {verdict.run_id}: {error}") from error


def read_kept(
    verdict: StoredVerdict,
    packed_spans: bytes | None,
    packed_steps: bytes | None,
    clean: CleanRun,
    reader: Reader,
) -> KeptRun | None:
    """Return the steps of a run: from its spans, else from their compact encoding; ``None`` without either.

    Args:
        verdict: the run's verdict. If this version of blamespan reads another step at its span, the compact
        encoding is read instead, because the verdict's numbers refer to it.
        packed_spans: from ``kept_spans``.
        packed_steps: from ``kept_run``.
        clean: removes secrets that only decoding reveals.
        reader: reads the spans.
    """
    found = _of_spans(verdict, packed_spans, clean, reader) if packed_spans else None
    if found is not None and (packed_steps is None or _is_same_step(found.trajectory, verdict)):
        return found
    try:
        return replace(unpack(packed_steps), digest=_digest(packed_steps)) if packed_steps else None
    except UnreadableInput:
        return found


def _of_spans(verdict: StoredVerdict, packed: bytes, clean: CleanRun, reader: Reader) -> KeptRun | None:
    try:
        spans = unpack_spans(packed)
    except MalformedRequestError:
        return None
    run = rebuilt(spans, verdict.run_id, reader)
    if run is None:
        return None
    trajectory = clean(run.trajectory)
    digest = _digest(packed)
    return KeptRun(
        trajectory=trajectory, has_texts=has_texts(trajectory), spans=spans, run=run, digest=digest
    )


def _digest(packed: bytes) -> str:
    return hashlib.blake2b(packed, digest_size=16).hexdigest()


def _is_same_step(trajectory: Trajectory, verdict: StoredVerdict) -> bool:
    if verdict.step is None or verdict.span_id is None:
        return True
    return any(step.span_id == verdict.span_id for step in trajectory.steps[verdict.step : verdict.step + 1])


def rebuilt(spans: KeptSpans, run_id: str, reader: Reader) -> Run | None:
    """Return the run in kept spans, under this id; ``None`` if they hold none."""
    try:
        runs = rebuild([spans.traces], [spans.logs] if spans.logs else [], reader=reader)
    except MalformedRequestError:
        return None
    run = max(runs, key=lambda one: len(one.trace.spans), default=None)
    if run is None:
        return None
    return replace(
        run, trace=replace(run.trace, run_id=run_id), trajectory=replace(run.trajectory, run_id=run_id)
    )


def otlp_json(spans: KeptSpans) -> bytes:
    """Return kept spans as one line of OTLP/JSON, with the logs if there are any.

    Raises:
        MalformedRequestError: the kept bytes are corrupt.
    """
    parts = ((Signal.TRACES, spans.traces), (Signal.LOGS, spans.logs))
    inner = [to_json(signal, body)[1:-1] for signal, body in parts if body]
    return b"{" + b",".join(filter(None, inner)) + b"}\n"
