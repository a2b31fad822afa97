# ruff: noqa: E501 - rows of Markdown tables cannot be wrapped
"""Signals, a model, and both pooled: ``python -m benchmarks.accuracy.model_pool WHO_AND_WHEN REPLIES``.

Recorded replies of real models to the reference prompts (arXiv:2505.00212) are replayed through our readers; no model
is called. ``REPLIES`` has one JSON object a line: kind, model, log, reply. A model asked twice about a log (with and
without the right answer) counts as two. A verdict that a model does not give is wrong; the pool is signals' then.

With ``--learned``, the trust in each model and method is learned from the labels of one half of the logs and applied to
the other half, and the other way round.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from analyzer.inquiry.conversation import Conversation, Label
from analyzer.inquiry.match_agents import same_agent
from analyzer.inquiry.method import AttributionMethod, Reply
from analyzer.inquiry.visible import visible_run
from analyzer.lab.evaluation.dataset import read_dataset
from analyzer.lab.evaluation.significance import difference_interval
from analyzer.lab.published import AllAtOnce, BinarySearch, StepByStep
from analyzer.methods.pooling import UNPROVED, Trust, pool_with_model, trust_of
from analyzer.methods.without_model import Belief, signals_belief
from benchmarks.accuracy.trivial import best_agent, best_step
from collector_processor.core.analysis import TrackRecord
from collector_processor.settings.fields import PRECISION
from semconv.model import Blame, Trajectory, Verdict

_BYTES: Final = 10_000_000
_MANY: Final = 1_000_000
"""Labels that leave nothing of the assumption."""
_METHODS: Final[Mapping[str, AttributionMethod]] = {
    "all_at_once": AllAtOnce(max_bytes=_BYTES),
    "step_by_step": StepByStep(max_bytes=_BYTES),
    "binary_search": BinarySearch(max_bytes=_BYTES),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The verdicts on one run."""

    run: Trajectory
    label: Label
    own: Belief
    signals: Blame
    model: Verdict
    pooled: Blame


def recorded(path: Path) -> Mapping[str, Mapping[str, Sequence[str]]]:
    """Return the replies by model and method, then by log, in order."""
    found: dict[str, dict[str, list[str]]] = {}
    asked: Counter[tuple[str, str]] = Counter()
    for line in gzip.decompress(path.read_bytes()).splitlines():
        row = json.loads(line)
        name = f"{row['model']} {row['kind']}"
        if row["kind"] == "all_at_once":  # one reply is one verdict
            asked[name, row["log"]] += 1
            name += f" {asked[name, row['log']]}"
        found.setdefault(name, {}).setdefault(row["log"], []).append(row["reply"])
    return found


def replayed(method: AttributionMethod, trajectory: Trajectory, replies: Sequence[str]) -> Verdict:
    """Return a method's verdict from recorded replies; its last one is repeated."""
    inquiry = method.investigate(trajectory)
    try:
        next(inquiry)
        for reply in (*replies, replies[-1]):
            inquiry.send(Reply(text=reply))
    except StopIteration as ended:
        verdict: Verdict = ended.value
        return verdict
    raise AssertionError("the replies do not end the inquiry")


def compared(
    dataset: Path, name: str, replies: Mapping[str, Sequence[str]], trust: Trust
) -> Iterator[Compared]:
    """Yield the verdicts on every run that the model was asked about."""
    kind = name.split()[1]
    for run in read_dataset(dataset):
        if run.trajectory.run_id not in replies or run.label is None:
            continue
        seen = visible_run(replace(run.trajectory, reference=None))
        own = signals_belief(seen)
        model = replayed(_METHODS[kind], seen, replies[run.trajectory.run_id])
        alone = own.blame(own.shares)
        both = pool_with_model(own, model, seen, trust) if isinstance(model, Blame) else alone
        yield Compared(run=seen, label=run.label, own=own, signals=alone, model=model, pooled=both)


def is_first_half(run_id: str) -> bool:
    """Tell which half of the logs a log belongs to."""
    return hashlib.sha256(run_id.encode()).digest()[0] % 2 == 0


