"""Investigate: a reader with an influence graph; blame moves upstream only where the text bears it out.

The model sees every step's head with what it builds on, and reads on by itself (``read_step``,
``read_range``, ``search``, as JSON in words). It answers with the way the wrong result came: from
the step where it shows, upstream, a quote from each. Each quote must stand in its step; blame
goes up as far as they do and no farther.

Source: the dependency graph is arXiv:2510.10581's idea, built here without a model; the rule that
blame moves only where the text confirms it is ours to enforce, not the model's to promise.
Cost: 1 to 8 model calls, one more to mend an answer and one to object to it, and at most 60,000
tokens sent and received, by a careful estimate of a token in three bytes; a run that fits whole
takes little more than ``judge``.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pydantic import Field, ValidationError, field_validator

from analyzer.method import Inquiry, Prompt, Reply
from analyzer.methods.answering import (
    check_quotes,
    join_sentences,
    no_such_step,
    nothing_to_judge,
    rank,
    repair,
    step_at,
    unreadable,
)
from analyzer.methods.desk import Desk, open_desk
from analyzer.methods.free_text import LONGEST, objects
from analyzer.methods.judge import JudgeReply, Quote, blame, only_objects
from analyzer.methods.reader import Request, requests_in
from semconv.model import Blame, Trajectory, Verdict

_MOST_TOKENS: Final = 60_000
_LONGEST_NOTE: Final = 600
_UNCONFIRMED: Final = 0.6
"""Confidence kept where the text bears out a later step than the one the model blamed."""


class InvestigatorReply(JudgeReply):
    """A judge's answer with the way the wrong result came, from where it shows to where it began."""

    path: list[Quote] = Field(default_factory=list)

    @field_validator("path", mode="before")
    @classmethod
    def _only_quotes(cls, value: object) -> object:
        return only_objects(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Investigate:
    """A reader on a budget. ``max_bytes`` bounds the run's text in one prompt."""

    max_bytes: int
    most_tokens: int = _MOST_TOKENS
    name: str = "investigate"

    def investigate(self, trajectory: Trajectory) -> Inquiry:
        """Let the model read until it answers or its budget is used up, then check what it answers."""
        if not trajectory.steps:
            return nothing_to_judge()
        desk = open_desk(trajectory, max_bytes=self.max_bytes, tokens=self.most_tokens)
        reply = yield from _read_on(desk)
        answer = _answer_in(reply, trajectory)
        if isinstance(answer, str):
            return unreadable(answer, reply)
        missing = _unconfirmed(trajectory, answer)
        if missing is not None and desk.affords(objection := _objection(desk, reply, missing)):
            revised = _answer_in((yield desk.pay(objection)), trajectory)
            answer = answer if isinstance(revised, str) else revised
        return _verdict(trajectory, answer)


def _read_on(desk: Desk) -> Generator[Prompt, Reply, Reply]:
    """Serve requests until the reply holds none; the last prompt that can be paid for asks to conclude."""
    while True:
        last = desk.is_last_call
        prompt = desk.pay(desk.prompt(last=last))
        reply = yield prompt
        answer = _answer_in(reply, desk.trajectory)
        if not isinstance(answer, str):
            return reply
        note, requests = _requests_in(reply)
        if requests and not last:
            desk.file(note, requests)
            continue
        mended = repair(prompt, reply, answer, "as one JSON object of the shape asked for")
        if not desk.affords(mended):
            return reply
        return (yield desk.pay(mended))


def _objection(desk: Desk, reply: Reply, missing: int) -> Prompt:
    problem = (
        f"nothing it quotes stands in step {missing}. Quote that step word for word,"
        " or blame the last step of the path that you can quote"
    )
    return repair(desk.prompt(last=True), reply, problem, "as one JSON object with its path")


def _requests_in(reply: Reply) -> tuple[str, tuple[Request, ...]]:
    for found in objects(reply.text[:LONGEST]):
        requests = requests_in(found)
        if requests:
            note = found.get("note")
            return (note[:_LONGEST_NOTE] if isinstance(note, str) else ""), requests
    return "", ()


def _answer_in(reply: Reply, trajectory: Trajectory) -> InvestigatorReply | str:
    """Return the answer about an existing step that a reply holds, or what is wrong with it, in words."""
    problem = "it contains neither a request nor an answer as JSON"
    for found in objects(reply.text[:LONGEST]):
        inner = found.get("verdict")
        try:
            answer = InvestigatorReply.model_validate(inner if isinstance(inner, Mapping) else found)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            continue
        if step_at(trajectory, answer.step) is not None:
            return answer
        problem = no_such_step(trajectory, answer.step)
    return problem


def _hops(trajectory: Trajectory, answer: InvestigatorReply) -> list[int]:
    """The steps of the path that exist and come after the blamed one, latest first, then that one."""
    later = {each.step for each in answer.path if each.step > answer.step}
    known = [step for step in sorted(later, reverse=True) if step_at(trajectory, step) is not None]
    return [*known, answer.step]


def _is_confirmed(trajectory: Trajectory, answer: InvestigatorReply, step: int) -> bool:
    quotes = [(each.step, each.quote) for each in (*answer.path, *answer.evidence) if each.step == step]
    return bool(check_quotes(trajectory, quotes).evidence)


def _unconfirmed(trajectory: Trajectory, answer: InvestigatorReply) -> int | None:
    """The first step on the way up whose text does not bear the answer out; ``None`` if all do."""
    hops = _hops(trajectory, answer)
    return next((step for step in hops if not _is_confirmed(trajectory, answer, step)), None)


def _verdict(trajectory: Trajectory, answer: InvestigatorReply) -> Verdict:
    quoted = [*answer.path, *answer.evidence]
    found = blame(trajectory, answer.model_copy(update={"evidence": quoted}))
    missing = _unconfirmed(trajectory, answer)
    hops = _hops(trajectory, answer)
    if missing is None or hops[0] == missing:
        return found  # all stands, or nothing does, and the missing evidence has cost its confidence
    reached = hops[hops.index(missing) - 1]
    return _held_back(trajectory, found, reached, missing)


def _held_back(trajectory: Trajectory, found: Blame, reached: int, missing: int) -> Blame:
    step = step_at(trajectory, reached)
    assert step is not None
    note = (
        f"(The model blamed step {found.step}, but nothing it quoted stands in step {missing};"
        f" blame stays with step {reached})"
    )
    confidence = round(found.confidence * _UNCONFIRMED, 4)
    others = [
        (each.step, min(each.probability, confidence)) for each in found.ranking if each.step != reached
    ]
    return replace(
        found,
        agent=step.agent,
        step=reached,
        reason=join_sentences([found.reason, note]),
        confidence=confidence,
        fix="" if step.agent != found.agent else found.fix,
        ranking=rank(trajectory, step, confidence, others),
    )
