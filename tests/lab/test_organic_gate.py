from __future__ import annotations

import random
from typing import Any

from analyzer.lab.injection.gates import (
    Likeness,
    Sample,
    area_under,
    likeness_json,
    likeness_line,
    likenesses,
)
from semconv.record import replace
from tests.runs import run, step

WORDS = ["red", "green", "blue", "white", "black", "grey", "brown", "pink", "gold", "teal"]


def failures(n: int, kind: str, mark: str = "", *, twice: bool = False, seed: int = 0) -> list[Sample]:
    """Return failures of chance words, from ten origins; ``mark`` is what would give them away."""
    coin = random.Random(f"{seed} {kind}")
    made = []
    for at in range(n):
        said = [" ".join(coin.choices(WORDS, k=6)) for _ in range(3)]
        steps = [step(agent, f"{text} {mark}".strip()) for agent, text in zip("abc", said, strict=True)]
        steps += [steps[-1]] if twice else []
        made.append(Sample(trajectory=run(*steps), kind=kind, origin=f"run {at % 10}"))
    return made


def of(samples: list[Sample]) -> dict[str, Likeness]:
    return {each.by: each for each in likenesses(samples)}


def test_failures_that_differ_by_nothing_pass() -> None:
    areas = []
    for seed in range(20):
        found = of([*failures(40, "wrong_value", seed=seed), *failures(40, "", seed=seed + 100)])
        areas += [each.area for each in found.values()]
        assert not any(each.verdict == "too few failures" and each.area <= 0.6 for each in found.values())
    assert 0.42 < sum(areas) / len(areas) < 0.58


def test_a_word_that_only_injected_failures_have_fails_by_words() -> None:
    found = of([*failures(30, "wrong_value", "indeed"), *failures(30, "")])
    assert found["words"].area > 0.95
    assert found["words"].verdict == "failed"


def test_a_step_that_only_injected_failures_have_fails_by_shape() -> None:
    found = of([*failures(30, "loop", twice=True), *failures(30, "")])
    assert found["shape"].area > 0.95
    assert found["shape"].verdict == "failed"


def test_the_most_recognisable_kind_is_named_first() -> None:
    samples = [*failures(20, "wrong_value"), *failures(20, "loop", twice=True), *failures(40, "")]
    (kind, area, n), (other, chance, _) = of(samples)["shape"].kinds
    assert (kind, n, other) == ("loop", 20, "wrong_value")
    assert area > 0.95
    assert chance < 0.7


def test_few_failures_decide_nothing() -> None:
    found = of([*failures(9, "loop", twice=True), *failures(40, "")])
    assert {each.verdict for each in found.values()} == {"too few failures"}


def test_injected_or_real_failures_alone_are_not_compared() -> None:
    assert likenesses(failures(20, "loop")) == likenesses(failures(20, "")) == likenesses([]) == ()


def test_runs_of_one_origin_do_not_recognise_each_other() -> None:
    """Each origin has its own word and failures of one sort only, which its own runs would give away."""
    samples = [
        Sample(
            trajectory=run(step("a", f"word{at // 4} red")), kind="loop" * (at // 4 % 2), origin=f"{at // 4}"
        )
        for at in range(80)
    ]
    assert of(samples)["words"].verdict != "failed"


def test_frequent_failures_alone_do_not_look_injected() -> None:
    """Every origin has its own number of steps and one label; half of them have most organic failures."""
    samples = []
    for at in range(20):
        common = [step("a", "red")] * (1 + at % 2)
        for kind, n in (("wrong_value", 2), ("", 2 + 18 * (at % 2))):
            samples += [Sample(trajectory=run(*common), kind=kind, origin=f"{at}")] * n
    shape = of(samples)["shape"]
    assert shape.area == 0.5
    assert shape.verdict == "passed"


def test_words_of_a_single_origin_do_not_reveal_the_rarer_kind() -> None:
    """Organic failures share a word of their own origin: it must not count as a sign of injection."""
    areas = []
    for seed in range(10):
        injected = failures(30, "wrong_value", seed=seed)
        organic = [
            replace(each, trajectory=run(*each.trajectory.steps[:2], step("c", f"{each.origin[4:]}own red")))
            for each in failures(300, "", seed=seed + 100)
        ]
        same = [
            replace(each, trajectory=run(*each.trajectory.steps[:2], step("c", "red"))) for each in injected
        ]
        areas.append(of([*same, *organic])["words"].area)
    assert 0.42 < sum(areas) / len(areas) < 0.58


def test_failures_of_production_are_compared_with_every_label() -> None:
    """They repeat no run: a mark of the injected ones must be found all the same."""
    labels = failures(30, "wrong_value", "indeed")
    production = [replace(each, origin=f"production {at}") for at, each in enumerate(failures(60, ""))]
    assert of([*labels, *production])["words"].verdict == "failed"
    plain = [*failures(30, "wrong_value"), *production]
    assert of(plain)["words"].verdict != "failed"


def test_failures_of_few_runs_have_no_interval() -> None:
    (shape, _) = likenesses(
        [
            replace(each, origin=f"run {at % 4}")
            for sort in (failures(30, "loop", twice=True), failures(30, ""))
            for at, each in enumerate(sort)
        ]
    )
    assert (shape.interval.low, shape.interval.high) == (0.0, 1.0)
    assert shape.verdict == "too few failures"


def test_the_area_counts_ties_half() -> None:
    assert area_under([1.0, 2.0], [0.0, 2.0]) == 0.625
    assert area_under([1.0], [1.0]) == 0.5


def test_a_comparison_is_reported_in_numbers() -> None:
    (shape, _) = likenesses([*failures(30, "loop", twice=True), *failures(30, "")])
    document: dict[str, Any] = likeness_json(shape)
    assert document["verdict"] == "failed"
    assert (document["injected"], document["organic"], document["kinds"][0]["kind"]) == (30, 30, "loop")
    assert "by shape: AUC 1.00" in likeness_line(shape)
