"""``blamespan map``: make a mapping for traces that no dialect reads, interactively or not."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, TypeVar

import typer

from analyzer.cli.output import CommandFailed, FormatOption, OutputFormat, WrongUsage, complain, print_json
from analyzer.cli.recorded_runs import FilesArgument, LogsOption, RecordedRuns, reader_here
from analyzer.inquiry.present import plain
from collector_processor.mapping_files import MAPPING_FILE, written
from collector_processor.trajectory.acts import Ordering, read_acts
from semconv.dialects.generic.infer import propose
from semconv.dialects.mapped import FIELDS, KINDS, SpanMapping
from semconv.model import Trace
from semconv.record import replace

T = TypeVar("T")

STANDARD_OUTPUT: Final = Path("-")
_DROP: Final = "-"
_HINT: Final = (
    "What each attribute of these spans means, as inferred. Correct it, then set BLAMESPAN_MAPPINGS to it.\n"
    f"Fields: {', '.join(FIELDS)}. Kinds: {', '.join(KINDS)}."
)

OutOption = Annotated[
    Path, typer.Option("--out", metavar="FILE", help="Where to write the mapping; `-` is standard output.")
]


def map(  # noqa: A001 - the command's name
    files: FilesArgument,
    logs: LogsOption = None,
    out: OutOption = Path(MAPPING_FILE),
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing: take what was inferred.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Make a mapping file for traces that no dialect reads.

    Infers which spans are model calls, tools and agents and which attributes hold their texts,
    asks about each on a terminal, and writes the answer as YAML. Correct the file if need be,
    and set BLAMESPAN_MAPPINGS to it: commands and the service then read such spans by it.

    Example: [bold]blamespan map trace.json[/bold]
    """
    recorded = RecordedRuns(files, logs or [])
    found = [run.trace for _, run in recorded]
    if not found:
        raise typer.Exit(recorded.exit_code)
    traces = [trace for trace in found if trace is not None]
    try:
        mapping = proposed(traces)
    except CommandFailed as error:
        if recorded.exit_code <= 1:
            raise
        complain(str(error))
        raise typer.Exit(recorded.exit_code) from error
    if not yes and sys.stdin.isatty():
        mapping = _asked_about(mapping)
    left = _left_unread(traces, mapping)
    write_mapping(mapping, out, left, force=force)
    if output is OutputFormat.JSON:
        fields = dict(mapping.fields)
        print_json({"file": str(out), "mapping": mapping.name, "fields": fields, "not_understood": left})
    elif out != STANDARD_OUTPUT:
        complain(f"wrote {out}: correct it if need be, then set BLAMESPAN_MAPPINGS={out}")
        if left:
            names = ", ".join(plain(name, 100) for name in left)
            complain(f"attributes not understood ({len(left)}): {names}")
    if recorded.exit_code:
        raise typer.Exit(recorded.exit_code)


def proposed(traces: Sequence[Trace]) -> SpanMapping:
    """Return a mapping for the runs among ``traces`` that were read by inference.

    Raises:
        CommandFailed: there are no such runs.
    """
    reader = reader_here()
    orderings = [read_acts(trace.spans, reader) for trace in traces]
    unread = [ordering for ordering in orderings if ordering.inferred is not None]
    if not unread:
        dialects = {
            action.dialect for ordering in orderings for action in ordering.actions if action is not None
        }
        known = (
            f"a dialect reads it ({', '.join(sorted(dialects))})"
            if dialects
            else "no span shows a model call"
        )
        raise CommandFailed(f"nothing to map: {known}")
    mappings = [_proposal(ordering) for ordering in unread]
    return replace(
        mappings[0],
        scopes=tuple(dict.fromkeys(scope for mapping in mappings for scope in mapping.scopes)),
        kinds=_joined([each.kinds for each in mappings if each.kind_attribute == mappings[0].kind_attribute]),
        names=_joined([mapping.names for mapping in mappings]),
        fields=_joined([mapping.fields for mapping in mappings]),
    )


def _proposal(ordering: Ordering) -> SpanMapping:
    assert ordering.inferred is not None
    scope = next((span.scope.name for span in ordering.spans if span.scope.name), "")
    return propose(ordering.inferred, ordering.spans, scope[:100] or "mine")


def _joined(tables: Sequence[Mapping[str, T]]) -> dict[str, T]:
    return {key: value for table in reversed(tables) for key, value in table.items()}


def _left_unread(traces: Sequence[Trace], mapping: SpanMapping) -> list[str]:
    """Return the attributes of the inferred runs that neither inference nor the mapping reads, sorted."""
    reader = reader_here()
    found: set[str] = set()
    for ordering in (read_acts(trace.spans, reader) for trace in traces):
        if ordering.inferred is not None:
            pairs = zip(ordering.spans, ordering.actions, strict=True)
            found.update(ordering.inferred.unread(span for span, action in pairs if action is not None))
    return sorted(found - {*mapping.fields, mapping.kind_attribute})


def write_mapping(mapping: SpanMapping, out: Path, left: Sequence[str] = (), *, force: bool = False) -> None:
    """Write a mapping file; ``left`` are attributes that it leaves unread.

    Raises:
        WrongUsage: the file exists already.
    """
    unread = (
        ("\n".join(("Not understood, so left out:", *(plain(name, 100) for name in left))),) if left else ()
    )
    content = written(mapping, (_HINT, *unread))
    if out == STANDARD_OUTPUT:
        sys.stdout.write(content)
        return
    try:
        with out.open("w" if force else "x", encoding="utf-8") as file:
            file.write(content)
    except FileExistsError:
        raise WrongUsage(f"{out}: exists already; --force overwrites it, --out names another file") from None


def _asked_about(mapping: SpanMapping) -> SpanMapping:
    """Ask about each line of a mapping; Enter keeps it, ``-`` drops it."""
    of_kind = {key: kind.value for key, kind in mapping.kinds.items()}
    kinds = _answers(f"kind of spans with {mapping.kind_attribute}", of_kind, tuple(KINDS))
    names = _answers(
        "kind of spans named", {key: kind.value for key, kind in mapping.names.items()}, tuple(KINDS)
    )
    return replace(
        mapping,
        kinds={key: KINDS[kind] for key, kind in kinds.items()},
        names={key: KINDS[kind] for key, kind in names.items()},
        fields=_answers("attribute", mapping.fields, tuple(FIELDS)),
    )


def _answers(what: str, table: Mapping[str, str], choices: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in table.items():
        question = f"{what} {plain(key, 100)} ({', '.join(choices)}; {_DROP} drops it)"
        answer = ""
        while answer not in {*choices, _DROP}:
            answer = typer.prompt(question, default=value, err=True).strip()
        if answer != _DROP:
            found[key] = answer
    return found
