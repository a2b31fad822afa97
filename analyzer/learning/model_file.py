"""A ranker as JSON and back: numbers and words only, so that a file from anywhere can run nothing.

Reading checks what using takes for granted: every number is one that can be
calculated with, every tree ends, no row is read past its end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from analyzer.calibration import Calibration, Knots
from analyzer.errors import UnreadableInput
from analyzer.learning.features import FEATURES, VERSION
from analyzer.learning.ranker import STEP_COLUMNS, Panel, Ranker, Record, Tree

FORMAT: Final = "blamespan-ranker/2"
_FAMILY: Final = "blamespan-ranker/"
_LARGEST: Final = 1e9
"""No number in a model is larger: training makes none near it, and sums of such still fit a float."""
_TREE: Final = ("feature", "threshold", "left", "right", "value")


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
        "records": {name: [record.runs, record.blamed] for name, record in ranker.records.items()},
        "steps": _write_panel(ranker.steps),
    }
    return json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":")) + "\n"


def read_model(text: str) -> Ranker:
    """Read a ranker back.

    Raises:
        UnreadableInput: it is no such document, or one that could not be used; the message says why.
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
        raise ValueError("other features than their version has")
    return Ranker(
        features_version=version,
        steps=_read_panel(document["steps"], STEP_COLUMNS),
        records={
            str(name): Record(runs=_count(runs), blamed=_count(blamed))
            for name, (runs, blamed) in document["records"].items()
        },
        calibration=Calibration(
            temperature=_number(document["temperature"], at_least=0.01),
            curve=_read_curve(document["curve"]),
        ),
        home=_number(document["home"], at_least=1e-6),
        systems=tuple(map(str, document["systems"])),
        card=_read_card(document["card"]),
    )


def _read_card(document: Mapping[str, Any]) -> dict[str, Any]:
    """Read what is for people, all but the confidences, by which ``BLAMESPAN_PRECISION`` is kept."""
    card = dict(document)
    if "confidences" in card:
        card["confidences"] = [[_share(stated), bool(right)] for stated, right in card["confidences"]]
    return card


def _write_panel(panel: Panel) -> dict[str, Any]:
    trees = [{key: list(getattr(tree, key)) for key in _TREE} for tree in panel.trees]
    return {"signals": panel.signals, "forest": panel.forest, "weights": list(panel.weights), "trees": trees}


def _read_panel(document: Mapping[str, Any], columns: int) -> Panel:
    weights = _numbers(document["weights"])
    if len(weights) not in (0, columns):
        raise ValueError(f"{len(weights)} weights for {columns} columns")
    trees = tuple(_read_tree(tree, columns) for tree in document["trees"])
    return Panel(
        weights=weights,
        trees=trees,
        forest=_share(document["forest"]),
        signals=_share(document["signals"]),
    )


def _read_curve(knots: Sequence[Sequence[Any]]) -> Knots:
    curve = tuple((_number(stated), _number(true, at_least=0.0)) for stated, true in knots)
    if any(x0 >= x1 or y0 > y1 for (x0, y0), (x1, y1) in pairwise(curve)):
        raise ValueError("a calibration curve that does not ascend")
    return curve


def _wrong_format(found: object) -> str:
    if str(found).startswith(_FAMILY):
        return f"a ranker of the format {found!r}, not {FORMAT!r}: train it again"
    return f"not a ranker: expected the format {FORMAT!r}"


def _read_tree(document: Mapping[str, Any], columns: int) -> Tree:
    tree = Tree(
        feature=tuple(map(int, document["feature"])),
        threshold=_numbers(document["threshold"]),
        left=tuple(map(int, document["left"])),
        right=tuple(map(int, document["right"])),
        value=_numbers(document["value"]),
    )
    n = len(tree.feature)
    if not n or any(len(getattr(tree, key)) != n for key in _TREE):
        raise ValueError("a tree whose arrays differ in length")
    for node, (feature, left, right) in enumerate(zip(tree.feature, tree.left, tree.right, strict=True)):
        if feature >= columns:
            raise ValueError(f"a tree that asks for column {feature} of {columns}")
        if feature >= 0 and not (node < left < n and node < right < n):
            raise ValueError("a tree whose branches do not lead on")
        if not 0.0 <= tree.value[node] <= 1.0:
            raise ValueError("a tree whose value is no share")
    return tree


def _numbers(values: Sequence[Any]) -> tuple[float, ...]:
    return tuple(_number(value) for value in values)


def _share(value: Any) -> float:
    share = _number(value, at_least=0.0)
    if share > 1:
        raise ValueError(f"{value!r} is no weight: expected 0..1")
    return share


def _count(value: Any) -> int:
    return int(_number(value, at_least=0.0))


def _number(value: Any, at_least: float = -_LARGEST) -> float:
    number = float(value)
    if not at_least <= number <= _LARGEST:  # as not-a-number is not
        raise ValueError(f"{value!r} is no such number")
    return number
