"""All recordings that an analysis can read; those outside the repository may be missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from analyzer.recordings.read_files import read_recording
from collector_processor.core.runs import Run
from collector_processor.otlp import Signal
from collector_processor.rebuild.stages import rebuild
from semconv.model import Trace
from tests.contract.recorded import SHARED
from tests.frameworks.catalogue import FOLDER

SOURCES: Final = (
    (SHARED / "captures", "*.json"),
    (SHARED / "datasets", "*.jsonl.gz"),
    (SHARED / "datasets" / "trail_otlp", "*.json.gz"),
    (FOLDER / "fixtures", "*.json.gz"),
)
_HOLD_NO_SPANS: Final = ("INDEX.json", ".logs.json", "recorded_replies.dev.jsonl.gz")
"""Excluded files: labels of captures, log records (read with their spans), and models' replies to published
prompts."""


def recorded_inputs(
    say: Callable[[str], None], sources: Iterable[tuple[Path, str]] = SOURCES
) -> Iterator[tuple[str, tuple[Run, ...]]]:
    """Yield the name and runs of each trace file and each line of a data set; ``say`` which are missing."""
    for folder, pattern in sources:
        files = [file for file in sorted(folder.glob(pattern)) if not file.name.endswith(_HOLD_NO_SPANS)]
        say(f"{folder.name}: {len(files)} files" if files else f"{folder.name}: absent, skipped")
        for file in files:
            yield from _inputs_in(file)


def _inputs_in(file: Path) -> Iterator[tuple[str, tuple[Run, ...]]]:
    name, logs = f"{file.parent.name}/{file.name}", file.with_suffix(".logs.json")
    recorded = [read_recording(each.read_bytes()) for each in (file, logs) if each.exists()]
    spans = [request for each in recorded for request in each.traces]
    if spans:
        yield name, rebuild(spans, [body for each in recorded for body in each.bodies(Signal.LOGS)])
    for number, conversation in enumerate(recorded[0].conversations, start=1):
        yield f"{name}:{number}", (Run(trace=Trace(spans=()), trajectory=conversation.trajectory),)
