"""Runs a module in a process that ends at once with the process that started it.

Also while the module is being imported, which takes seconds: meanwhile, a process that inherited sockets
would keep their ports from a service that is started again. So this imports as little as possible.

It waits for the end of a pipe or socket, on every system alike. Linux can send a signal instead
(``PR_SET_PDEATHSIG``), but does so when the *thread* that started the process ends.
"""

from __future__ import annotations

import os
import runpy
import sys
from threading import Thread


def _end_with(bond: int) -> None:
    """End this process when the other end of a pipe or socket is closed, as the end of its process does."""
    try:
        os.read(bond, 1)
    finally:
        os._exit(1)


def main(bond: int, module: str) -> None:
    """Run a module as a program until ``bond`` ends; the rest of the command line is the module's."""
    Thread(target=_end_with, args=(bond,), daemon=True).start()
    del sys.argv[1:3]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
