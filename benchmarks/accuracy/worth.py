# ruff: noqa: E501 - rows of Markdown tables cannot be wrapped
"""What each signal's evidence was worth: ``python -m benchmarks.accuracy.worth FOLDER``; ``--write`` stores the counts.

A verdict is led by the strongest finding on its step. The limit of confidence is the share of right verdicts,
shrunk towards that of all signals. The second table leaves one system out: its verdicts are limited by the counts
of the others. Verdicts without a finding, and those with an indisputable error, have no such limit.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from analyzer.evaluation.significance import bootstrap, brier
from analyzer.inquiry.visible import visible_run
from analyzer.methods.without_model import judge_by_signals
from analyzer.signals import worth
from analyzer.signals.registry import findings
from analyzer.signals.run_view import read
from analyzer.signals.scoring import leading
from analyzer.signals.worth import highest_confidence
from benchmarks.accuracy.abstaining import by_signals, labelled_runs, unlimited

_TABLE: Final = Path(worth.__file__)
_BEGIN, _END = "MEASURED: Final[Counts] = {", "}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Led:
    """A verdict with the signal that led it."""

    system: str
    signal: str
    stated: float
    """Confidence before any limit."""
    limited: float
    """Confidence with all limits."""
    is_right: bool


def verdicts(folder: Path) -> list[Led]:
    """Return the verdicts that a signal led."""
    found = []
    for one, free, bound in zip(labelled_runs(folder), unlimited(folder), by_signals(folder), strict=True):
        run = visible_run(replace(one.run.trajectory, reference=None))
        reading = read(run)
        signal = leading(findings(reading), judge_by_signals(run).ranking[0].step)
        if signal is not None:
            assert free.confidence is not None
            assert bound.confidence is not None
            found.append(
                Led(
                    system=one.example.system,
                    signal=signal.signal,
                    stated=free.confidence,
                    limited=bound.confidence,
                    is_right=free.step_right,
                )
            )
    return found


def counted(led: Sequence[Led]) -> Mapping[str, tuple[int, int]]:
    """Return the counts by signal, the most frequent first."""
    names = sorted({one.signal for one in led}, key=lambda name: (-sum(o.signal == name for o in led), name))
    of = {name: [one.is_right for one in led if one.signal == name] for name in names}
    return {name: (sum(right), len(right)) for name, right in of.items()}


def worth_table(led: Sequence[Led]) -> list[str]:
    """Return what each signal stated, what it was worth, and the limit that follows."""
    rows = [
        "| led by | n | right | stated before limits % | right % | limit % |",
        "|---|---|---|---|---|---|",
    ]
    counts = counted(led)
    for name, (right, n) in counts.items():
        stated = sum(one.stated for one in led if one.signal == name) / n
        limit = highest_confidence(name, counts)
        rows.append(
            f"| `{name}` | {n} | {right} | {100 * stated:.0f} | {100 * right / n:.0f} | {100 * limit:.0f} |"
        )
    return rows


def left_out_table(led: Sequence[Led]) -> list[str]:
    """Return the Brier score of each system's verdicts without limits, and limited by the other systems' counts."""
    rows = [
        "| system left out | n | Brier without | with the others' limits | difference |",
        "|---|---|---|---|---|",
    ]
    free: list[tuple[float, bool]] = []
    bound: list[tuple[float, bool]] = []
    for system in dict.fromkeys(one.system for one in led):
        counts = counted([one for one in led if one.system != system])
        held = [one for one in led if one.system == system]
        without = [(one.stated, one.is_right) for one in held]
        limited = [(min(one.stated, highest_confidence(one.signal, counts)), one.is_right) for one in held]
        rows.append(_row(system, without, limited))
        free, bound = free + without, bound + limited
    return [*rows, _row("total", free, bound)]


def _row(name: str, free: Sequence[tuple[float, bool]], bound: Sequence[tuple[float, bool]]) -> str:
    gains = [(b - right) ** 2 - (f - right) ** 2 for (f, right), (b, _) in zip(free, bound, strict=True)]
    ends = bootstrap(gains, lambda drawn: sum(drawn) / len(drawn))
    change = f"{sum(gains) / len(gains):+.3f} [{ends.low:+.3f}, {ends.high:+.3f}]"
    return f"| {name} | {len(free)} | {brier(free):.3f} | {brier(bound):.3f} | {change} |"


def write(counts: Mapping[str, tuple[int, int]]) -> None:
    """Replace the stored counts."""
    text = _TABLE.read_text()
    head, _, rest = text.partition(_BEGIN)
    lines = "".join(f'    "{name}": {count},\n' for name, count in counts.items())
    _TABLE.write_text(f"{head}{_BEGIN}\n{lines}{_END}{rest.partition(_END)[2]}")


def main() -> None:
    """Print both tables, and store the counts if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the labelled data sets lie")
    parser.add_argument("--write", action="store_true", help="store the counts in analyzer/signals/worth.py")
    asked = parser.parse_args()
    led = verdicts(asked.folder)
    print("\n".join([*worth_table(led), "", *left_out_table(led)]))
    if asked.write:
        write(counted(led))


if __name__ == "__main__":
    main()
