"""Attribution of one run: choice of the method, its budget, and the fallback when it fails.

``auto`` is decided here and nowhere else. Signals answer, or a ranker trained for the run's system. A model
is called only if it may change that answer, and its verdict is pooled with it (``pooling.py``); if the
model fails, or the run's text addresses a judge, the answer stands without it, and the verdict says so. Where
other runs of the workflow are known and distinguish a step, they are pooled too. No call may cost more than
its expected value (``posterior.py``). A method chosen by name is never replaced by another.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from analyzer.inquiry.calibration import Worth, as_labelled, doubted
from analyzer.inquiry.errors import ModelFailure, ModelNeeded
from analyzer.inquiry.method import (
    Answer,
    AttributionMethod,
    Budget,
    Clock,
    Model,
    Question,
    Steps,
    asking,
    consult,
    drive,
)
from analyzer.inquiry.posterior import belief_in_signals, worth_of
from analyzer.inquiry.visible import visible_run
from analyzer.methods.pooling import UNPROVED, Trust, pool_with_model, pooled_of
from analyzer.methods.prompt_injection import address, limit_belief
from analyzer.methods.ranker import Ranker
from analyzer.methods.ranker_features import VERSION
from analyzer.methods.registry import AUTO, registered
from analyzer.methods.suspicion import Confirm
from analyzer.methods.without_model import (
    Belief,
    LearnedRanking,
    Ranking,
    blame,
    judge_by_signals,
    ranker_belief,
    ranking,
    signals_belief,
)
from semconv.model import Abstention, Attribution, Blame, Effort, Trajectory

if TYPE_CHECKING:
    from analyzer.methods.history import Past

DEFAULT_BUDGET_USD: Final = 0.50
_FIXED_TOKENS: Final = 4_000
"""Tokens reserved for the instructions, the answer's schema, the task and the answer."""
_BYTES_PER_TOKEN: Final = 3
"""Bytes per token: low for English, about right for dense scripts, code and digits."""
_LEAST_BYTES: Final = 4_000
_CONTEXT_SHARES: Final = (1.0, 0.5, 0.2)
"""Shares of the run shown in successive attempts, when the model rejects the prompt as too long."""


def random_marker(_trajectory: Trajectory) -> str:
    """Return a word of 128 random bits, which no text contains."""
    return f"#{secrets.token_urlsafe(16)}"


