"""Plain features of each step: what the learned ranker sees of a run.

Some eighty figures a step, read off structure (``turns.py``), words (``phrasing.py``,
``lineage.py``) and the signals' findings; nothing is learned here, no framework and no
agent is named. A figure is about
this step, its neighbours, or its place among the run's other steps, so that a
model over them knows neither the task nor who wrote the agents.

``VERSION`` is part of every stored model: change it with the meaning of any
feature, and old models are refused instead of misread.

Cost: linear in the text; a few milliseconds a run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from analyzer.agent_names import normalise
from analyzer.finding import Finding
from analyzer.learning.columns import Columns, counted_before, shift
from analyzer.learning.lineage import ANSWER, LASTING, answer_figures, lasting_figures
from analyzer.learning.phrasing import OVERLAP, TEXT, WORDS, overlap_figures, text_figures, word_figures
from analyzer.learning.turns import LED, PLACE, SPEAKER, led_figures, place_figures, speaker_figures
from analyzer.reading import Fault, Reading, read
from analyzer.signals import findings
from analyzer.weighing import posterior
from semconv.model import Trajectory

VERSION: Final = 4

FEATURES_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "place": PLACE,
    "speaker": SPEAKER,
    "led": LED,
    "text": TEXT,
    "words": WORDS,
    "overlap": OVERLAP,
    "answer": ANSWER,
    "lasting": LASTING,
    "signals": (
        "fault",
        "fault_before",
        "fault_after",
        "empty_after",
        "faults_before",
        "signals_log",
        "marks",
        "marked_before",
        "mark_unrepaired_error",
        "mark_ignored_error",
        "mark_wrong_computation",
        "mark_unsupported_figure",
        "mark_answer_origin",
        "mark_made_up_data",
        "mark_loop",
        "mark_unverified_claim",
    ),
}
"""The features by group, in the order of their columns; an ablation leaves a group out at a time."""
FEATURES: Final = tuple(feature for features in FEATURES_OF.values() for feature in features)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One run as the ranker sees it: a row of ``FEATURES`` a step, and who acted in each."""

    rows: tuple[tuple[float, ...], ...]
    agents: tuple[str, ...]
    """Normalised names; a model may have learned a figure for each, of one system."""


def featurise(trajectory: Trajectory) -> Table:
    """Return the table of a run; empty for a run without steps."""
    reading = read(trajectory)
    return tabulate(reading, findings(reading))


def tabulate(reading: Reading, found: Sequence[Finding]) -> Table:
    """Return the table of a run that has been read already."""
    if not reading.steps:
        return Table(rows=(), agents=())
    columns: dict[str, Sequence[float]] = {}
    for group in _GROUPS:
        columns.update(group(reading))
    columns.update(_marks(reading, found))
    assert tuple(columns) == FEATURES
    return Table(
        rows=tuple(zip(*columns.values(), strict=True)),
        agents=tuple(normalise(step.agent) for step in reading.steps),
    )


def _marks(reading: Reading, found: Sequence[Finding]) -> Columns:
    n = len(reading.steps)
    faults = [float(fault is Fault.FAILED) for fault in reading.faults]
    empty = [float(fault is Fault.EMPTY) for fault in reading.faults]
    weights: dict[str, list[float]] = {name: [0.0] * n for name in (*_SIGNALS, "other")}
    for finding in found:
        column = weights[finding.signal if finding.signal in weights else "other"]
        column[finding.step] = max(column[finding.step], finding.weight)
    total = [sum(column[i] for column in weights.values()) for i in range(n)]
    return {
        "fault": faults,
        "fault_before": shift(faults, 1),
        "fault_after": shift(faults, -1),
        "empty_after": shift(empty, -1),
        "faults_before": [math.log1p(count) for count in counted_before(map(bool, faults))],
        "signals_log": [math.log(max(share, 1e-6)) for share in posterior(reading, found)],
        "marks": total,
        "marked_before": [float(count > 0) for count in counted_before(mark >= _TELLING for mark in total)],
        **{f"mark_{name}": weights[name] for name in _SIGNALS},
    }


_TELLING: Final = 1.0
"""Weight from which a mark counts as one that a reader would stop at."""
_SIGNALS: Final = (
    "unrepaired_error",
    "ignored_error",
    "wrong_computation",
    "unsupported_figure",
    "answer_origin",
    "made_up_data",
    "loop",
    "unverified_claim",
)
"""Signals with a column of their own; the others count in ``marks``."""

Group: TypeAlias = Callable[[Reading], Columns]

_GROUPS: Final[tuple[Group, ...]] = (
    place_figures,
    speaker_figures,
    led_figures,
    text_figures,
    word_figures,
    overlap_figures,
    answer_figures,
    lasting_figures,
)
"""All but the signals', which are read off their findings; in the order of ``FEATURES_OF``."""
