"""``python -m analyzer``, and what the command ``blamespan`` calls.

The base install brings the emitting API only; whoever types the command without
the rest gets told how to have it, not a traceback.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line."""
    _open_closed_streams()
    try:
        from analyzer.cli import main as run  # noqa: PLC0415 - the point is to see whether it can be imported
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in {"analyzer", "collector_processor", "semconv"}:
            raise  # a fault of ours, not a missing extra
        sys.exit(f"blamespan: {error.name} is not installed; it needs: pip install 'blamespan[server]'")
    run()


def _open_closed_streams() -> None:
    """Have the three standard streams taken: libuv aborts when it closes a socket in the place of one."""
    while (taken := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(taken)


if __name__ == "__main__":
    main()
