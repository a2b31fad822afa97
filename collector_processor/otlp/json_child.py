"""Convert one OTLP/JSON request to protobuf, from standard input to standard output, in a process of its own.

``json.loads`` holds the interpreter's lock until the whole document is read, two seconds for 20 MiB of empty
lists; nothing else in the process runs meanwhile. The process exits with ``MALFORMED``, and says why on
standard error, if the request cannot be read.
"""

from __future__ import annotations

import sys
from typing import Final

from collector_processor.otlp import MalformedRequestError, Signal
from collector_processor.otlp.otlp_json import to_protobuf

MALFORMED: Final = 65
"""Exit status: ``EX_DATAERR`` of sysexits.h."""


def main() -> int:
    """Convert the request whose signal is the only argument."""
    try:
        sys.stdout.buffer.write(to_protobuf(Signal(sys.argv[1]), sys.stdin.buffer.read()))
    except MalformedRequestError as error:
        sys.stderr.write(str(error))
        return MALFORMED
    return 0


if __name__ == "__main__":
    sys.exit(main())