def _as_it_is(text: str) -> str:
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributor:
    """Attributes runs by one configuration; stateless between runs.

    Raises:
        UnknownMethod: there is no method ``method``.
        ModelNeeded: ``method`` needs a model, and there is none.
    """

    method: str = AUTO
    model: Model | None = None
    ranker: Ranker | None = None
    """Trained on labelled runs; ``auto`` uses it for the systems it was trained on."""
    past: Past | None = None
    """Other runs of the same workflows; ``auto`` pools their evidence with its verdict."""
    trust: Trust = UNPROVED
    """What the model has earned: ``auto`` believes it no more than that."""
    worths: Mapping[str, Worth] = field(default_factory=dict)
    """What labels said of verdicts by signals, by their mode: ``auto`` corrects their confidence."""
    with_reference: bool = False
    """Whether the method may see the correct answer, if known."""
    budget_usd: float | None = DEFAULT_BUDGET_USD
    """Budget of one run; ``None`` is no limit."""
    least_confidence: float = 0.0
    """A blame with lower confidence becomes ``undetermined`` and keeps its ranking."""
    clock: Clock = time.monotonic
    new_marker: Callable[[Trajectory], str] = random_marker
    """Returns the word that begins marker lines; ``render.content_marker`` if replies are cached."""
    clean: Callable[[str], str] = _as_it_is
    """Removes secrets from a verdict's prose."""

    def __post_init__(self) -> None:
        if self.method != AUTO and registered(self.method).needs_model and self.model is None:
            raise ModelNeeded(f"the method {self.method!r} needs a model, and none is set")

    async def __call__(self, trajectory: Trajectory) -> Attribution:
        """Attribute one failed run; errors of a model or in a run become verdicts, not exceptions.

        Computes in this process between the model's answers; the service runs ``steps`` elsewhere.
        """
        started = self.clock()
        steps = self.steps(trajectory, self.new_marker(trajectory))
        attribution = await drive(steps, no_model if self.model is None else asking(self.model))
        return took(attribution, self.clock() - started)

    def steps(self, trajectory: Trajectory, marker: str) -> Steps:
        """Attribute one failed run as a generator of questions to the model; pure and repeatable.

        ``marker`` begins the lines of structure in prompts: long and random, so that no text contains it.
        """
        seen = self.seen(trajectory)
        name = self.method
        attribution = yield from (self._auto(seen, marker) if name == AUTO else self._run(name, seen, marker))
        trusted = self._without_secrets(_distrusted(attribution, seen))
        return doubted(trusted, self.least_confidence)

    def at_once(self, trajectory: Trajectory) -> Attribution:
        """Attribute one run synchronously, without a model.

        The configured method does not matter: the ranker answers if it knows the run's system, else signals.
        Signals always answer if they were chosen by name.
        """
        seen = self.seen(trajectory)
        started = self.clock()
        ranked = None if self.method == "signals" else self._ranked_at_home(seen)
        verdict = blame(self.ranker, seen, ranked) if self.ranker and ranked else judge_by_signals(seen)
        method = "ranker" if ranked else "signals"
        effort = Effort(duration_s=self.clock() - started)
        error = verdict.reason if isinstance(verdict, Abstention) else None
        attribution = Attribution(
            run_id=trajectory.run_id, verdict=verdict, method=method, effort=effort, error=error
        )
        if self.method != "signals":
            attribution = self._with_past(attribution, seen)
        return doubted(attribution, self.least_confidence)

    def confirm(self, suspected: Attribution, trajectory: Trajectory, marker: str) -> Steps:
        """Ask the model whether a suspected failure holds; it stands if the model gives no answer."""
        blame, model = suspected.verdict, self.model
        assert isinstance(blame, Blame)
        assert model is not None
        room = max(_LEAST_BYTES, (model.context_tokens - _FIXED_TOKENS) * _BYTES_PER_TOKEN)
        method = Confirm(blame=blame, max_bytes=room, marker=marker)
        budget = Budget(usd=self.budget_usd, purpose="a run")
        found = yield from consult(method, self.seen(trajectory), budget=budget, model=model.name)
        answer = found.attribution
        if answer.error is not None:
            fallback = f"signals, because {method.name} failed: {answer.error}"
            answer = replace(answer, verdict=blame, fallback=fallback, error=None)
        return self._without_secrets(answer)

    def seen(self, trajectory: Trajectory) -> Trajectory:
        """Return the run as methods see it: visible text, and the correct answer only if allowed.

        The same object if nothing is to be hidden, as in a run that this function returned.
        """
        hides = trajectory.reference is not None and not self.with_reference
        return visible_run(replace(trajectory, reference=None) if hides else trajectory)

    def _auto(self, trajectory: Trajectory, marker: str) -> Steps:
        ranked = self._ranked_at_home(trajectory)
        attribution = yield from self._without_past(trajectory, marker, ranked)
        return self._with_past(attribution, trajectory)

    def _without_past(self, trajectory: Trajectory, marker: str, ranked: Ranking | None) -> Steps:
        without = "signals" if ranked is None else "ranker"
        believed = ranked.shares if ranked else belief_in_signals(len(trajectory.steps))
        worth = worth_of(believed, self.trust.hoped)
        if self.model is None or (trajectory.steps and not worth.is_any):
            return (yield from self._run(without, trajectory, marker))
        if why := address(trajectory):
            alone = yield from self._run(without, trajectory, marker)
            return replace(alone, fallback=f"{without}, because {why}, which a model might obey")
        attribution = yield from self._run("judge", trajectory, marker, worth.limit(self.budget_usd))
        verdict = attribution.verdict
        if isinstance(verdict, Abstention):
            if trajectory.steps:
                return (yield from self._fall_back(attribution, trajectory, without))
            return attribution
        own = self._belief(trajectory, ranked)
        return replace(
            attribution,
            verdict=pool_with_model(own, verdict, trajectory, self.trust),
            method=f"judge+{without}",
            pooled=pooled_of(own, verdict, trajectory, self.trust),
        )

    def _belief(self, trajectory: Trajectory, ranked: Ranking | None) -> Belief:
        if self.ranker is None or ranked is None:
            return signals_belief(trajectory)
        return ranker_belief(self.ranker, trajectory, ranked)

    def _with_past(self, attribution: Attribution, trajectory: Trajectory) -> Attribution:
        """Return the attribution as labels correct it, pooled with the workflow's other runs."""
        attribution = as_labelled(attribution, self.worths)
        is_blame = isinstance(attribution.verdict, Blame)
        comparison = self.past.compare(trajectory) if self.past and is_blame else None
        if comparison is None:
            return attribution
        from analyzer.methods.history import pooled_with  # noqa: PLC0415 - most runs have no others beside them

        return pooled_with(attribution, trajectory, comparison)

    def _ranked_at_home(self, trajectory: Trajectory) -> Ranking | None:
        """Return the ranker's ranking of a run of a system that it was trained on; else ``None``."""
        if self.ranker is None or not trajectory.steps or self.ranker.features_version != VERSION:
            return None
        ranked = ranking(self.ranker, trajectory)
        return ranked if ranked.is_at_home else None

    def _run(
        self, name: str, trajectory: Trajectory, marker: str, limit: tuple[float | None, str] | None = None
    ) -> Steps:
        entry = registered(name)
        model = self.model if entry.needs_model else None
        if model is None:
            return (yield from consult(self._silent(name) or entry.build(0, marker), trajectory)).attribution
        spent, (usd, purpose) = Effort(), limit or (self.budget_usd, "a run")
        room = (model.context_tokens - _FIXED_TOKENS) * _BYTES_PER_TOKEN
        for share in _CONTEXT_SHARES:
            left = None if usd is None else usd - (spent.cost_usd or 0.0)
            method = entry.build(max(_LEAST_BYTES, int(room * share)), marker)
            found = yield from consult(
                method, trajectory, budget=Budget(usd=left, purpose=purpose), model=model.name
            )
            spent = _add(spent, found.attribution.effort)
            if found.failure is None or found.failure.kind is not ModelFailure.CONTEXT_TOO_LONG:
                break
        return replace(found.attribution, effort=spent)

    def _silent(self, name: str) -> AttributionMethod | None:
        """Return a method that needs what this attributor knows; ``None`` for the others."""
        if name == "ranker":
            return LearnedRanking(ranker=self.ranker)
        if name == "history":
            from analyzer.methods.history import History  # noqa: PLC0415 - as above

            return History(past=self.past)
        return None

    def _fall_back(self, failed: Attribution, trajectory: Trajectory, instead: str) -> Steps:
        answer = yield from self._run(instead, trajectory, "")
        return replace(
            answer,
            fallback=f"{instead}, because {failed.method} failed: {failed.error or failed.verdict.reason}",
            effort=_add(failed.effort, answer.effort),
        )

    def _without_secrets(self, attribution: Attribution) -> Attribution:
        """Return the attribution without secrets in its prose: a model may repeat one that it was shown.

        Redaction of the run misses secrets in unusual forms; a model may write them in a usual one.
        """
        verdict, clean = attribution.verdict, self.clean
        if isinstance(verdict, Blame):
            quotes = tuple(replace(quote, quote=clean(quote.quote)) for quote in verdict.evidence)
            verdict = replace(verdict, fix=clean(verdict.fix), evidence=quotes)
        return replace(
            attribution,
            verdict=replace(verdict, reason=clean(verdict.reason)),
            fallback=None if attribution.fallback is None else clean(attribution.fallback),
            error=None if attribution.error is None else clean(attribution.error),
        )


async def no_model(_question: Question) -> Answer:
    """Raise: a method that uses no model tried to ask one."""
    message = "a method that is registered as needing no model asked one"
    raise AssertionError(message)


def took(attribution: Attribution, duration_s: float) -> Attribution:
    """Return the attribution with its duration."""
    return replace(attribution, effort=replace(attribution.effort, duration_s=duration_s))


def _distrusted(attribution: Attribution, trajectory: Trajectory) -> Attribution:
    """Return the attribution with a model's confidence lowered if the run's text addresses the judge."""
    verdict = attribution.verdict
    if attribution.model is None or attribution.fallback or not isinstance(verdict, Blame):
        return attribution
    return replace(attribution, verdict=limit_belief(verdict, trajectory))


def _add(one: Effort, other: Effort) -> Effort:
    known = one.cost_usd is not None and other.cost_usd is not None
    return Effort(
        calls=one.calls + other.calls,
        input_tokens=one.input_tokens + other.input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        cost_usd=(one.cost_usd or 0.0) + (other.cost_usd or 0.0) if known else None,
    )
