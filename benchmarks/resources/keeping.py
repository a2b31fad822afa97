"""Cost of keeping a run's spans: ``python -m benchmarks.resources.keeping FILE…``.

Prepares each recorded run as a worker process does, with and without keeping its spans, in turns. CPU time is
that of the process; the difference is the median of the pairs, and the mean over runs has a bootstrap
interval. Each preparation starts with an empty cache of texts; a service that sees the same prompts again
pays less.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from analyzer.executor.composition import open_analyst, open_cleaner
from analyzer.recordings.read_files import read_recording
from analyzer.service.preparing import preparer_of
from collector_processor.otlp import NO_TENANT, Signal, TraceKey
from collector_processor.pipeline.prepare import Prepared, Preparer, TraceBytes
from collector_processor.rebuild.decode import decode
from collector_processor.rebuild.kept_spans import SpanKeeper
from collector_processor.settings import load_settings
from semconv.model import Completion

_PAIRS = 9
_RESAMPLES = 2_000


def trace_of(path: Path) -> TraceBytes | None:
    """Return a recorded trace with the logs beside it; ``None`` for files without spans."""
    recording = read_recording(path.read_bytes())
    bodies = recording.bodies(Signal.TRACES)
    spans = [span for body in bodies for span in decode(body).spans]
    if not spans:
        return None
    beside = path.with_suffix(".logs.json")
    logs = read_recording(beside.read_bytes()).bodies(Signal.LOGS) if beside.is_file() else ()
    key = TraceKey(NO_TENANT, spans[0].trace_id)
    return TraceBytes(key=key, completion=Completion.ROOT_ENDED, bodies=bodies, logs=logs)


def cpu_ms(prepare: Preparer, trace: TraceBytes) -> tuple[float, Prepared]:
    """Prepare a trace; return its CPU time."""
    prepare.spans.known.clear()
    started = time.process_time()
    prepared = prepare(trace)
    return 1e3 * (time.process_time() - started), prepared


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the mean."""
    chance = random.Random(7)
    means = sorted(statistics.fmean(chance.choices(values, k=len(values))) for _ in range(_RESAMPLES))
    return means[int(0.025 * _RESAMPLES)], means[int(0.975 * _RESAMPLES)]


def main() -> None:
    """Measure, and print a row for each file and the means."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    settings = load_settings({})
    analyst = open_analyst(settings)
    keeping = preparer_of(settings, analyst, analyst.unasked, open_cleaner(settings))
    without = replace(keeping, spans=SpanKeeper(redactor=None))
    before, added, sizes = [], [], []
    for path in parser.parse_args().files:
        trace = None if ".logs." in path.name else trace_of(path)
        if trace is None:
            continue
        pairs = []
        packed = steps = 0
        for _ in range(_PAIRS):
            base, old = cpu_ms(without, trace)
            more, new = cpu_ms(keeping, trace)
            pairs.append((base, more - base))
            packed = sum(len(run.kept_spans or b"") for run in new.runs)
            steps = sum(len(run.kept.packed or b"") for run in old.runs if run.kept)
        if not packed:
            continue
        before.append(statistics.median(base for base, _ in pairs))
        added.append(statistics.median(more for _, more in pairs))
        sizes.append(packed)
        received = trace.byte_count
        print(
            f"{path.stem:40} {before[-1]:7.2f} ms {added[-1]:+7.2f} ms"
            f" | received {received:8} B, steps {steps:6} B, spans {packed:6} B"
        )
    low, high = interval(added)
    print(
        f"n {len(added)}: {statistics.fmean(before):.2f} ms a run before, {statistics.fmean(added):+.2f} ms"
        f" [{low:+.2f}, {high:+.2f}] (median {statistics.median(added):+.2f});"
        f" spans {statistics.median(sizes):.0f} B a run in the median, {max(sizes)} at most"
    )


if __name__ == "__main__":
    main()
