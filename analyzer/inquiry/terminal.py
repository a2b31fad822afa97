"""Terminal output of runs and verdicts: rich tables and panels.

Text from traces is hostile: it passes through ``plain`` into ``rich.text.Text``, which interprets no markup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rich.box import ROUNDED, SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from analyzer.inquiry.present import is_unsaid, plain, set_in_prose
from semconv.model import (
    UNKNOWN_AGENT,
    AttributeValue,
    Attribution,
    Blame,
    Change,
    ContentState,
    Evidence,
    Origin,
    Ranked,
    SpanStatus,
    Status,
    Step,
    StepKind,
    Trajectory,
    ValueOrigin,
    agent_in_prose,
    agent_label,
)

_MAX_QUOTES: Final = 4
_KIND_STYLES: Final[Mapping[StepKind, str]] = {
    StepKind.LLM: "cyan",
    StepKind.TOOL: "yellow",
    StepKind.HANDOFF: "magenta",
    StepKind.AGENT: "green",
    StepKind.HUMAN: "blue",
    StepKind.OTHER: "dim",
}
_TITLES: Final[Mapping[Status, tuple[str, str]]] = {
    Status.ATTRIBUTED: ("red", "Who broke it"),
    Status.SUSPECTED: ("yellow", "Suspected failure"),
    Status.NO_FAILURE: ("green", "Nothing broke"),
    Status.UNDETERMINED: ("yellow", "Undetermined"),
    Status.WAITING: ("cyan", "Waiting"),
    Status.CANCELLED: ("cyan", "Cancelled"),
    Status.UNREADABLE: ("magenta", "Steps not readable"),
    Status.ERROR: ("magenta", "Could not analyse"),
}
_UNSAID: Final = ("cyan", "No sign of failure")
_MOST_VALUES: Final = 3
"""Values from nowhere that the verdict shows; JSON and the run's page have all."""


def steps_table(trajectory: Trajectory, attribution: Attribution | None = None, *, width: int = 100) -> Table:
    """Return a table of the run's ordered steps, with the blamed one marked."""
    blamed = attribution.verdict.step if attribution and isinstance(attribution.verdict, Blame) else None
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, expand=True, padding=(0, 1, 0, 0))
    table.add_column("", width=1)
    table.add_column("step", justify="right", style="dim")
    table.add_column("agent", no_wrap=True, max_width=24)
    table.add_column("kind", no_wrap=True)
    table.add_column("what happened", ratio=1, overflow="fold", min_width=30)
    room = 2 * max(30, width - 40)  # two lines, in the width left by the other columns
    for step in trajectory.steps:
        style = "bold red" if step.index == blamed else ""
        table.add_row(
            Text("▶" if step.index == blamed else ""),
            str(step.index),
            Text(plain(agent_label(step.agent), 24)),
            Text(step.kind.value, style=_KIND_STYLES[step.kind]),
            Text.assemble(*_marks(step), _what(step, room)),
            style=style,
        )
    return table


def run_heading(trajectory: Trajectory) -> RenderableType:
    """Return the run's task, its answer, and the correct answer if known."""
    lines = [_field("task", trajectory.task or "not in the trace")]
    if trajectory.output:
        lines.append(_field("answer", trajectory.output))
    if trajectory.reference:
        lines.append(_field("right", trajectory.reference))
    lines += [_field("note", warning) for warning in trajectory.warnings]
    return Group(*lines)


def verdict_panel(attribution: Attribution, trajectory: Trajectory) -> Panel:
    """Return a panel with the verdict: agent, step, reason, fix and evidence."""
    verdict = attribution.verdict
    colour, title = _TITLES[attribution.status]
    if attribution.status is Status.NO_FAILURE and is_unsaid(verdict.reason):
        colour, title = _UNSAID
    lines: list[RenderableType] = []
    if isinstance(verdict, Blame):
        lines += [_who(verdict, trajectory), _how_sure(verdict), Text(), _field("why", verdict.reason)]
        if verdict.fix:
            lines.append(_field("fix", verdict.fix))
        lines += [_field(f"step {found.step}", f"“{plain(found.quote, 240)}”") for found in _telling(verdict)]
        values = (origin for origin in attribution.lineage if origin.origin is Origin.NOWHERE)
        ways = [_way(value) for value in values if _changed(value) or value.value not in verdict.reason][
            :_MOST_VALUES
        ]
        names = ["values", *[""] * len(ways)]
        lines += [_field(name, way) for name, way in zip(names, ways, strict=False)]
        if len(_suspects(verdict.ranking)) > 1:
            lines += [Text(), _ranking("suspects", verdict.ranking)]
        if verdict.step_set:
            lines.append(_field("set", set_in_prose(verdict.step_set)))
    else:
        lines.append(_field("why", verdict.reason))
        names = ["checked", *[""] * len(attribution.checked)]
        lines += [_field(name, one) for name, one in zip(names, attribution.checked, strict=False)]
        if verdict.ranking:
            lines += [Text(), _ranking("candidates", verdict.ranking)]
    lines += [Text(), _how(attribution)]
    return Panel(
        Group(*lines), title=title, title_align="left", border_style=colour, box=ROUNDED, padding=(1, 2)
    )


