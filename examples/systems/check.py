"""Check of the three example systems: whether an answer to an order is right.

    python examples/systems/orchestrator.py 7 | BLAMESPAN_TASK="$ORDER" python examples/systems/check.py

Reads the answer from standard input and the order from ``BLAMESPAN_TASK``; exit code 0 if it is right.
"""

from __future__ import annotations

import os
import sys

from script import read_order, succeeded

if __name__ == "__main__":
    order = read_order(os.environ["BLAMESPAN_TASK"])
    sys.exit(order is None or not succeeded(order, sys.stdin.read()))
