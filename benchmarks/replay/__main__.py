"""Coverage and cost of the replay gateway.

    python -m benchmarks.replay recorded [FOLDER…]    every recording: calls served by its tape
    python -m benchmarks.replay live [NAME…]          frameworks installed here: recorded, then rerun
    python -m benchmarks.replay sdks                  OpenAI's and Anthropic's own clients against a tape
    python -m benchmarks.replay streams [--count N]   streams of a live model, byte for byte
    python -m benchmarks.replay latency [--count N]   the gateway's own latency beside a direct call

``recorded`` builds each call's request from its trace, as chat completions with new ids, and sends them in
recorded order: it shows that a tape serves its own recording, not that a framework sends the same requests
again. ``live`` shows that: the framework's program runs twice.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.replay.fidelity import live, recorded
from benchmarks.replay.passing import latency, streams
from benchmarks.replay.sdks import sdks
from tests.frameworks.catalogue import VARIANTS

_CAPTURES: Final = (Path("tests/frameworks/fixtures"),)


def main() -> int:
    """Run the requested part; return 1 if a target was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay", description=__doc__)
    what = parser.add_subparsers(dest="what", required=True)
    of_recordings = what.add_parser("recorded")
    of_recordings.add_argument("folder", nargs="*", type=Path, default=list(_CAPTURES))
    of_frameworks = what.add_parser("live")
    of_frameworks.add_argument("name", nargs="*")
    of_frameworks.add_argument("--variant", action="append", help="of the story; by default all of a run's")
    what.add_parser("sdks")
    for name, count in (("streams", 10_000), ("latency", 2_000)):
        what.add_parser(name).add_argument("--count", type=int, default=count)
    options = parser.parse_args()
    return _run(options.what, options)


def _run(what: str, options: argparse.Namespace) -> int:
    folders: Sequence[Path] = getattr(options, "folder", ())
    match what:
        case "recorded":
            return recorded(folders)
        case "live":
            return live(options.name, options.variant or VARIANTS)
        case "sdks":
            return sdks()
        case "streams":
            return streams(options.count)
        case _:
            return latency(options.count)


if __name__ == "__main__":
    raise SystemExit(main())
