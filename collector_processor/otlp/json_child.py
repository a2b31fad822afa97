"""Convert one OTLP/JSON request to protobuf, from standard input to standard output, in a process of its own.

``json.loads`` holds the interpreter's lock until the whole document is read, two seconds for 20 MiB of empty
lists; nothing else in the process runs meanwhile. The process exits with ``MALFORMED``, and says why on
standard error, if the request cannot be read, and with ``TOO_MUCH`` if that takes too much memory.
"""

from __future__ import annotations

import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from collector_processor.otlp import MalformedRequestError, Signal
from collector_processor.otlp.otlp_json import to_protobuf

MALFORMED: Final = 65
"""Exit status: ``EX_DATAERR`` of sysexits.h."""
TOO_MUCH: Final = 71
"""Exit status: ``EX_OSERR`` of sysexits.h."""
MEMORY_BYTES: Final = 1 << 30
"""Memory that a conversion may take; a usual request of 20 MiB takes a third of it."""
_MAPPED: Final = Path("/proc/self/statm")


def limit_memory(more: int) -> None:
    """Let this process map ``more`` bytes than it has now, where the system counts them (Linux)."""
    with suppress(OSError, ValueError):
        limit = int(_MAPPED.read_text().split()[0]) * resource.getpagesize() + more
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main() -> int:
    """Convert the request whose signal is the only argument."""
    try:
        limit_memory(MEMORY_BYTES)
        sys.stdout.buffer.write(to_protobuf(Signal(sys.argv[1]), sys.stdin.buffer.read()))
    except MalformedRequestError as error:
        sys.stderr.write(str(error))
        return MALFORMED
    except MemoryError:
        return TOO_MUCH
    return 0


if __name__ == "__main__":
    sys.exit(main())
