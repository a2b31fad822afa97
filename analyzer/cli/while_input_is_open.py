"""The command line as a process of another one: a command that ends when its standard input does. Not pure.

The parent holds the other end of the input and writes nothing to it. The kernel closes it when the parent
ends, however it does: after SIGKILL too.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Final

from analyzer.cli.main import main

_INPUT: Final = 0


def _end_with_input() -> None:
    while os.read(_INPUT, 1 << 12):
        pass
    os.kill(os.getpid(), signal.SIGTERM)  # commands end their programs on it; SIGINT may be ignored


if __name__ == "__main__":
    threading.Thread(target=_end_with_input, daemon=True).start()
    main()
