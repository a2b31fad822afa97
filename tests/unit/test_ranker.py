from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from analyzer.experiment.candidates import steps_to_try
from analyzer.inquiry.calibration import Calibration
from analyzer.inquiry.errors import UnreadableInput
from analyzer.inquiry.method import Prompt, Reply
from analyzer.inquiry.posterior import Order, SetRule, log_softmax
from analyzer.methods.attribution import Attributor
from analyzer.methods.pooling import UNPROVED, pool_with_model
from analyzer.methods.ranker import (
    Panel,
    Ranker,
    Record,
    familiarity,
    linear_shares,
    read_model,
    step_rows,
    write_model,
)
from analyzer.methods.ranker_features import FEATURES, VERSION, Table, featurise
from analyzer.methods.without_model import rank, ranker_belief, ranking
from semconv.model import Abstention, Blame, Ranked, Status, StepSet, Trajectory
from tests.runs import run, step

RUN = run(
    step("Planner", "the plan"), step("Coder", "a line of code"), step("Coder", "an error, sorry"), task="t"
)
PLACE = FEATURES.index("place")
ERRORS = FEATURES.index("error_words")
RULE = SetRule(order=Order.CONTIGUOUS, mass=0.5, covered=95, n=100)


def weights(**wanted: float) -> tuple[float, ...]:
    return tuple(wanted.get(name, 0.0) for name in (*FEATURES, "record", "runs"))


