"""Runs a module in a process that gets a signal when the process that started it ends, however it does.

Also while the module is being imported, which takes seconds: meanwhile, a process that inherited sockets
would keep their ports from a service that is started again. So this imports as little as possible.

It waits for the end of a pipe or socket, into which the other process writes nothing, on every system alike.
Linux can send a signal instead (``PR_SET_PDEATHSIG``), but does so when the *thread* that started the process
ends.
"""

from __future__ import annotations

import os
import runpy
import sys
from threading import Thread


def _end_with(bond: int, by: int) -> None:
    """Signal this process when the other end of a pipe or socket closes, as its process does by its end."""
    try:
        while os.read(bond, 1):
            pass
    finally:
        os.kill(os.getpid(), by)


def main(by: int, bond: int, module: str) -> None:
    """Run a module as a program, and send it the signal ``by`` when ``bond`` ends.

    The rest of the command line is the module's.
    """
    Thread(target=_end_with, args=(bond, by), daemon=True).start()
    del sys.argv[1:4]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
