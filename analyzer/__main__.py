"""Entry point of ``python -m analyzer`` and the command ``blamespan``.

The base install contains only the emitting API; without the server extra, the
command prints how to install it instead of a traceback.
"""

from __future__ import annotations

import codecs
import os
import sys
from io import TextIOWrapper
from typing import Final


def main() -> None:
    """Run the command line."""
    _open_closed_streams()
    _write_what_can_be_written()
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


def _write_what_can_be_written() -> None:
    """Write plainer characters for those that the terminal's encoding lacks (``LC_ALL=C``, ISO-8859-1)."""
    codecs.register_error("blamespan.plainer", _plainer)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="blamespan.plainer")


def _plainer(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_PLAINER.get(one, "?") for one in lacking), error.end


_PLAINER: Final = dict(zip("\u25b6\u2192\u201c\u201d\u2026\u2717\u00b7", '>>"".x-', strict=True))
"""ASCII for ▶→“”…✗·, with which tables and verdicts are written; each as wide as its character."""


if __name__ == "__main__":
    main()
