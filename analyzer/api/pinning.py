"""What a pinned run asserts of a right run beside its answer, and which pins are refused. Not pure.

``--blameless`` asserts that signals and lineage blame no agent, and that the rules hold which the passing
runs of the workflow showed when the run was pinned. The rules stand in a file beside the tape, so that no
store is needed and the answer is the same everywhere. Only kinds of invariants that outlive a change of
prompts, tools or model are written, and only those that may accuse a run that reported nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from analyzer.analyses.composition import open_analyst, open_cleaner
from analyzer.experiment.pinned_text import one_line, verdict_line
from analyzer.experiment.replay.matching import Spoken, TapeIndex, Waiting
from analyzer.experiment.replay.tape import Tape
from analyzer.history import facts
from analyzer.history.broken import MOST_TOLD, Violation, rule, told, violations
from analyzer.history.facts import Facts
from analyzer.history.invariants import Held, Invariant, Kind
from analyzer.history.invariants import Run as IndexedRun
from analyzer.history.known_runs import has_shared_agents
from analyzer.history.mining import ACROSS_VERSIONS, PASSING, Mined, mine
from analyzer.inquiry.errors import AnalyzerError
from analyzer.inquiry.verdict import to_json
from collector_processor.core.runs import Run
from collector_processor.rebuild.redaction import Redactor
from collector_processor.settings import load_settings
from semconv.model import Outcome, OutcomeSource, Status, Trajectory
from semconv.record import record, replace

_FAULTY: Final = frozenset({Status.ATTRIBUTED, Status.SUSPECTED, Status.UNDETERMINED})
_TEXTS: Final = ("kind", "tool", "path", "other", "where", "value")
_SETS: Final = ("values", "later")
_MOST_FAMILIAR: Final = 500
"""Sources of values that a file names: a workflow of 32 tools with 15 paths each."""


class NotPinned(AnalyzerError):  # noqa: N818 - a statement reads better at the ``raise``
    """A run is not pinned, or the rules beside its tape cannot be read; the message says why."""


@record
class Rules:
    """What the passing runs of a workflow always did."""

    held: tuple[Held, ...]
    runs: int
    """The passing runs."""
    agents: frozenset[str]
    """The agents of most of these runs: a run that shares few of them is another workflow's."""

    def broken_by(self, trajectory: Trajectory) -> tuple[Violation, ...] | None:
        """Return the rules that a run breaks, the supposed fault first; ``None`` of another workflow."""
        if not has_shared_agents(self.agents, {step.agent for step in trajectory.steps}):
            return None
        mined = Mined(
            runs=self.runs, basis=PASSING, held=self.held, exceptions={}, accusing=frozenset(), limit=0.0
        )
        return violations(facts.collect(trajectory), mined)

    def without(self, broken: Iterable[Violation]) -> Rules:
        """Return the other rules."""
        left_out = {violation.held for violation in broken}
        return replace(self, held=tuple(one for one in self.held if one not in left_out))


NO_RULES: Final = Rules(held=(), runs=0, agents=frozenset())
LEFT_OUT: Final = "a rule is left out, which the recorded run breaks: "
"""What is said before each rule that a test cannot assert."""


def rules_of(known: Sequence[Facts]) -> Rules:
    """Return what all of a workflow's passing runs did, the most telling first; nothing below ten runs."""
    mined = mine(known, PASSING)
    accusing = [
        one
        for one in told(mined, len(mined.held))
        if one.invariant.kind in ACROSS_VERSIONS and mined.accuses(one)
    ]
    # Where keys or names differ in every run, only the frequent ones are kept: a source that is not known
    # excuses a run, and so does an agent.
    shown = Counter(source for run in known for source in IndexedRun(run).sources)
    familiar = frozenset(source for source, _ in shown.most_common(_MOST_FAMILIAR))
    agents = Counter(agent for run in known for agent in _agents_in(run))
    return Rules(
        held=tuple(_limited(one, familiar) for one in accusing[:MOST_TOLD]),
        runs=mined.runs,
        agents=frozenset(agent for agent, count in agents.items() if 2 * count >= len(known)),
    )


def _agents_in(run: Facts) -> set[str]:
    return {call.agent for call in run.calls}


def _limited(one: Held, familiar: frozenset[str]) -> Held:
    invariant = one.invariant
    return replace(one, invariant=replace(invariant, familiar=invariant.familiar & familiar))


