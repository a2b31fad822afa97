"""Comparison of two methods on the same runs, and of two annotators on the same conversations.

A contender is a method, a model, and whether the correct answer is shown, in the notation of ``--compare``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from analyzer.inquiry.conversation import Conversation, Label
from analyzer.inquiry.match_agents import same_agent
from analyzer.lab.evaluation.dataset import history_key
from analyzer.lab.evaluation.scores import TOTAL, Score, share, share_interval
from analyzer.lab.evaluation.significance import difference_interval, paired

WITH_REFERENCE: Final = "+reference"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One side of a comparison; ``None`` means the value from the settings."""

    method: str | None = None
    model: str | None
    with_reference: bool = False


def read_contender(text: str, base: Contender) -> Contender:
    """Read ``METHOD[+reference][@MODEL]``; missing parts come from ``base``."""
    name, at, model = text.partition("@")
    return Contender(
        method=name.removesuffix(WITH_REFERENCE),
        model=model if at else base.model,
        with_reference=base.with_reference or name.endswith(WITH_REFERENCE),
    )


_CLAIMS: Final[Mapping[str, Callable[[Score], bool]]] = {
    "step": lambda scored: scored.step_right,
    "agent": lambda scored: scored.agent_right,
    "joint": lambda scored: scored.step_right and scored.agent_right,
    "top3_step": lambda scored: scored.in_top_three,
}


def compare(
    first: Sequence[Score], second: Sequence[Score], *, dataset: str, names: tuple[str, str]
) -> tuple[dict[str, Any], ...]:
    """Return one line per subset and the total last: McNemar's exact test on runs in the same order.

    Raises:
        ValueError: the scores are not of the same runs.
    """
    if [s.run_id for s in first] != [s.run_id for s in second]:
        raise ValueError("two methods can only be compared on the same runs in the same order")
    pairs = list(zip(first, second, strict=True))
    subsets = dict.fromkeys(one.subset for one, _ in pairs)
    parts = [(name, [pair for pair in pairs if pair[0].subset == name]) for name in subsets]
    return tuple(
        {
            "dataset": dataset,
            "subset": name,
            "n": len(part),
            "compare": list(names),
            **{claim: _paired(part, holds) for claim, holds in _CLAIMS.items()},
        }
        for name, part in [*parts, (TOTAL, pairs)]
        if part
    )


def second_labels(runs: Sequence[Conversation]) -> Mapping[str, Label]:
    """Return other annotators' labels by conversation."""
    return {history_key(run.trajectory): run.label for run in runs if run.label is not None}


def multi_reference(scores: Sequence[Score], second: Mapping[str, Label]) -> dict[str, Any]:
    """Score the runs with two labels against either label, and the labels against each other."""
    twice = [(s, second[s.history]) for s in scores if s.history in second]
    complete = [(s, label) for s, label in twice if label.step is not None and label.agent is not None]
    return {
        "n": len(complete),
        "step_accuracy_first": share([s.step_right for s, _ in complete]),
        "step_accuracy_second": share([s.step == label.step for s, label in complete]),
        "step_accuracy_either": share([s.step_right or s.step == label.step for s, label in complete]),
        "step_accuracy_either_ci": share_interval(
            [s.step_right or s.step == label.step for s, label in complete]
        ),
        "agent_accuracy_first": share([s.agent_right for s, _ in complete]),
        "agent_accuracy_second": share([same_agent(s.agent, label.agent) for s, label in complete]),
        "agent_accuracy_either": share(
            [s.agent_right or same_agent(s.agent, label.agent) for s, label in complete]
        ),
        "labels_agree_on_step": share([_apart(s, label) == 0 for s, label in complete]),
        "labels_agree_within_3": share([_apart(s, label) <= 3 for s, label in complete]),
        "labels_agree_on_agent": share([same_agent(s.label.agent, label.agent) for s, label in complete]),
    }


def _apart(scored: Score, label: Label) -> int:
    assert scored.label.step is not None
    assert label.step is not None
    return abs(scored.label.step - label.step)


def _paired(part: Sequence[tuple[Score, Score]], holds: Callable[[Score], bool]) -> dict[str, Any]:
    first, second = [holds(one) for one, _ in part], [holds(other) for _, other in part]
    split = paired(first, second)
    interval = difference_interval(first, second)
    return {
        "first": share(first),
        "second": share(second),
        "both": split.both,
        "only_first": split.only_first,
        "only_second": split.only_second,
        "neither": split.neither,
        "difference": split.difference,
        "difference_ci": [round(interval.low, 6), round(interval.high, 6)],
        "p_value": split.p_value,
    }