def ranker(panel: Panel | None = None, **fields: object) -> Ranker:
    made = Ranker(
        features_version=VERSION,
        steps=panel or Panel(weights=weights(error_words=2.0)),
        records={"planner": Record(runs=9, blamed=3), "coder": Record(runs=9, blamed=6)},
        systems=("acme",),
        card={"labels": 9},
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def blame(verdict: object) -> Blame:
    assert isinstance(verdict, Blame)
    return verdict


@pytest.mark.parametrize(
    ("card", "most"),
    [({"labels": 20}, 21 / 22), ({"labels": 1000}, 1001 / 1002), ({}, 0.5), ({"labels": "many"}, 0.5)],
)
def test_no_number_of_labels_makes_a_model_certain(card: dict[str, object], most: float) -> None:
    """A run of one step offers no choice, and twenty such labels teach nothing."""
    one_step = run(step("Coder", "an error, sorry"), task="t")
    model = ranker(card=card)
    assert blame(rank(model, one_step)).confidence == pytest.approx(most, abs=1e-4)
    verdict = blame(rank(model, one_step))
    judged = pool_with_model(
        ranker_belief(model, one_step, ranking(model, one_step)), verdict, one_step, UNPROVED
    )
    assert judged.confidence <= most


def test_the_steps_of_a_run_compete_for_one_blame() -> None:
    shares = linear_shares((1.0,), [[0.0], [math.log(3)]])
    assert [math.exp(share) for share in shares] == pytest.approx([0.25, 0.75])


def test_the_learner_and_the_signals_are_heard_by_their_weights() -> None:
    panel = Panel(weights=weights(error_words=2.0 / 3), signals=1 / 3)
    table = featurise(RUN)
    rows = step_rows(table, {})
    linear = [2.0 * row[ERRORS] for row in table.rows]
    signals = [row[FEATURES.index("signals_log")] for row in table.rows]
    mean = [sum(both) / 3 for both in zip(linear, signals, strict=True)]
    together = panel.opinion(rows)
    assert [share - together[0] for share in together] == pytest.approx([one - mean[0] for one in mean])


def test_a_run_does_not_testify_in_its_own_case() -> None:
    table = Table(rows=((0.0,), (0.0,)), agents=("a", "b"))
    records = {"a": Record(runs=1, blamed=1), "b": Record(runs=1, blamed=0)}
    fresh = step_rows(table, {})
    assert step_rows(table, records, own="a") == fresh
    assert step_rows(table, records) != fresh


def test_the_verdict_names_the_likeliest_step_and_what_the_model_was_trained_on() -> None:
    verdict = blame(rank(ranker(), RUN))
    assert (verdict.step, verdict.agent) == (2, "Coder")
    assert "9 labelled runs of acme" in verdict.reason
    assert "out of distribution" not in verdict.reason
    assert sum(candidate.probability for candidate in verdict.ranking) == pytest.approx(1.0, abs=0.001)


def test_a_set_of_steps_comes_with_a_verdict_at_home_if_enough_labels_vouch_for_it() -> None:
    found = blame(rank(ranker(set_rule=RULE), RUN)).step_set
    assert found is not None
    assert 2 in found.steps
    assert (found.coverage, found.observed, found.n) == (0.9, 0.95, 100)
    few = replace(RULE, covered=48, n=49)
    assert blame(rank(ranker(set_rule=few), RUN)).step_set is None
    stranger = replace(RUN, steps=tuple(replace(s, agent=f"x-{s.agent}") for s in RUN.steps))
    assert blame(rank(ranker(set_rule=RULE), stranger)).step_set is None


def test_a_set_holds_the_step_that_other_opinions_blame() -> None:
    model = ranker(Panel(weights=weights(error_words=9.0)), set_rule=replace(RULE, mass=0.0))
    seen = ranking(model, RUN)
    assert blame(rank(model, RUN)).step_set == replace(expect_set(model), steps=(2,))
    pooled = ranker_belief(model, RUN, seen).blame(log_softmax([9.0, 0.0, 0.0]))
    assert pooled.step == 0
    assert pooled.step_set == replace(expect_set(model), steps=(0, 2))


def expect_set(model: Ranker) -> StepSet:
    assert model.set_rule is not None
    ends = model.set_rule.interval
    return StepSet(
        steps=(), coverage=0.9, observed=0.95, interval=(round(ends.low, 4), round(ends.high, 4)), n=100
    )


def test_an_experiment_tries_the_steps_of_the_set_too() -> None:
    verdict = replace(blame(rank(ranker(), RUN)), ranking=(Ranked(step=2, agent="Coder", probability=0.7),))
    assert steps_to_try(verdict, RUN) == verdict.ranking
    found = StepSet(steps=(1, 2), coverage=0.9, observed=0.95, interval=(0.9, 1.0), n=100)
    assert steps_to_try(replace(verdict, step_set=found), RUN) == (
        *verdict.ranking,
        Ranked(step=1, agent="Coder", probability=0.7),
    )


def test_on_a_system_it_has_never_seen_the_verdict_says_so_and_claims_little() -> None:
    stranger = replace(RUN, steps=tuple(replace(s, agent=f"x-{s.agent}") for s in RUN.steps))
    verdict = blame(rank(ranker(), stranger))
    assert verdict.reason.startswith("out of distribution")
    assert verdict.confidence <= 0.15 < blame(rank(ranker(), RUN)).confidence


def test_the_same_run_under_other_names_is_a_strangers_and_so_is_one_that_nobody_signed() -> None:
    """It was trained on one system: verdicts on other systems must not look equally certain."""
    for name in ("x", "unknown", "assistant", "", "Coder2"):
        renamed = replace(RUN, steps=tuple(replace(s, agent=name) for s in RUN.steps))
        verdict = blame(rank(ranker(), renamed))
        assert "out of distribution" in verdict.reason, name
        assert "9 labelled runs of acme" in verdict.reason
        assert verdict.confidence <= 0.15
    nameless = blame(rank(ranker(systems=()), renamed))
    assert "unnamed systems" in nameless.reason


def test_a_model_of_other_features_is_not_used_and_nor_is_a_run_without_steps() -> None:
    for verdict in (rank(ranker(features_version=VERSION + 1), RUN), rank(ranker(), replace(RUN, steps=()))):
        assert isinstance(verdict, Abstention)
        assert verdict.status is Status.ERROR


def test_what_has_learned_nothing_says_what_the_signals_say() -> None:
    table = featurise(RUN)
    rows = step_rows(table, {})
    signals = log_softmax([row[FEATURES.index("signals_log")] for row in rows])
    assert Panel(signals=1.0).opinion(rows) == pytest.approx(signals)


def test_names_that_agents_bear_everywhere_make_no_run_at_home() -> None:
    own = {"planner": Record(runs=9), "user": Record(runs=9), "assistant": Record(runs=9)}
    assert familiarity(own, ["user", "assistant", "planner", "stranger"]) == 0.5
    assert familiarity(own, ["user", "assistant", "user"]) == 0.0
    assert familiarity(own, ["unknown"]) == familiarity(own, []) == 0.0
    everybodys = {"user": Record(runs=9), "assistant": Record(runs=9)}
    assert familiarity(everybodys, ["user", "assistant"]) == 1.0  # nothing tells such systems apart


def test_a_model_comes_back_from_its_file_as_it_was() -> None:
    calibration = Calibration(temperature=1.3, curve=((0.1, 0.2), (0.9, 0.7)))
    model = ranker(Panel(weights=weights(place=0.5), signals=0.25), calibration=calibration, set_rule=RULE)
    assert read_model(write_model(model)) == model


def test_a_model_of_an_earlier_format_is_to_be_trained_again() -> None:
    document = json.loads(write_model(ranker()))
    with pytest.raises(UnreadableInput, match=r"blamespan-ranker/2.* train it again with `blamespan train`"):
        read_model(json.dumps({**document, "format": "blamespan-ranker/2"}))


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (["format"], "pickle", "format"),
        (["temperature"], 0, "not a usable number"),
        (["temperature"], "NaN", "not a usable number"),
        (["home"], 0, "not a usable number"),
        (["curve"], [[0.5, 0.2], [0.5, 0.4]], "does not ascend"),
        (["curve"], [[0.1, 0.4], [0.5, 0.2]], "does not ascend"),
        (["curve"], [[0.1]], "ValueError"),
        (["steps", "signals"], 1.5, "not a weight"),
        (["steps", "signals"], -1, "not a usable number"),
        (["steps", "weights"], [1.0], "1 weights"),
        (["temperature"], 1e300, "not a usable number"),
        (["steps", "signals"], 10**400, "OverflowError"),
        (["records"], {"a": [1]}, "ValueError"),
        (["records"], {"a": [3, -4]}, "not a usable number"),
        (["records"], {"a": [10**400, 1]}, "OverflowError"),
        (["records"], {"a": [10**30, 1]}, "not a usable number"),
        (["features"], ["place"], "the features are not those"),
        (["card", "confidences"], [["sure", True]], "ValueError"),
        (["card", "confidences"], [[float("nan"), True]], "not a usable number"),
        (["steps"], None, "TypeError"),
        (["set_rule", "order"], "random", "not a valid Order"),
        (["set_rule", "mass"], 1.5, "not a weight"),
        (["set_rule", "covered"], 101, "101 of 100 runs"),
    ],
)
def test_a_file_that_could_not_be_used_is_refused_with_the_reason(
    path: list[str | int], value: object, problem: str
) -> None:
    document = json.loads(write_model(ranker(Panel(weights=weights(place=1.0)), set_rule=RULE)))
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(UnreadableInput, match=problem):
        read_model(json.dumps(document))