def rules_text(rules: Rules, redact: Callable[[str], str]) -> str:
    """Return the rules as JSON, one a line, without those that hold a secret; empty if none is left."""
    familiar = sorted({source for one in rules.held for source in one.invariant.familiar})
    head = {
        "rules": "what the passing runs of this workflow always did; a line may be deleted",
        "runs": rules.runs,
        "agents": [agent for agent in sorted(rules.agents) if redact(agent) == agent],
        "familiar": [source for source in familiar if redact(source) == source],
    }
    lines = [json.dumps(_row(one)) for one in rules.held]
    kept = [line for line in lines if redact(line) == line]
    return "\n".join([json.dumps(head), *kept, ""]) if kept else ""


def _row(one: Held) -> Mapping[str, Any]:
    """Return a rule in words and as it is checked; what is as by default is left out."""
    invariant = one.invariant
    row: dict[str, Any] = {"rule": rule(invariant), "support": one.support, "lone": one.lone}
    for field in fields(Invariant):
        value = getattr(invariant, field.name)
        if field.name != "familiar" and value and value != field.default:
            row[field.name] = sorted(value) if isinstance(value, frozenset) else value
    return row


def read_rules(text: str) -> Rules:
    """Read what ``rules_text`` wrote, or what a person left of it; the words of a rule are not looked at.

    Raises:
        NotPinned: a line is something else.
    """
    found: list[Held] = []
    head: Mapping[str, Any] = {}
    lines = enumerate(text.removeprefix("\ufeff").split("\n"), start=1)
    for number, line in ((number, line) for number, line in lines if line.strip()):
        try:
            row = json.loads(line)
            if head:
                found.append(_held(row, head["familiar"]))
            else:
                head = _typed(row, runs=int, agents=list, familiar=list)
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise NotPinned(
                f"line {number}: expected a line as `blamespan pin` writes it: {error!r:.200}"
            ) from error
    if not head:
        raise NotPinned("expected lines as `blamespan pin` writes them, found none")
    return Rules(held=tuple(found), runs=head["runs"], agents=frozenset(head["agents"]))


def _held(row: Any, familiar: Sequence[str]) -> Held:
    full = {**dict.fromkeys(_TEXTS, ""), **{name: [] for name in _SETS}, **row}
    _typed(full, **dict.fromkeys(_TEXTS, str), **dict.fromkeys(_SETS, list))
    kind, tool, path, other, where, value = (full[name] for name in _TEXTS)
    values, later = (frozenset(full[name]) for name in _SETS)
    low, high = (float(row.get(name, 0.0)) for name in ("low", "high"))
    if Kind(kind) is Kind.TIMES and high < 0:
        raise ValueError(f"high is {high:g}, and counts calls")
    invariant = Invariant(
        kind=Kind(kind),
        tool=tool,
        path=path,
        other=other,
        where=where,
        value=value,
        low=low,
        high=high,
        values=values,
        later=later,
        familiar=frozenset(familiar),
    )
    rule(invariant)  # what cannot be put into words could not be told of a run either
    return Held(invariant=invariant, support=max(0, int(row["support"])), lone=max(0, int(row["lone"])))


def _typed(row: Any, **types: type) -> Mapping[str, Any]:
    """Return an object whose fields have these types; a list is one of texts.

    Raises:
        TypeError: one has another.
    """
    for name, kind in types.items():
        value = row[name]
        is_right = isinstance(value, kind) and not isinstance(value, bool)
        if not is_right or (kind is list and not all(isinstance(each, str) for each in value)):
            raise TypeError(f"{name} is {value!r:.60}")
    found: Mapping[str, Any] = row
    return found


def blame_in(runs: Sequence[Run], *, crashed: bool = False, rules: Rules = NO_RULES) -> str | None:
    """Return which agent broke one of these runs and why; empty if none did, ``None`` if none can be judged.

    Signals, lineage and the rules judge. No model is asked, and no setting, label or history of this machine
    counts, so that the answer is the same everywhere. Of several runs, the longest one is held to the rules.

    Args:
        runs: as recorded.
        crashed: whether the program ended with an error.
        rules: what the workflow's passing runs always did.
    """
    settings = load_settings({}, method="signals", model="")
    analyst, clean = open_analyst(settings), open_cleaner(settings)
    trajectories = [clean(run.trajectory) for run in runs]
    longest = max(trajectories, key=lambda one: len(one.steps), default=None)
    found: list[str] = []
    for each in trajectories:
        told_failed = replace(each, outcome=Outcome.FAILURE, outcome_source=OutcomeSource.ERROR)
        trajectory = told_failed if crashed else each
        attribution = asyncio.run(analyst.analyse(trajectory)).attribution
        if attribution.status in _FAULTY:
            found.append(verdict_line(to_json(attribution, trajectory)))
        elif attribution.status is Status.NO_FAILURE and each is not longest:
            found.append("")
        elif attribution.status is Status.NO_FAILURE:
            found += _in_words(each, rules)
    return next(filter(None, found), "") if found else None


