"""Entry point of ``python -m analyzer`` and the command ``blamespan``.

The base install contains only the emitting API; without the server extra, the
command prints how to install it instead of a traceback.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line."""
    _open_closed_streams()
    try:
        from analyzer.cli.main import main as run  # noqa: PLC0415 - the point is to see whether it can be imported
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in {"analyzer", "collector_processor", "semconv"}:
            raise  # a bug of ours, not a missing extra
        sys.exit(
            f"blamespan: {error.name} is not installed; it is in the extra server: pip install '.[server]'"
        )
    run()


def _open_closed_streams() -> None:
    """Open closed standard streams: libuv aborts when it closes a socket with such a descriptor."""
    while (taken := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(taken)


if __name__ == "__main__":
    main()
