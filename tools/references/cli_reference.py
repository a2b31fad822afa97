# ruff: noqa: E501 - lines of generated pages cannot be wrapped
"""``python -m tools.references.cli_reference``: writes docs/reference/cli.md from the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import typer

from analyzer.cli.main import COMMANDS, _app

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
_HEAD: Final = """# Command line

Made from the commands by `python -m tools.references.cli_reference`; do not edit. `blamespan COMMAND --help` says the same.

Exit codes: 0 success, 1 the thing asked failed, 2 wrong usage or setting, 130 interrupted. Errors are one line on
standard error. Options go before the environment, the environment before `blamespan.toml`
([settings](../settings.md)).

| command | what it does |
|---|---|
"""
_MARKUP: Final = re.compile(r"\[(/?)bold\]")
_WRAPPED: Final = re.compile(r"(?<!\n)\n(?!\n)")
_TYPE: Final = re.compile(r" <(?:list\[Path\]|str)>")


def page() -> str:
    """Return the page."""
    commands = {
        title: found for name in COMMANDS for title, found in with_own_commands(name, command(name)).items()
    }
    rows = [
        f"| [`{name}`](#{name.replace(' ', '-')}) | {_title(found.help)} |\n"
        for name, found in commands.items()
    ]
    return "".join([_HEAD, *rows, *(_section(name, found) for name, found in commands.items())])


def command(name: str) -> Any:
    """Return a command with its parameters, as built by typer."""
    group: Any = typer.main.get_command(_app([name]))
    return group.commands[name]


def with_own_commands(name: str, found: Any) -> dict[str, Any]:
    """Return a command by its name, or in place of a group its commands, such as ``runs export``."""
    return {f"{name} {sub}": each for sub, each in getattr(found, "commands", {}).items()} or {name: found}


def _title(text: str) -> str:
    return _plain(text.partition("\n\n")[0])


def _plain(text: str) -> str:
    """Return the help as Markdown: terminal markup as code, and paragraphs on one line."""
    return _MARKUP.sub("`", _WRAPPED.sub(" ", text))


def _section(name: str, found: Any) -> str:
    context: Any = typer.Context(found, info_name=f"blamespan {name}")
    usage = " ".join(found.get_usage(context).removeprefix("Usage: ").split())
    about = _plain(found.help)
    rows = "".join(_rows(found, context))
    table = f"\n| argument or option | meaning |\n|---|---|\n{rows}" if rows else ""
    return f"\n## {name}\n\n```text\n{usage}\n```\n\n{about}\n{table}"


def _rows(found: Any, context: Any) -> Iterator[str]:
    for parameter in found.params:
        record = parameter.get_help_record(context)
        if record is not None:
            written, meaning = (
                " ".join(part.split()).replace("|", "\\|")
                for part in (_TYPE.sub("", record[0]), _plain(record[1]))
            )
            yield f"| `{written}` | {meaning} |\n"


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
