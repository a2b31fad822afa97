"""Reading of large uploads in a process of its own, whose memory and time are limited. Not pure.

A JSON parser holds the interpreter's lock until the whole text is read, and a few kilobytes may become
gigabytes of objects. Run as a module, this is that process: settings, expected answer and files in, runs out.
It exits with ``MALFORMED``, and says why on standard error, if the files cannot be read.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import BinaryIO, Final

from analyzer.analyses.codec import LENGTH_BYTES, length_of, read_run, with_length, write_run
from analyzer.analyses.composition import open_cleaner
from analyzer.analyses.worker_process import command_of, environment
from analyzer.inquiry.errors import AnalyzerError, UnreadableInput
from analyzer.recordings.uploads import json_values, read_runs, unpacked
from collector_processor.mapping_files import open_reader
from collector_processor.otlp import CollectorError
from collector_processor.otlp.json_child import MALFORMED, TOO_MUCH, limit_memory
from collector_processor.rebuild.redaction import Cleaner
from collector_processor.settings import Settings
from semconv.model import Trajectory

logger = logging.getLogger(__name__)

_MOST_SAID: Final = 2_000
MEMORY_BYTES: Final = 1 << 30
"""Memory that the process may take beyond its imports."""
_NEEDED: Final = {"mappings", "redact", "redact_patterns"}
_CPU_S: Final = 30
_PATIENCE_S: Final = 120.0
"""Seconds to wait for the process on a busy machine."""
_FEW_BYTES: Final = 64 << 10
_FEW_VALUES: Final = 10_000
"""Uploads of fewer bytes and values are read in the calling process, in 10 ms; a start takes a second."""


class UploadReader:
    """Reads uploads, small ones in the calling process and others in one of their own."""

    def __init__(self, settings: Settings, clean: Cleaner) -> None:
        """Create it; ``clean`` removes secrets by the rules of the settings, and counts them."""
        self._settings: Final = settings.model_dump_json(include=_NEEDED).encode()
        self._clean: Final = clean
        self._reader: Final = open_reader(settings.mappings)

    def __call__(self, files: Sequence[bytes], reference: str) -> Sequence[Trajectory]:
        """Return the runs of an upload, without secrets; blocks.

        Raises:
            AnalyzerError: the files cannot be read, or take too much memory or time.
            CollectorError: their spans cannot be read.
        """
        found = unpacked(files)
        plain = found.plain
        if sum(map(len, plain)) <= _FEW_BYTES and sum(map(json_values, plain)) <= _FEW_VALUES:
            return read_runs(plain, self._clean, self._reader, reference, found.refused)
        refused = json.dumps([*found.refused.items()]).encode()
        head, *runs = _messages(_answer((self._settings, reference.encode(), refused, *plain)))
        self._clean.add(json.loads(head))
        return [read_run(run) for run in runs]


def _answer(messages: Sequence[bytes]) -> bytes:
    process = subprocess.Popen(  # noqa: S603 - our own program
        command_of(__name__),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(os.environ, sys.path),
    )
    try:
        answer, said = process.communicate(b"".join(map(with_length, messages)), timeout=_PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise _too_slow() from None
    finally:
        process.kill()
        process.wait()
    match process.returncode:
        case 0:
            return answer
        case _ if process.returncode == MALFORMED:
            raise UnreadableInput(said.decode("utf-8", "replace"))
        case _ if process.returncode == TOO_MUCH:
            raise UnreadableInput(f"needs more than {MEMORY_BYTES >> 20} MiB of memory to be read")
        case code if code in {-signal.SIGXCPU, -signal.SIGKILL}:
            raise _too_slow()
        case code:
            logger.error(
                "an upload's process failed",
                extra={"status": code, "said": said[-_MOST_SAID:].decode("utf-8", "replace")},
            )
            raise RuntimeError(f"the process that read an upload ended with status {code}")


def _too_slow() -> UnreadableInput:
    return UnreadableInput(f"takes more than {_CPU_S} s to be read")


def _messages(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        end = at + LENGTH_BYTES + length_of(data[at : at + LENGTH_BYTES])
        yield data[at + LENGTH_BYTES : end]
        at = end


def main(inward: BinaryIO, outward: BinaryIO) -> int:
    """Read one upload, and return the exit status."""
    settings_json, reference, refused_json, *plain = _messages(inward.read())
    settings = Settings.model_validate_json(settings_json)
    clean, reader = open_cleaner(settings), open_reader(settings.mappings)
    _limit_time()
    limit_memory(MEMORY_BYTES)
    try:
        refused = dict(json.loads(refused_json))
        runs = [write_run(run) for run in read_runs(plain, clean, reader, reference.decode(), refused)]
    except MemoryError:
        return TOO_MUCH
    except (AnalyzerError, CollectorError) as error:
        sys.stderr.write(str(error))
        return MALFORMED
    outward.writelines(with_length(message) for message in (json.dumps(clean.counts).encode(), *runs))
    return 0


def _limit_time() -> None:
    import resource  # noqa: PLC0415 - not on every system

    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S + 1))


if __name__ == "__main__":
    sys.exit(main(sys.stdin.buffer, sys.stdout.buffer))
