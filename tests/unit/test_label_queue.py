"""The queue asks first about runs whose answer says most, and about a random fifth whatever they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from hypothesis import given
from hypothesis import strategies as st

from analyzer.issues.labels.queue import (
    Candidate,
    Why,
    choose,
    disagreement,
    is_blind,
    is_random,
    uncertainty,
)


def names(*, random: bool, n: int = 40) -> list[tuple[str, str]]:
    """Return names of runs that are, or are not, of the random fifth."""
    found = (("", f"run-{number}") for number in range(10_000))
    return [name for name in found if is_random(name) is random][:n]


CHOSEN = names(random=False)


def candidate(at: int, shares: Sequence[float] = (0.9, 0.05), **fields: object) -> Candidate:
    return Candidate(name=CHOSEN[at], probabilities=shares, **fields)  # type: ignore[arg-type]


def first(*candidates: Candidate, labelled: dict[str, int] | None = None) -> str:
    return choose(candidates, labelled or {}, 1)[0].candidate.name[1]


def test_an_uncertain_run_is_asked_about_before_a_certain_one() -> None:
    assert first(candidate(0), candidate(1, (0.4, 0.38))) == CHOSEN[1][1]


def test_methods_that_disagree_are_asked_about_before_methods_that_agree() -> None:
    agree, disagree = candidate(0, steps=(3, 3)), candidate(1, steps=(3, 5))
    (question,) = choose([agree, disagree], {}, 1)
    assert (question.candidate.name, question.why) == (CHOSEN[1], Why.DISAGREEMENT)


def test_a_frequent_failure_is_asked_about_before_a_rare_one() -> None:
    assert first(candidate(0, size=1), candidate(1, size=40)) == CHOSEN[1][1]


def test_a_run_similar_to_labelled_ones_comes_later() -> None:
    alike, other = candidate(0, (0.5, 0.5), group="a"), candidate(1, (0.6, 0.4), group="b")
    assert first(alike, other) == CHOSEN[0][1]
    assert first(alike, other, labelled={"a": 3}) == CHOSEN[1][1]


def test_runs_that_look_alike_are_not_asked_about_one_after_the_other() -> None:
    alike = [candidate(at, (0.5, 0.5), group="a") for at in range(5)]
    other = candidate(9, (0.7, 0.3), group="b")
    asked = choose([*alike, other], {}, 3)
    assert other.name in {each.candidate.name for each in asked}


def test_one_question_in_five_is_random_and_in_an_order_that_no_verdict_changes() -> None:
    sure = [Candidate(name=name, probabilities=(1.0,)) for name in names(random=True)]
    doubtful = [Candidate(name=name, probabilities=(0.5, 0.5)) for name in names(random=True)]
    others = [candidate(at) for at in range(40)]
    asked = choose([*sure, *others], {}, 20)
    assert [at for at, each in enumerate(asked) if each.why is Why.RANDOM] == [4, 9, 14, 19]
    again = choose([*reversed(doubtful), *others], {}, 20)
    drawn = [each.candidate.name for each in asked if each.why is Why.RANDOM]
    assert drawn == [each.candidate.name for each in again if each.why is Why.RANDOM]


def test_about_a_fifth_is_random_and_a_tenth_blind_independently() -> None:
    drawn = [("shop", f"{number:032x}") for number in range(20_000)]
    both = Counter((is_random(name), is_blind(name)) for name in drawn)
    assert 0.18 < sum(n for (random, _), n in both.items() if random) / len(drawn) < 0.22
    assert 0.09 < sum(n for (_, blind), n in both.items() if blind) / len(drawn) < 0.11
    assert 0.015 < both[True, True] / len(drawn) < 0.025


class Counted(tuple[float, ...]):
    """Probabilities that count how often they are read."""

    __slots__ = ()
    reads = 0

    def __iter__(self) -> Iterator[float]:
        Counted.reads += 1
        return super().__iter__()


def test_each_runs_suspects_are_read_a_few_times_however_many_questions_are_asked() -> None:
    runs = [candidate(at, Counted((0.5, 0.3))) for at in range(40)]
    Counted.reads = 0
    assert len(choose(runs, {}, 30)) == 30
    assert 40 <= Counted.reads <= 2 * 40


@given(st.integers(0, 60), st.integers(0, 80))
def test_every_run_is_asked_about_once_at_most(n: int, most: int) -> None:
    runs = [Candidate(name=("", f"run-{number}"), probabilities=(0.5,)) for number in range(n)]
    asked = [each.candidate.name for each in choose(runs, {}, most)]
    assert len(asked) == len(set(asked)) == min(n, most)


@given(st.lists(st.floats(0, 1), max_size=6), st.lists(st.integers(0, 5), max_size=6))
def test_uncertainty_and_disagreement_are_shares(shares: list[float], steps: list[int]) -> None:
    assert 0 <= uncertainty(shares) <= 1
    assert 0 <= disagreement(steps) <= 1
