"""JSON format of a ranker: numbers and text only, so that an untrusted file cannot run code.

The reader checks what the ranker relies on: every number is usable in calculations, and no row is read past
its end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any, Final

from analyzer.inquiry.calibration import Calibration, Knots
from analyzer.inquiry.errors import UnreadableInput
from analyzer.inquiry.posterior import Order, SetRule
from analyzer.methods.learned.features import FEATURES, VERSION
from analyzer.methods.learned.ranker import STEP_COLUMNS, Panel, Ranker, Record

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
