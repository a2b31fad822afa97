"""Results of experiments and backtests in words, and the commands that gave them. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any, Final

from analyzer.inquiry.present import plain
from analyzer.inquiry.visible import visible
from collector_processor.rebuild.redaction import Redactor
from semconv.record import record

_OF_BACKTESTS: Final = frozenset({"--check", "--expect", "--upstream", "--allow-tool"})
"""Options that a backtest has too: it plays tools over HTTP and MCP as the program finds them."""
_MARKDOWN: Final = str.maketrans({character: f"\\{character}" for character in "\\`*_{}[]<>#|~!&"})
_LINKED: Final = re.compile(r"(?<=:)(?=//)|(?<=www)(?=\.)|(?<=[@#])", re.IGNORECASE)
"""Where GitHub must not read on: in bare addresses, and after the marks of people and issues."""
_GAP: Final = "\u200b"
_MOST_ROWS: Final = 100
MOST_LINE: Final = 1_000
MOST_CELL: Final = 300
"""Characters of a line and of a cell that are shown and kept."""


@record
class Report:
    """A result in words. Its texts may come from runs."""

    head: str
    lines: tuple[str, ...]
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    """Cells in the order of the columns."""

    def markdown(self, title: str) -> str:
        """Return the report for a pull request; no text in it can become a link, an image or a mention."""
        head, *rows = (tuple(map(_cell, row)) for row in (self.columns, *self.rows))
        table = "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows))
        lines = "\n".join(f"- {_cell(line)}" for line in self.lines)
        return f"### {title}: {_cell(self.head)}\n\n{lines}\n\n{table}\n"

    def document(self, redactor: Redactor) -> dict[str, Any]:
        """Return the report as JSON, without secrets, for the store; the first hundred rows."""

        def clean(text: str, most: int) -> str:
            return redactor.redact(plain(text, most))

        return {
            "head": clean(self.head, MOST_CELL),
            "lines": [clean(line, MOST_LINE) for line in self.lines],
            "columns": list(self.columns),
            "rows": [[clean(cell, MOST_CELL) for cell in row] for row in self.rows[:_MOST_ROWS]],
        }


def read_report(document: Mapping[str, Any]) -> Report | None:
    """Return a report that was stored; ``None`` if the document is none."""
    head, lines, columns, rows = (document.get(name) for name in ("head", "lines", "columns", "rows"))
    if not (isinstance(head, str) and isinstance(rows, list)):
        return None
    cells = tuple(_texts(row) for row in rows)
    return Report(head=head, lines=_texts(lines), columns=_texts(columns), rows=cells)


@record
class Remembered:
    """What an experiment was given."""

    options: tuple[str, ...]
    """Options with their values, as on the command line: check, tools, upstream."""
    command: tuple[str, ...]
    """The command that runs the workflow once."""

    def line(self, run: str) -> str:
        """Return the command line of an experiment on a run."""
        return shlex.join(["blamespan", "experiment", run, *self.options, "--", *self.command])

    def backtest(self, *named: str) -> list[str]:
        """Return the words of a backtest on runs and issues."""
        pairs = zip(self.options[::2], self.options[1::2], strict=True)
        options = [word for pair in pairs if pair[0] in _OF_BACKTESTS for word in pair]
        return ["backtest", *named, *options, "--", *self.command]

    def values(self, option: str) -> list[str]:
        """Return the values of an option, in their order."""
        pairs = zip(self.options[::2], self.options[1::2], strict=True)
        return [value for name, value in pairs if name == option]

    def value(self, option: str) -> str | None:
        """Return the value of an option that is given at most once."""
        return next(iter(self.values(option)), None)


def given_in(found: object) -> Remembered | None:
    """Return what a document says that an experiment was given; ``None`` if it does not say it."""
    if not isinstance(found, dict):
        return None
    options, command = _texts(found.get("options")), _texts(found.get("command"))
    if not command or len(options) % 2:
        return None
    return Remembered(options=options, command=command)


def _cell(text: str) -> str:
    shown = " ".join(visible(text).split())[:MOST_CELL]
    return _LINKED.sub(_GAP, shown.translate(_MARKDOWN))


def _texts(found: object) -> tuple[str, ...]:
    is_list = isinstance(found, list) and all(isinstance(each, str) for each in found)
    return tuple(found) if is_list and isinstance(found, list) else ()
