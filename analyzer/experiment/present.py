"""Terminal output of experiments: progress, conclusion, and the forecast of a dry run. Pure."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from analyzer.experiment.candidates import ChangeKind
from analyzer.experiment.conduct import Conductor
from analyzer.experiment.findings import Experiment, Finding
from analyzer.experiment.ledger import Price, Spent
from analyzer.experiment.open_experiment import Prepared, Request
from analyzer.experiment.sequential import Arm
from analyzer.experiment.workflow import Workflow
from analyzer.inquiry.present import plain
from analyzer.replay.tape import RecordedCall
from semconv.model import agent_label

_BYTES_PER_TOKEN = 4
_ANSWER_TOKENS = 500
"""Assumed tokens of an answer whose tokens were not recorded; for the forecast only."""
_LEAVING = (
    "leaves this machine, to the upstream: the workflow's own requests from the changed step on (its prompts,"
    " the recorded answers before that step, the replacement or hint) and your key; nothing else"
)
_TYPICAL_TRIALS = 30
"""Trials of the median walk (docs/experiments.md), for the lower end of the forecast; the limit is the
upper."""


def progress(conductor: Conductor) -> str:
    """Return the state of an experiment on one line."""
    spent, walk = conductor.spent, conductor.walk
    head = f"trial {conductor.trials}: {spent.calls} live calls, {_usd(spent)}"
    fidelity = conductor.fidelity
    if not walk.tried:
        served = "" if fidelity is None else f"; {fidelity.served} of {fidelity.calls} recorded calls served"
        return head + served
    beliefs = walk.posterior()
    top = max(walk.tried, key=lambda c: (walk.decision(c) == "proved", beliefs.get(c.call, 0.0)))
    found = walk.comparison(top)
    low, high = found.interval
    return (
        f"{head}; step {top.step} ({_name(top.agent, 40)}): recorded {_rate(walk.arm(top.control))}, changed"
        f" {_rate(walk.arm(top.treatment))}, effect {found.effect:+.2f} [{low:+.2f}, {high:+.2f}],"
        f" {walk.decision(top)}"
    )


def conclusion(result: Experiment) -> RenderableType:
    """Return a table of the steps tried, and the conclusion."""
    table = Table("step", "agent", "recorded", "changed", "effect", "95 %", "decision", box=None)
    for found in result.findings:
        table.add_row(*_row(found))
    head = f"{result.decision.value.replace('_', ' ')}"
    if result.decisive is not None:
        head += f": step {result.decisive.candidate.step}, {_name(result.decisive.candidate.agent, 60)}"
    lines = [plain(result.reason, 2000)]
    if len(result.healing) > 1:
        lines.append(f"steps whose change heals: {', '.join(map(str, result.healing))}")
    lines.append(f"{result.spent.calls} live calls, {_usd(result.spent)}, {result.duration_s:.0f} s")
    panel = Panel(Text("\n".join(lines)), title=Text(head), title_align="left")
    return Group(table, panel) if result.findings else panel


def forecast(prepared: Prepared, request: Request, workflow: Workflow, price: Price) -> RenderableType:
    """Describe the calls, data sent and cost of an experiment."""
    calls = prepared.tape.calls
    candidates = prepared.suspects.candidates
    later = sum(len(calls) - candidate.call for candidate in candidates) / len(candidates)
    models = sorted({call.answer.model or "(not recorded)" for call in calls})
    costs = [_price_of(call, price) for call in calls]
    mean = None if any(cost is None for cost in costs) else sum(cost or 0.0 for cost in costs) / len(costs)
    trials = min(_TYPICAL_TRIALS, 2 * request.options.most_trials * len(candidates))
    live = round(trials * later)
    cost = "unknown: give --max-calls" if mean is None else f"about ${live * mean:.4f}"
    limit = "" if request.max_calls is None else f", {request.max_calls} calls"
    lines = [
        f"run: {prepared.tape.run_id}, {len(calls)} model calls, {len(candidates)} steps to try",
        f"workflow: {plain(str(workflow), 200)}",
        f"upstream: {request.gateway.openai} (OpenAI formats), {request.gateway.anthropic} (Anthropic)",
        f"models: {plain(', '.join(models), 300)}",
        f"live calls: about {live} in about {trials} trials, as the median experiment takes",
        f"cost: {cost}; limit ${request.budget_usd:g}{limit}",
        _LEAVING,
        "calls that do not go to the address in OPENAI_BASE_URL or ANTHROPIC_BASE_URL are not counted",
    ]
    if request.fix.kind is not ChangeKind.RESAMPLE:
        lines.append(f"change ({request.fix.kind}): {plain(request.fix.text, 300)}")
    return Text("\n".join(lines))


def _price_of(call: RecordedCall, price: Price) -> float | None:
    sent = call.answer.input_tokens or sum(len(str(each)) for each in call.messages) // _BYTES_PER_TOKEN
    return price(call.answer.model, sent, call.answer.output_tokens or _ANSWER_TOKENS)


def _row(found: Finding) -> list[str]:
    low, high = found.comparison.interval
    return [
        str(found.candidate.step),
        _name(found.candidate.agent, 30),
        _rate(found.control),
        _rate(found.treatment),
        f"{found.comparison.effect:+.2f}",
        f"{low:+.2f} to {high:+.2f}",
        found.comparison.decision.value,
    ]


def _rate(arm: Arm) -> str:
    invalid = f" ({arm.invalid} invalid)" if arm.invalid else ""
    return f"{arm.successes}/{arm.n}{invalid}"


def _usd(spent: Spent) -> str:
    return "cost unknown" if spent.cost_usd is None else f"${spent.cost_usd:.4f}"


def _name(agent: str, limit: int) -> str:
    return plain(agent_label(agent), limit)
