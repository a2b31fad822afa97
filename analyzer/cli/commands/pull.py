"""``blamespan pull``: the verdict on the runs of a running backend."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Final

import typer
from rich.text import Text

from analyzer.analyses.composition import open_analyst
from analyzer.cli.judged_runs import judge, settings_here, show, some_failed
from analyzer.cli.output import (
    CommandFailed,
    FormatOption,
    OutputFormat,
    WrongUsage,
    complain,
    optional,
    print_json,
)
from analyzer.cli.recorded_runs import RecordedRun, runs_of
from analyzer.cli.repeated_runs import Judged, in_full
from analyzer.cli.shared_options import FloorOption, MethodOption, ModelOption
from analyzer.inquiry.errors import UnreadableInput
from analyzer.inquiry.present import counted, plain
from analyzer.inquiry.terminal import console
from analyzer.inquiry.verdict import to_json
from analyzer.pulling import BACKENDS
from analyzer.pulling.backend import Backend, Found, Wanted
from analyzer.pulling.client import checked_url
from analyzer.pulling.client import pull as pull_runs
from analyzer.recordings.fields import trace_id_of
from analyzer.recordings.recording import Recording, merged, read_as
from analyzer.web.reads.run_query import InvalidFilter, read_moment
from semconv.model import Blame, Status, agent_label

BackendName = StrEnum("BackendName", {name.upper(): name for name in BACKENDS})  # type: ignore[misc]
MOST_RUNS: Final = 10_000
_USUAL: Final = 200
_FAILURES: Final = (Status.ATTRIBUTED, Status.SUSPECTED)


def pull(
    backend: Annotated[
        BackendName, typer.Argument(metavar="BACKEND", help=f"One of: {', '.join(BACKENDS)}.")
    ],
    url: Annotated[
        str, typer.Option("--url", metavar="URL", help="Address of the backend.", show_default=False)
    ],
    project: Annotated[
        str | None,
        optional("NAME", "Project, or MLflow's experiment. Default: the backend's own.", "--project"),
    ] = None,
    since: Annotated[
        str | None,
        optional("WHEN", "Only runs that began since: an age (30m, 24h, 7d), or RFC 3339.", "--since"),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=MOST_RUNS, metavar="N", help="Most runs: the newest.")
    ] = _USUAL,
    method: MethodOption = None,
    model: ModelOption = None,
    budget_usd: Annotated[
        float | None,
        optional("USD", "Maximum cost of one run. Default: 0.50.", "--budget-usd", min=0),
    ] = None,
    floor: FloorOption = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Say which agents broke the runs that a backend holds, at which steps and why.

    Reads runs over the backend's API and judges them as [bold]attribute[/bold] judges files; changes nothing
    in the backend. As JSON, a run's [bold]file[/bold] is its page there. Credentials come from the backend's
    own variables, such as PHOENIX_API_KEY.

    Example: [bold]blamespan pull phoenix --url http://localhost:6006 --since 7d[/bold]
    """
    settings = settings_here(method, model, budget_usd, floor)
    analyst = open_analyst(settings)
    source = BACKENDS[backend]
    place, wanted = _place(url), Wanted(project=project, since_ns=_since(since), limit=limit)
    pulled = asyncio.run(pull_runs(source, wanted, place, source.credentials(os.environ)))
    if pulled.error is not None and not pulled.found:
        raise CommandFailed(str(pulled.error))
    if not pulled.found:
        raise CommandFailed(f"{place}: holds no such run")
    runs, is_whole = _runs(source, pulled.found, place)
    judged = judge(runs, analyst, settings)
    _show(judged, _links(source, place, pulled.found), output)
    if pulled.error is not None:
        complain(f"{pulled.error}; judged are the {counted(len(judged), 'run')} read until then")
    if some_failed([run.attribution for run in judged]) or pulled.error is not None or not is_whole:
        raise typer.Exit(1)


def _place(url: str) -> str:
    try:
        return checked_url(url)
    except ValueError as error:
        raise WrongUsage(f"--url: {error}") from error


def _since(text: str | None) -> int | None:
    try:
        return None if text is None else read_moment(text, "--since", time.time_ns())
    except InvalidFilter as error:
        raise WrongUsage(str(error)) from error


def _runs(source: Backend, found: Iterable[Found], place: str) -> tuple[Sequence[RecordedRun], bool]:
    """Return the runs of all answers together, and whether every answer could be read."""
    recordings: list[Recording] = []
    is_whole = True
    for each in found:
        try:
            recordings.append(read_as(source.file_format, each.records))
        except UnreadableInput as error:
            complain(f"{place}: an answer {error}")
            is_whole = False
        except RecursionError:
            complain(f"{place}: an answer has values nested too deeply to be read")
            is_whole = False
    return runs_of(merged(recordings), place), is_whole


def _links(source: Backend, place: str, found: Iterable[Found]) -> Mapping[str, str]:
    return {
        str(trace_id_of(trace)): source.page_url(place, link)
        for each in found
        for trace, link in each.links.items()
    }


def _show(judged: Sequence[Judged], links: Mapping[str, str], output: OutputFormat) -> None:
    """Print every verdict as JSON; or a few failures in full, then all of them in a table."""
    if output is OutputFormat.JSON:
        for run in judged:
            print_json({**to_json(run.attribution, run.trajectory), "file": _page_of(run, links)})
        return
    failures = [run for run in judged if run.attribution.status in _FAILURES]
    for _number, run in in_full(failures):
        show(run, output)
    screen = console()
    for run in failures:
        screen.print(_row(run, links), soft_wrap=True)  # a link cut into lines cannot be opened
    screen.print(_summary(judged))


def _row(run: Judged, links: Mapping[str, str]) -> Text:
    """Return a failure on one line: verdict, agent, step, and the run's page in the backend."""
    verdict = run.attribution.verdict
    blamed = verdict if isinstance(verdict, Blame) else None
    agent = Text(plain(agent_label(blamed.agent), 24) if blamed else "-")
    agent.pad_right(max(0, 26 - agent.cell_len))
    step = str(blamed.step) if blamed else "-"
    return Text.assemble(
        f"{run.attribution.status.value:<12}", agent, f"{step:>4}  ", plain(_page_of(run, links), 5_000)
    )


def _page_of(run: Judged, links: Mapping[str, str]) -> str:
    """Return the address of the run's page in the backend; its trace id if the backend gave no link."""
    trace = str(run.trajectory.root_trace_id)
    return links.get(trace, trace)


def _summary(judged: Sequence[Judged]) -> str:
    statuses = Counter(run.attribution.status.value for run in judged)
    agents = Counter(
        plain(agent_label(run.attribution.verdict.agent), 60)
        for run in judged
        if run.attribution.status in _FAILURES and isinstance(run.attribution.verdict, Blame)
    )
    said = ", ".join(f"{number} {name}" for name, number in statuses.most_common())
    who = ", ".join(f"{name} {number}" for name, number in agents.most_common(10))
    return f"{counted(len(judged), 'run')}: {said}" + (f"\nagents: {who}" if who else "")
