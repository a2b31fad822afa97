"""One benchmark from settings to lines: the attributor, the kept replies, what learns, what abstains."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analyzer.attribution import Attributor
from analyzer.commands.output import advance, complain, progress_bar
from analyzer.composition import open_analyst
from analyzer.conversation import Conversation, Label
from analyzer.measuring.benchmark import (
    Benchmark,
    Job,
    blinded,
    examine,
    labelled,
    out_of_fold,
    select,
    trained_on,
)
from analyzer.measuring.comparison import multi_reference
from analyzer.measuring.contender import Contender
from analyzer.measuring.learners import LEARNERS
from analyzer.measuring.scoring import Score
from analyzer.measuring.tabulation import Subject, share, share_interval, tabulate
from analyzer.reply_cache import ReplyCache, cached, place_of_models
from collector_processor.settings import Settings, load_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the options ask for, beside the contenders."""

    training: tuple[Conversation, ...]
    trained_on: str
    folds: int | None
    precision: float | None
    concurrency: int
    cache: ReplyCache | None
    second: Mapping[str, Label] | None
    """Other annotators' labels by conversation; ``None`` where none were asked for."""
    excluded: frozenset[str]


def measure(path: Path, runs: Sequence[Conversation], contender: Contender, plan: Plan) -> Benchmark:
    """Measure one contender on the runs of a data set."""
    settings = settings_of(contender)
    attributor = open_analyst(settings, with_reference=contender.with_reference).attributor
    if plan.cache is not None and attributor.model is not None:
        model = cached(attributor.model, plan.cache, place_of_models(os.environ))
        attributor = replace(attributor, model=model)
    scored = labelled(runs)
    if not contender.with_reference:
        scored = blinded(scored)
    jobs, learned_from = _jobs(scored, settings.method, attributor, plan)
    asked_before = (plan.cache.found, plan.cache.missed) if plan.cache else (0, 0)
    with progress_bar("attributing", len(jobs)) as bar:
        scores = asyncio.run(
            examine(jobs, concurrency=plan.concurrency, progress=lambda _score: advance(bar))
        )
    if plan.cache is not None and plan.cache.found > asked_before[0]:
        found, missed = plan.cache.found - asked_before[0], plan.cache.missed - asked_before[1]
        complain(f"{path.name}: {found} of {found + missed} replies were kept from an earlier run")
    subject = Subject(
        dataset=path.name,
        method=settings.method,
        model=settings.model,
        with_reference=contender.with_reference,
        trained_on=learned_from,
    )
    lines, scores = _lines(scores, subject, plan)
    return Benchmark(lines=lines, scores=scores, left_out=len(runs) - len(scored))


def _jobs(
    runs: Sequence[Conversation], method: str, attributor: Attributor, plan: Plan
) -> tuple[tuple[Job, ...], str | None]:
    learner = LEARNERS.get(method)
    folds = plan.folds or (learner.usual_folds if learner else None)
    if learner and plan.training:
        return trained_on(plan.training, runs, learner, attributor), plan.trained_on
    if learner and folds:
        return out_of_fold(runs, learner, attributor, folds), f"the other folds of {folds}"
    return tuple(Job(run=run, attribute=attributor) for run in runs), None


def _lines(
    scores: tuple[Score, ...], subject: Subject, plan: Plan
) -> tuple[tuple[dict[str, Any], ...], tuple[Score, ...]]:
    """The lines, the total's with the extras that were asked for, and the scores that they are of."""
    extras: dict[str, Any] = {}
    if plan.precision is not None:
        chosen = select(scores, plan.precision)
        scores = chosen.scores
        answered = [s.step_right for s in scores if s.step is not None]
        extras["selective"] = {
            "precision_wanted": plan.precision,
            "answered": len(answered),
            "precision": share(answered),
            "precision_ci": share_interval(answered),
            "thresholds": list(chosen.thresholds),
        }
    if plan.second is not None:
        extras["second_labels"] = multi_reference(scores, plan.second)
    if plan.excluded:
        rest = [s for s in scores if s.run_id not in plan.excluded]
        extras["without_excluded"] = tabulate(rest, subject)[-1]
    lines = tabulate(scores, subject)
    return (*lines[:-1], {**lines[-1], **extras}), scores


def settings_of(contender: Contender) -> Settings:
    """Return the settings with what the contender says instead."""
    return load_settings(os.environ, directory=Path.cwd(), method=contender.method, model=contender.model)