@pytest.mark.parametrize("text", ["", "[]", "7", "{}", "[" * 100_000])
def test_a_file_that_is_not_a_model_is_refused(text: str) -> None:
    with pytest.raises(UnreadableInput, match="not a ranker"):
        read_model(text)


class ScriptedModel:
    """Counts its calls, and always blames the same step."""

    name = "scripted"
    context_tokens = 100_000

    def __init__(self, step: int) -> None:
        self.asked = 0
        self.step = step

    def price(self, _prompt: Prompt) -> float | None:
        return None

    async def complete(self, _prompt: Prompt) -> Reply:
        self.asked += 1
        answer = {
            "agent": RUN.steps[self.step].agent,
            "step": self.step,
            "reason": "it is",
            "fix": "",
            "mode": "other",
            "evidence": [{"step": self.step, "quote": RUN.steps[self.step].output}],
            "ranking": [{"step": self.step, "agent": RUN.steps[self.step].agent, "probability": 0.9}],
        }
        return Reply(text=json.dumps(answer))


async def test_by_name_without_a_trained_model_it_says_what_is_missing() -> None:
    attribution = await Attributor(method="ranker")(RUN)
    assert attribution.status is Status.ERROR
    assert "blamespan train" in (attribution.error or "")


async def test_auto_uses_it_at_home_and_signals_elsewhere() -> None:
    auto = Attributor(ranker=ranker())
    assert (await auto(RUN)).method == "ranker"
    stranger: Trajectory = replace(RUN, steps=tuple(replace(s, agent="x") for s in RUN.steps))
    assert (await auto(stranger)).method == "signals"


async def test_auto_asks_no_model_whose_answer_could_not_change_the_ranking() -> None:
    model = ScriptedModel(step=0)
    sure = ranker(Panel(weights=weights(error_words=9.0)))
    attribution = await Attributor(ranker=sure, model=model)(RUN)
    assert (model.asked, attribution.method) == (0, "ranker")


async def test_auto_pools_a_judge_with_a_ranker_in_doubt() -> None:
    model = ScriptedModel(step=1)
    in_doubt = ranker(Panel(weights=weights(error_words=0.1)))
    attribution = await Attributor(ranker=in_doubt, model=model)(RUN)
    assert (model.asked, attribution.method) == (1, "judge+ranker")
    verdict = blame(attribution.verdict)
    assert verdict.step == 1
    alone = {c.step: c.probability for c in blame(rank(in_doubt, RUN)).ranking}
    assert alone[1] < verdict.confidence < 0.9


def test_where_the_ranker_overrules_the_judge_the_verdict_says_what_it_said() -> None:
    sure = ranker(Panel(weights=weights(error_words=9.0)))
    own = blame(rank(sure, RUN))
    judged = Blame(
        agent="Planner",
        step=0,
        reason="a poor plan",
        confidence=0.9,
        ranking=(Ranked(step=0, agent="Planner", probability=0.9),),
    )
    verdict = pool_with_model(ranker_belief(sure, RUN, ranking(sure, RUN)), judged, RUN, UNPROVED)
    assert verdict.step == own.step == 2
    assert "the model named step 0 of Planner: a poor plan" in verdict.reason
