"""``python -m benchmarks.accuracy.labels promotions | chosen [DATASET…] [--number N]``.

``promotions``: challengers that are no better than the champion, and the share that is promoted all the same;
then better ones, and the labels that their promotion takes. ``chosen``: a ranker trained on the runs of the
queue against one trained on random runs; without a data set, on failed runs of the example systems.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.accuracy.labels.promotions import promotions


def main() -> int:
    """Run the requested part."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.labels", description=__doc__)
    parser.add_argument("what", choices=("promotions", "chosen"))
    parser.add_argument("datasets", nargs="*", type=Path)
    parser.add_argument("--number", type=int, default=1000, help="simulations a row, or repetitions")
    asked = parser.parse_args()
    if asked.what == "promotions":
        return promotions(asked.number)
    from benchmarks.accuracy.labels.chosen import chosen  # noqa: PLC0415 - needs scikit-learn

    return chosen(asked.datasets, asked.number)


if __name__ == "__main__":
    sys.exit(main())
