"""``python -m benchmarks.beside``: the same runs in blamespan and in Phoenix, counted by a scripted browser.

Needs Chromium and ``python -m tests.backends.install phoenix``; or ``--phoenix PYTHON`` names an interpreter
that has it. Takes some five minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any
from urllib.request import Request, urlopen

from benchmarks.beside.readers import BlamespanReader, PhoenixReader, Reader, Seen, open_page
from benchmarks.beside.told_runs import TOLD, ToldRun
from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.stages import rebuild
from semconv.model import Span, SpanId, SpanStatus, TraceId
from semconv.record import replace
from tests.backends.install import python_of
from tests.backends.processes import phoenix_serving
from tests.renderings import openinference
from tests.renderings.staging import ORIGIN_NS
from tests.renderings.staging import Stage as Staged
from tests.web.browser import browsing, chromium
from tests.web.stage import open_stage, serving

_GAP_NS = 10**9


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside", description=__doc__)
    parser.add_argument("--phoenix", type=Path, default=python_of("phoenix"), metavar="PYTHON")
    parser.add_argument("--each", action="store_true", help="print each failed run too")
    given = parser.parse_args()
    if given.phoenix is None or chromium() is None:
        sys.stderr.write("needs Chromium and Phoenix: python -m tests.backends.install phoenix\n")
        return 2
    seen = asyncio.run(_read(given.phoenix))
    for line in (*(_each(seen) if given.each else ()), *_table(seen)):
        print(line)
    return 0


async def _read(phoenix: Path) -> dict[str, list[Seen]]:
    """Put the runs into both programs; return what is seen of each run in each."""
    bodies = [encode(_spans(number, told)) for number, told in enumerate(TOLD)]
    with tempfile.TemporaryDirectory() as folder:
        stage = open_stage(Path(folder) / "blamespan")
        for body in bodies:
            [run] = rebuild([body])
            await stage.add(run.trajectory, "beside")
        with phoenix_serving(phoenix, Path(folder)) as url:
            for body in bodies:
                await asyncio.to_thread(_post, url, body)
            async with serving(stage.parts()) as ours, browsing() as browser:
                page = await open_page(browser)
                return {
                    "blamespan": await _seen(BlamespanReader(page, ours)),
                    "Phoenix": await _seen(PhoenixReader(page, await _list_of(url))),
                }


async def _seen(reader: Reader) -> list[Seen]:
    return [await reader.read(told, _id(f"trace {number}", 32)) for number, told in enumerate(TOLD)]


def _spans(number: int, told: ToldRun) -> list[Span]:
    """Return a run's spans in OpenInference, which both programs read, ended within the last hour."""
    late_ns = time.time_ns() - ORIGIN_NS - (number + 10) * _GAP_NS
    trace = TraceId(_id(f"trace {number}", 32))
    made = openinference.spans(Staged(told.play))
    if told.play.crash:  # most instrumentations mark the root of a run that raised
        made[0] = replace(made[0], status=SpanStatus.ERROR, status_message=told.play.crash)
    return [
        replace(
            span,
            trace_id=trace,
            span_id=SpanId(_id(f"{number} {span.span_id}", 16)),
            parent_id=span.parent_id and SpanId(_id(f"{number} {span.parent_id}", 16)),
            start_ns=span.start_ns + late_ns,
            end_ns=span.end_ns + late_ns,
        )
        for span in made
    ]


def _id(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


def _post(url: str, body: bytes) -> None:
    headers = {"Content-Type": "application/x-protobuf"}
    with urlopen(Request(f"{url}/v1/traces", data=body, headers=headers)) as answer:
        answer.read()


async def _list_of(url: str) -> str:
    """Return the address of Phoenix's list of the runs, once it has stored all."""
    while True:
        [project] = await asyncio.to_thread(_get, f"{url}/v1/projects")
        traces = await asyncio.to_thread(_get, f"{url}/v1/projects/{project['id']}/traces?limit=100")
        if len(traces) == len(TOLD):
            return f"{url}/projects/{project['id']}/spans?timeRangeKey=1d"
        await asyncio.sleep(0.5)


def _get(url: str) -> Any:
    with urlopen(url) as answer:
        return json.load(answer)["data"]


def _table(seen: dict[str, list[Seen]]) -> list[str]:
    failed = sum(bool(told.kind) for told in TOLD)
    rows = [
        f"| of {failed} failed and {len(TOLD) - failed} right runs | {' | '.join(seen)} |",
        "|---|---|---|",
    ]
    counts = [
        ("failed runs marked in the list", lambda one: str(sum(each.is_marked for each in one[:failed]))),
        ("right runs marked", lambda one: str(sum(each.is_marked for each in one[failed:]))),
        ("failed runs of which a mark names the right agent",
         lambda one: str(sum(each.names_agent for each in one[:failed]))),
        ("clicks until the reason is visible, knowing where it is: median, most",
         lambda one: _spread([each.least for each in one[:failed]])),
        ("clicks in the order of marks and steps: median, most",
         lambda one: _spread([each.in_order for each in one[:failed]])),
    ]  # fmt: skip
    return [*rows, *(f"| {name} | {' | '.join(map(count, seen.values()))} |" for name, count in counts)]


def _spread(clicks: Sequence[int | None]) -> str:
    """Return the median and the largest; with the number of runs whose reason is never visible."""
    known = [each for each in clicks if each is not None]
    never = f"; {len(clicks) - len(known)} never" if len(known) < len(clicks) else ""
    return f"{median(known):g}, {max(known)}{never}" if known else "never"


def _each(seen: dict[str, list[Seen]]) -> list[str]:
    return [
        f"{told.play.name} ({told.kind}): " + "; ".join(f"{name}: {one[at]}" for name, one in seen.items())
        for at, told in enumerate(TOLD)
        if told.kind
    ]


if __name__ == "__main__":
    sys.exit(main())