def record_of(found: Iterable[Compared]) -> TrackRecord:
    """Return what the labels of these runs say of the model."""
    judged = [one for one in found if isinstance(one.model, Blame)]
    pairs = Counter((step_right(one.model, one.label), step_right(one.signals, one.label)) for one in judged)
    won, lost = pairs[True, False], pairs[False, True]
    return TrackRecord(labelled=len(judged), right=won + pairs[True, True], won=won, lost=lost)


def learned_from_half(found: Sequence[Compared]) -> Iterator[Compared]:
    """Yield the verdicts, each pooled with the trust that the labels of the other half give."""
    halves = {half: [one for one in found if is_first_half(one.run.run_id) is half] for half in (True, False)}
    for half, runs in halves.items():
        trust = trust_of(record_of(halves[not half]))
        for one in runs:
            if isinstance(one.model, Blame):
                yield replace(one, pooled=pool_with_model(one.own, one.model, one.run, trust))
            else:
                yield one


def row(name: str, found: Sequence[Compared]) -> str:
    """Return the accuracy of each, the pool's paired difference from signals, and its confidence where it is shown."""
    cells = [name, str(len(found))]
    for right in (step_right, agent_right):
        signals, model, pooled = (
            [right(verdict, one.label) for one, verdict in ((o, getattr(o, who)) for o in found)]
            for who in ("signals", "model", "pooled")
        )
        gain = difference_interval(signals, pooled)
        cells += [f"{100 * sum(each) / len(found):.1f}" for each in (signals, model, pooled)]
        points = 100 * (sum(pooled) - sum(signals)) / len(found)
        cells.append(f"{points:+.1f} [{100 * gain.low:+.1f}, {100 * gain.high:+.1f}]")
        best = best_step if right is step_right else best_agent
        cells.append(best([Conversation(trajectory=one.run, label=one.label) for one in found]).share)
    shown = [one for one in found if one.pooled.confidence >= PRECISION]
    right_ones = sum(step_right(one.pooled, one.label) for one in shown)
    stated = sum(one.pooled.confidence for one in shown) / max(1, len(shown))
    cells.append(f"{len(shown)}: {100 * right_ones / max(1, len(shown)):.0f} at {100 * stated:.0f}")
    return f"| {' | '.join(cells)} |"


def step_right(verdict: Verdict, label: Label) -> bool:
    """Tell whether a verdict names the labelled step."""
    return isinstance(verdict, Blame) and verdict.step == label.step


def agent_right(verdict: Verdict, label: Label) -> bool:
    """Tell whether a verdict names the labelled agent."""
    return isinstance(verdict, Blame) and label.agent is not None and same_agent(verdict.agent, label.agent)


def as_found(found: Sequence[Compared]) -> Iterable[Compared]:
    """Return the verdicts unchanged."""
    return found


def pool_table(
    dataset: Path,
    replies: Path,
    trust: Trust = UNPROVED,
    repool: Callable[[Sequence[Compared]], Iterable[Compared]] = as_found,
) -> list[str]:
    """Return a row for each model and method, and one for all; ``repool`` pools those of each row again."""
    respects = " | ".join(
        f"{what} %: signals | model | pool | pool against signals | best trivial rule"
        for what in ("step", "agent")
    )
    rows = [f"| model and method | n | {respects} | shown: right % at stated % |", "|---" * 13 + "|"]
    every: list[Compared] = []
    for name, told in recorded(replies).items():
        found = list(repool(list(compared(dataset, name, told, trust))))
        every += found
        rows.append(row(f"`{name}`", found))
    return [*rows, row("all", every)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("dataset", type=Path, help="the labelled logs")
    parser.add_argument("replies", type=Path, help="the recorded replies about them")
    parser.add_argument(
        "--weight", type=float, default=UNPROVED.weight, help="exponent of the model's opinion"
    )
    parser.add_argument("--accuracy", type=float, default=UNPROVED.accuracy, help="assumed step accuracy")
    parser.add_argument("--learned", action="store_true", help="learn the trust from half of the labels")
    asked = parser.parse_args()
    trust = Trust(right=round(asked.accuracy * _MANY), labelled=_MANY, weight=asked.weight)
    repool = learned_from_half if asked.learned else as_found
    print("\n".join(pool_table(asked.dataset, asked.replies, trust, repool)))


if __name__ == "__main__":
    main()
