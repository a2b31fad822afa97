"""``python -m benchmarks.history accuracy``: see the functions."""

from __future__ import annotations

import argparse

from benchmarks.history.accuracy import measure, table


def main() -> None:
    """Run the requested part."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.history", description=__doc__)
    parser.add_argument("what", choices=("accuracy",))
    parser.add_argument("--number", type=int, default=30, help="groups of ten failing runs for each system")
    parser.add_argument("--seed", type=int, default=2, help="0 and 1 were used to choose constants")
    asked = parser.parse_args()
    table(measure(asked.number, asked.seed))


if __name__ == "__main__":
    main()
