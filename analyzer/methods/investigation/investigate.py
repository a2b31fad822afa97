"""Investigate: a model with reading tools and an influence graph; quotes must support each hop upstream.

The model sees every step's head with the steps it builds on, and requests more text (``read_step``,
``read_range``, ``search``, as JSON in its reply). It answers with the path of the wrong result: from
the step where it shows, upstream, with a quote from each step. Each quote must occur in its step;
blame moves upstream only as far as the quotes are correct.

Source: the dependency graph is arXiv:2510.10581's idea, built here without a model; this code, not
the model, enforces the rule that blame moves only where the text confirms it.
Cost: 1 to 8 model calls, one more to correct an answer and one to challenge it, and at most 60,000
tokens sent and received, by a conservative estimate of three bytes a token; a run that fits whole
costs little more than ``judge``.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pydantic import Field, ValidationError

from analyzer.inquiry.method import Inquiry, Prompt, Reply
from analyzer.methods.investigation.reading_session import ReadingSession, Request, open_session, requests_in
from analyzer.methods.judge import JudgeReply, Objects, Quote, claim, supported
from analyzer.methods.replies.free_text import LONGEST, objects
from analyzer.methods.replies.settle_answer import (
    check_quotes,
    join_sentences,
    no_such_step,
    nothing_to_judge,
    rank,
    repair,
    step_at,
    unreadable,
)
from semconv.model import Blame, Trajectory, Verdict

_MOST_TOKENS: Final = 60_000
_LONGEST_NOTE: Final = 600
_UNCONFIRMED: Final = 0.6
"""Share of the confidence kept if the quotes support only a step later than the blamed one."""


class InvestigatorReply(JudgeReply):
    """A judge's answer with the path of the wrong result, from where it shows to its origin."""

    path: Objects[Quote] = Field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Investigate:
    """A model with reading tools and a token budget. ``max_bytes`` bounds the run's text in one prompt."""

    max_bytes: int
    marker: str
    """Begins the lines of structure in prompts; occurs in no text."""
    most_tokens: int = _MOST_TOKENS
    name: str = "investigate"

    def investigate(self, trajectory: Trajectory) -> Inquiry:
        """Let the model read until it answers or its budget is used up, then check the answer."""
        if not trajectory.steps:
            return nothing_to_judge()
        session = open_session(
            trajectory, max_bytes=self.max_bytes, marker=self.marker, tokens=self.most_tokens
        )
        reply = yield from _read_on(session)
        answer = _answer_in(reply, trajectory)
        if isinstance(answer, str):
            return unreadable(answer, reply)
        missing = _unconfirmed(trajectory, answer)
        if missing is not None and session.affords(objection := _objection(session, reply, missing)):
            revised = _answer_in((yield session.pay(objection)), trajectory)
            answer = answer if isinstance(revised, str) else revised
        return _verdict(trajectory, answer)


def _read_on(session: ReadingSession) -> Generator[Prompt, Reply, Reply]:
    """Serve requests until a reply contains none; the last affordable prompt asks to conclude."""
    while True:
        last = session.is_last_call
        prompt = session.pay(session.prompt(last=last))
        reply = yield prompt
        answer = _answer_in(reply, session.trajectory)
        if not isinstance(answer, str):
            return reply
        note, requests = _requests_in(reply)
        if requests and not last:
            session.file(note, requests)
            continue
        mended = repair(prompt, reply, answer, "as one JSON object of the shape asked for")
        if not session.affords(mended):
            return reply
        return (yield session.pay(mended))


def _objection(session: ReadingSession, reply: Reply, missing: int) -> Prompt:
    problem = (
        f"nothing it quotes stands in step {missing}. Quote that step word for word,"
        " or blame the last step of the path that you can quote"
    )
    return repair(session.prompt(last=True), reply, problem, "as one JSON object with its path")


def _requests_in(reply: Reply) -> tuple[str, tuple[Request, ...]]:
    for found in objects(reply.text[:LONGEST]):
        requests = requests_in(found)
        if requests:
            note = found.get("note")
            return (note[:_LONGEST_NOTE] if isinstance(note, str) else ""), requests
    return "", ()


def _answer_in(reply: Reply, trajectory: Trajectory) -> InvestigatorReply | str:
    """Return the answer in a reply if it names an existing step, or the problem as text."""
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
    """Return the existing steps of the path after the blamed one, latest first, then the blamed step."""
    later = {each.step for each in answer.path if each.step > answer.step}
    known = [step for step in sorted(later, reverse=True) if step_at(trajectory, step) is not None]
    return [*known, answer.step]


def _is_confirmed(trajectory: Trajectory, answer: InvestigatorReply, step: int) -> bool:
    quotes = [(each.step, each.quote) for each in (*answer.path, *answer.evidence) if each.step == step]
    return bool(check_quotes(trajectory, quotes).evidence)


def _unconfirmed(trajectory: Trajectory, answer: InvestigatorReply) -> int | None:
    """Return the first step upstream without a matching quote; ``None`` if all match."""
    hops = _hops(trajectory, answer)
    return next((step for step in hops if not _is_confirmed(trajectory, answer, step)), None)


def _verdict(trajectory: Trajectory, answer: InvestigatorReply) -> Verdict:
    quoted = [*answer.path, *answer.evidence]
    found = claim(trajectory, answer.model_copy(update={"evidence": quoted}))
    missing = _unconfirmed(trajectory, answer)
    hops = _hops(trajectory, answer)
    if missing is None or hops[0] == missing:
        return supported(found)  # all quotes match, or none
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