def _in_words(trajectory: Trajectory, rules: Rules) -> list[str]:
    """Return the rule that a run breaks, or an empty text; nothing if the rules are not about it."""
    broken = rules.broken_by(trajectory) if rules.held else ()
    if not broken:
        return [] if broken is None else [""]
    agents = {step.index: step.agent for step in trajectory.steps}
    first = broken[0]
    said = f"broken rule: {agents.get(first.step, 'an agent')}, step {first.step}: {first.text}"
    return [one_line(said)]


@record
class Pin:
    """A run to pin, with its tape."""

    run: Run
    tape: Tape
    decisive: int | None
    """The model call that is asked anew; ``None`` for a run that did not fail."""
    rest: Run | None = None
    """A run of the fixed program, which answers that call and all later ones."""


def rules_for(pin: Pin, known: Sequence[Facts]) -> tuple[Rules, tuple[str, ...]]:
    """Return the rules that a right run of this test can hold, and those that it cannot, in words.

    What the recorded run breaks before its decisive call is played again in every test, and what the fixed
    program's run breaks is right.
    """
    clean = open_cleaner(load_settings({}, method="signals", model=""))
    own = clean(pin.run.trajectory)
    agents = {step.agent for step in own.steps}
    rules = rules_of([one for one in known if has_shared_agents(_agents_in(one), agents)])
    broken = rules.broken_by(own) or ()
    if pin.decisive is not None:
        decisive = pin.tape.calls[pin.decisive].step
        broken = tuple(one for one in broken if decisive is not None and one.step < decisive)
    if pin.rest is not None:
        broken = (*broken, *(rules.broken_by(clean(pin.rest.trajectory)) or ()))
    return rules.without(broken), tuple(dict.fromkeys(violation.text for violation in broken))


def rules_asserted(pin: Pin, known: Sequence[Facts], *, has_answer: bool) -> tuple[str, tuple[str, ...]]:
    """Return the text of the rules of a blameless test, and the rules that are left out, in words.

    Args:
        pin: the run.
        known: facts about the passing runs of its workflow.
        has_answer: whether the test also says what a right answer is.

    Raises:
        NotPinned: its recording passes the test although it failed, or fails it although it did not.
    """
    rules, left_out = rules_for(pin, known)
    text = rules_text(rules, Redactor().redact)
    blame = blame_in([pin.run], rules=read_rules(text) if text else NO_RULES)
    if pin.decisive is None and blame:
        raise NotPinned(f"blameless: the recorded run itself is not blameless: {blame}")
    if pin.decisive is not None and not blame and not has_answer:
        raise NotPinned(
            "blameless: without a model, the recorded run blames no agent either, so the test would pass"
            " without a fix: say what a right answer is with a text to expect or a check"
        )
    return text, left_out


def refuse_luck(pin: Pin, rest: Tape) -> None:
    """Refuse a second tape that would let the program pass as it is.

    Raises:
        NotPinned: it answers the decisive request as it was recorded, and answers it otherwise; or there is
            no decisive call.
    """
    if pin.decisive is None:
        raise NotPinned("rest: the verdict names no step from which a second run could answer")
    if answers_differ(pin.tape, pin.decisive, rest):
        raise NotPinned(
            "rest: in this run the model was asked the decisive call as in the failed one, except for results"
            " of tools and times, and answered otherwise. So the program would pass without a fix. Leave the"
            " second run out: the live model answers then"
        )


def answers_differ(tape: Tape, decisive: int, rest: Tape) -> bool:
    """Tell whether a second tape answers the decisive request as it was recorded, and answers it otherwise.

    Then the second run succeeded by luck, or by a tool that changed: the unchanged program would get its
    answer as well, and the test would pass without a fix.
    """
    call = tape.calls[decisive]
    waiting = Waiting(TapeIndex(rest.calls, rest.matching))
    found = waiting.find(Spoken(call.messages, call.kind))
    return found is not None and (found.call.answer.text, found.call.answer.calls) != (
        call.answer.text,
        call.answer.calls,
    )


__all__ = [
    "LEFT_OUT", "NO_RULES", "NotPinned", "Pin", "Rules", "answers_differ", "blame_in", "read_rules",
    "refuse_luck", "rules_asserted", "rules_for", "rules_of", "rules_text",
]  # fmt: skip