def _way(origin: ValueOrigin) -> str:
    """Return where a value that nothing gives was written: ``71.52 EUR at step 4, for 71.25 of step 3``."""
    if changed := _changed(origin):
        before, after = origin.chain[changed - 1], origin.chain[changed]
        told = f"{plain(before.value, 60)} of step {before.step}"
        return f"{plain(after.value, 60)} at step {after.step}, for {told}"
    where = f" at step {origin.step}" if origin.step is not None else ""
    return f"{plain(origin.value, 60)}{where}, from nowhere in the run"


def _changed(origin: ValueOrigin) -> int:
    """Return the place in its chain where a value became another one; 0 if it stayed as it was."""
    return next(
        (place for place, link in enumerate(origin.chain) if place and link.change is Change.CHANGED), 0
    )


def attributes_table(attributes: Mapping[str, AttributeValue]) -> Table:
    """Return a table of span attributes as the backend stores them, sorted by name."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in sorted(attributes.items()):
        table.add_row(name, Text(plain(_shown(value), 160)))
    return table


def console() -> Console:
    """Return a console on standard output that reads no markup: names and texts of runs may look like it.

    It is the only one; styles are those of ``Text`` and of the arguments of ``print``.
    """
    return Console(highlight=False, markup=False, emoji=False)


def error_console() -> Console:
    """Return the same console on standard error."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def _shown(value: AttributeValue) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, tuple):
        return ", ".join(str(item) for item in value)
    return str(value)


def _who(blame: Blame, trajectory: Trajectory) -> Text:
    text = Text()
    text.append(plain(agent_in_prose(blame.agent), 60), style="bold red")
    text.append(f", at step {blame.step} of {len(trajectory.steps)}", style="bold")
    text.append(" (counted from 0)", style="dim")
    return text


def _how_sure(blame: Blame) -> Text:
    text = Text(_sure(blame), style="bold" if blame.certainty >= 0.5 else "yellow")
    if blame.mode:
        text.append(f" · {plain(blame.mode, 40)}", style="not bold dim")
    return text


def _sure(blame: Blame) -> str:
    if blame.failed_probability is None:
        return f"confidence {blame.confidence:.0%}"
    return f"probably failed: {blame.failed_probability:.0%}, this step: {blame.confidence:.0%}"


def _field(name: str, value: str) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", width=8)
    grid.add_column(ratio=1, overflow="fold")
    grid.add_row(name, Text(plain(value, 1200)))
    return grid


_LEAST: Final = 0.05
"""Probability below which further suspects are not listed."""


def _telling(blame: Blame) -> list[Evidence]:
    """Return the evidence to show: no quote that the reason, or another one of the same step, contains."""
    quotes = {(evidence.step, evidence.quote) for evidence in blame.evidence}
    return [
        found
        for found in blame.evidence
        if found.quote.strip(" .") not in blame.reason
        and not any(
            step == found.step and quote != found.quote and found.quote in quote for step, quote in quotes
        )
    ][:_MAX_QUOTES]


def _ranking(heading: str, ranking: Sequence[Ranked]) -> Table:
    grid = Table.grid(padding=(0, 2))
    for _ in range(4):
        grid.add_column()
    for number, suspect in enumerate(_suspects(ranking)):
        bar = "█" * max(1, round(20 * suspect.probability))
        label = heading if number == 0 else ""
        grid.add_row(
            Text(label, style="dim"),
            f"step {suspect.step}",
            Text(plain(agent_label(suspect.agent), 30)),
            Text(f"{bar} {suspect.probability:.0%}", style="red" if number == 0 else "dim"),
        )
    return grid


def _suspects(ranking: Sequence[Ranked]) -> list[Ranked]:
    return [*ranking[:1], *(one for one in ranking[1:3] if one.probability >= _LEAST)]


def _how(attribution: Attribution) -> Text:
    effort = attribution.effort
    parts = [f"method {attribution.method}"]
    if attribution.model:
        parts.append(f"model {attribution.model}")
    if (both := attribution.pooled) is not None:
        earned = f"right in {both.right:g} of {both.labelled:g}" if both.labelled else "no"
        parts.append(f"it named step {both.step}, weight {both.weight:g} of 1 ({earned} labelled runs)")
    if effort.calls:
        cost = "cost unknown" if effort.cost_usd is None else f"${effort.cost_usd:.4f}"
        parts.append(f"{effort.calls} calls, {effort.input_tokens + effort.output_tokens} tokens, {cost}")
    parts.append(f"{effort.duration_s * 1000:.0f} ms")
    if attribution.truncated:
        parts.append(f"saw {attribution.coverage:.0%} of the text")
    if attribution.fallback:
        parts.append(f"fallback: {plain(attribution.fallback, 120)}")
    return Text(" · ".join(parts), style="dim")


def _what(step: Step, room: int) -> str:
    match step.kind:
        case StepKind.TOOL:
            call = f"{step.target or step.name}({plain(step.input, room // 2)})"
            return plain(f"{call} → {step.error or step.output}", room)
        case StepKind.HANDOFF:
            return plain(f"hands over to {agent_in_prose(step.target or UNKNOWN_AGENT)}", room)
        case _:
            return plain(step.output or step.error or step.input or step.name, room)


def _marks(step: Step) -> list[tuple[str, str]]:
    """Return the markers before a step's text: error, parallel group, missing content."""
    marks: list[tuple[str, str]] = []
    if step.status is SpanStatus.ERROR:
        marks.append(("✗ ", "bold red"))
    if step.group is not None:
        marks.append((f"∥{step.group} ", "dim"))
    if step.content not in {ContentState.COMPLETE, ContentState.ABSENT}:
        marks.append((f"[{step.content.value}] ", "dim"))
    return marks
