"""Inference of the learned ranker: a few tables of numbers, and the code that applies them.

A linear learner (conditional logit: the steps of a run compete) is pooled with the signals, which are not
learned; calibration turns the result into a probability. ``training.py`` produces the numbers. Using a model
needs no library, and no file of numbers can run code.

A ranker's file is JSON with numbers and text only. The reader checks what the ranker relies on: every number
is usable in calculations, and no row is read past its end.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, Final

from analyzer.inquiry.calibration import Calibration, Knots
from analyzer.inquiry.errors import UnreadableInput
from analyzer.inquiry.posterior import LogShares, Opinion, Order, SetRule, log_softmax, pool
from analyzer.methods.ranker_features import FEATURES, VERSION, Table

FORMAT: Final = "blamespan-ranker/4"
_FAMILY: Final = "blamespan-ranker/"
_LARGEST: Final = 1e9
"""Bound on numbers in a model: training never comes near it, and sums of such numbers still fit a float."""


def write_model(ranker: Ranker) -> str:
    """Return a ranker as one JSON document."""
    document = {
        "format": FORMAT,
        "features_version": ranker.features_version,
        "features": list(FEATURES),
        "card": dict(ranker.card),
        "systems": list(ranker.systems),
        "temperature": ranker.calibration.temperature,
        "home": ranker.home,
        "curve": [list(knot) for knot in ranker.calibration.curve],
        "set_rule": None if ranker.set_rule is None else asdict(ranker.set_rule),
        "records": {name: [record.runs, record.blamed] for name, record in ranker.records.items()},
        "steps": {"signals": ranker.steps.signals, "weights": list(ranker.steps.weights)},
    }
    return json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":")) + "\n"


def read_model(text: str) -> Ranker:
    """Read a ranker.

    Raises:
        UnreadableInput: the text is not a usable ranker; the message says why.
    """
    try:
        document = json.loads(text)
        if document["format"] != FORMAT:
            raise UnreadableInput(_wrong_format(document["format"]))
        return _read(document)
    except (json.JSONDecodeError, RecursionError) as error:
        raise UnreadableInput(f"not a ranker: not JSON: {error}") from error
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise UnreadableInput(f"not a ranker: {type(error).__name__}: {error}") from error


def _read(document: Mapping[str, Any]) -> Ranker:
    version = int(document["features_version"])
    if version == VERSION and document["features"] != list(FEATURES):
        raise ValueError(f"the features are not those of version {version}")
    return Ranker(
        features_version=version,
        steps=_read_panel(document["steps"], STEP_COLUMNS),
        records={
            str(name): Record(runs=_count(runs), blamed=_count(blamed))
            for name, (runs, blamed) in document["records"].items()
        },
        calibration=Calibration(
            temperature=_number(document["temperature"], at_least=0.01), curve=_read_curve(document["curve"])
        ),
        home=_number(document["home"], at_least=1e-6),
        set_rule=None if document["set_rule"] is None else _read_set_rule(document["set_rule"]),
        systems=tuple(map(str, document["systems"])),
        card=_read_card(document["card"]),
    )


def _read_card(document: Mapping[str, Any]) -> dict[str, Any]:
    """Read the card, with its confidences in runs that the model had not seen."""
    card = dict(document)
    if "confidences" in card:
        card["confidences"] = [[_share(stated), bool(right)] for stated, right in card["confidences"]]
    return card


def _read_panel(document: Mapping[str, Any], columns: int) -> Panel:
    weights = tuple(_number(value) for value in document["weights"])
    if len(weights) not in (0, columns):
        raise ValueError(f"{len(weights)} weights for {columns} columns")
    return Panel(weights=weights, signals=_share(document["signals"]))


def _read_curve(knots: Sequence[Sequence[Any]]) -> Knots:
    curve = tuple((_number(stated), _number(true, at_least=0.0)) for stated, true in knots)
    if any(x0 >= x1 or y0 > y1 for (x0, y0), (x1, y1) in pairwise(curve)):
        raise ValueError("a calibration curve that does not ascend")
    return curve


def _read_set_rule(document: Mapping[str, Any]) -> SetRule:
    covered, n = _count(document["covered"]), _count(document["n"])
    if covered > n:
        raise ValueError(f"{covered} of {n} runs covered")
    return SetRule(order=Order(document["order"]), mass=_share(document["mass"]), covered=covered, n=n)


def _wrong_format(found: object) -> str:
    if str(found).startswith(_FAMILY):
        return f"a ranker of the format {found!r}, not {FORMAT!r}: train it again with `blamespan train`"
    return f"not a ranker: expected the format {FORMAT!r}"


def _share(value: Any) -> float:
    share = _number(value, at_least=0.0)
    if share > 1:
        raise ValueError(f"{value!r} is not a weight: expected 0..1")
    return share


def _count(value: Any) -> int:
    return int(_number(value, at_least=0.0))


def _number(value: Any, at_least: float = -_LARGEST) -> float:
    number = float(value)
    if not at_least <= number <= _LARGEST:  # also rejects NaN
        raise ValueError(f"{value!r} is not a usable number")
    return number


_PRIOR: Final = 3.0
"""Pseudo-count, in runs, that shrinks an agent's record towards an even chance."""
MOST_ASKED: Final = 0.5
"""Largest share of steps by known agents that a model may require to count a system as known."""
_ANYONES: Final = frozenset(
    {
        *("agent", "ai", "assistant", "bot", "chatbot", "environment", "function", "human", "llm", "model"),
        *("system", "tool", "unknown", "user"),
    }
)
"""Normalised agent names that occur everywhere, and so identify no system."""
_SIGNALS: Final = FEATURES.index("signals_log")
STEP_COLUMNS: Final = len(FEATURES) + 2
"""Columns of a step: the features, and two for its agent's record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Number of training runs in which an agent took part, and in which it was to blame."""

    runs: int = 0
    blamed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A linear learner and the signals, pooled; either may be absent."""

    weights: tuple[float, ...] = ()
    """Coefficients of the linear learner, times its weight in the pool; a pool of such learners is again
    one."""
    signals: float = 0.0
    """The signals' weight in the pool, 0..1."""

    def opinion(self, rows: Sequence[Sequence[float]]) -> LogShares:
        """Return the panel's log-probabilities over the rows of one run."""
        opinions = [Opinion(shares=signal_shares(rows), weight=self.signals)]
        if self.weights:
            opinions.append(Opinion(shares=linear_shares(self.weights, rows)))
        return pool(opinions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranker:
    """A trained model."""

    features_version: int
    steps: Panel
    records: Mapping[str, Record]
    """Records of the training systems' agents, by normalised name."""
    calibration: Calibration = field(default_factory=Calibration)
    home: float = MOST_ASKED
    """Familiarity from which a run counts as one of a training system; above 0."""
    systems: tuple[str, ...] = ()
    """The data sets or systems trained on."""
    set_rule: SetRule | None = None
    """How to make sets of steps with a stated coverage; ``None`` with too few labels."""
    card: Mapping[str, Any] = field(default_factory=dict)
    """Training data and measured accuracy, for people."""

    def rank(self, table: Table) -> LogShares:
        """Return the calibrated log-probability of each step of a run with at least one."""
        return self.calibration.apply(self.steps.opinion(step_rows(table, self.records)))

    def is_at_home(self, agents: Sequence[str]) -> bool:
        """Return whether a run, given its steps' normalised agents, comes from a training system."""
        return familiarity(self.records, agents) >= self.home


def familiarity(known: Collection[str], agents: Sequence[str]) -> float:
    """Return the share of steps by known agents, given the steps' normalised agents; 0 without steps.

    Generic names count only if there are no others.
    """
    own = [agent for agent in agents if agent not in _ANYONES] or agents
    telling = {name for name in known if name not in _ANYONES} or set(known)
    return sum(agent in telling for agent in own) / len(own) if own else 0.0


def linear_shares(weights: Sequence[float], rows: Sequence[Sequence[float]]) -> LogShares:
    """Return the log-probabilities of a linear learner, which needs no constant term."""
    return log_softmax([sum(w * x for w, x in zip(weights, row, strict=True)) for row in rows])


def signal_shares(rows: Sequence[Sequence[float]]) -> LogShares:
    """Return the log-probabilities of the signals, which are one of the features."""
    return log_softmax([row[_SIGNALS] for row in rows])


def step_rows(
    table: Table, records: Mapping[str, Record], own: str | None = None
) -> tuple[tuple[float, ...], ...]:
    """Return the panel's input rows: the features, and the record of each step's agent.

    ``own`` is the agent blamed by this run's label if the records include the run: its own
    label must not leak into the input.
    """
    record = {name: _record_columns(name, table, records, own) for name in set(table.agents)}
    return tuple((*row, *record[agent]) for row, agent in zip(table.rows, table.agents, strict=True))


def _record_columns(
    name: str, table: Table, records: Mapping[str, Record], own: str | None
) -> tuple[float, float]:
    """Return the log-odds of the agent's record, shrunk towards even, and the length of the record."""
    record = records.get(name, Record())
    runs = record.runs - (own is not None)
    blamed = record.blamed - (own == name)
    even = 1 / len(set(table.agents))
    return math.log((blamed + _PRIOR * even) / (max(0, runs) + _PRIOR)), math.log1p(max(0, runs))
