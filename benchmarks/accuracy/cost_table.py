"""Calls and tokens per log: ``python -m benchmarks.accuracy.cost_table DATASET``.

Counts the tokens (with GPT-4o's tokeniser) sent to a model that knows the label and answers correctly, so
that methods that can stop early do so. Nothing is estimated, and nothing leaves the machine.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from analyzer.evaluation.benchmark import labelled
from analyzer.evaluation.dataset import read_dataset
from analyzer.inquiry.conversation import Conversation
from analyzer.methods import METHODS
from analyzer.methods.attribution import Attributor
from benchmarks.accuracy.oracle import Oracle
from semconv.model import Attribution, Blame


async def attributed(run: Conversation, method: str, *, with_reference: bool) -> Attribution:
    """Attribute one run with the oracle as the model."""
    assert run.label is not None
    assert run.label.step is not None
    steps = run.trajectory.steps
    oracle = Oracle(steps=steps, decisive=min(run.label.step, len(steps) - 1))
    attributor = Attributor(method=method, model=oracle, with_reference=with_reference, budget_usd=None)
    return await attributor(replace(run.trajectory))


def row(method: str, runs: Sequence[Conversation], *, with_reference: bool) -> str:
    """Return one line of the table."""
    done = [asyncio.run(attributed(run, method, with_reference=with_reference)) for run in runs]
    efforts = [one.effort for one in done]
    n = len(runs)
    right = sum(
        isinstance(one.verdict, Blame) and run.label is not None and one.verdict.step == run.label.step
        for one, run in zip(done, runs, strict=True)
    )
    return (
        f"{method:15} {sum(e.calls for e in efforts) / n:7.1f} {max(e.calls for e in efforts):5}"
        f" {sum(e.input_tokens for e in efforts) / n:10.0f} {max(e.input_tokens for e in efforts):10}"
        f" {sum(e.output_tokens for e in efforts) / n:8.0f} {sum(one.truncated for one in done):7}"
        f" {100 * right / n:7.1f}"
    )


def main() -> None:
    """Print the table of every subset."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--method", action="append", help="only this one; may be repeated")
    parser.add_argument("--with-reference", action="store_true")
    given = parser.parse_args()
    runs = labelled(read_dataset(given.dataset))
    methods = given.method or [name for name, entry in METHODS.items() if entry.needs_model]
    for subset in dict.fromkeys(run.subset for run in runs):
        held = [run for run in runs if run.subset == subset]
        print(f"{subset}: {len(held)} logs, a log")
        print("method            calls   max  tokens in        max  tok. out  folded  right %")
        for method in methods:
            print(row(method, held, with_reference=given.with_reference), flush=True)
        print()


if __name__ == "__main__":
    main()
