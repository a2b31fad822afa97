"""Commands of a shell's call, by program and subcommand, and whether they change, look up or check. Pure.

A shell's name does not tell what a call does, but its command does: ``git push`` changes something, ``kubectl
get pods`` looks something up, ``pytest`` checks. The effect of a script is unknown.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from analyzer.texts.tool_names import deed_of, looks_up, words_in
from semconv.dialects.reading.values import mapping, structured
from semconv.model import Step, StepKind

_HEAD: Final = 4_000
"""Characters of a command that are read."""
_MOST: Final = 40
"""Commands of one call that are read, the last ones."""
_SHELLS: Final = frozenset(
    """
    bash shell sh zsh fish powershell terminal exec execute run command commands cmd console cli ssh
    """.split()  # noqa: SIM905 - readable in this form
)
"""Words in the names of tools that run commands."""
_KEYS: Final = ("command", "cmd", "commands", "script", "bash_command", "code")
"""Arguments that hold the command."""
_KEYS_OF_PROGRAMS: Final = (
    *("args", "argv", "arguments", "cmd", "command"),
    *("subcommand", "action", "operation", "op"),
)
"""Arguments of a tool that is a program, such as ``kubectl``: its subcommand and options."""
_METHODS: Final = frozenset({"get", "head", "post", "put", "patch", "delete"})
"""Methods of HTTP, each a verb of a tool's name too."""
_SHELL_OF_LIST: Final = ("-c", "-lc")
"""Options before the command in a list of arguments."""
_APART: Final = re.compile(r"&&|\|\||[;|\n]")
_QUOTED: Final = re.compile(
    r"\"(?:[^\"\\]|\\.)*\"|'[^']*'|<<-?\s?['\"]?(\w+)['\"]?\n.*?(?:\n\1\b|\Z)", re.DOTALL
)
_BEFORE: Final = re.compile(r"sudo|time|nohup|env|exec|command|xargs|timeout|\d+[smh]?|\w+=.*|-.*|[({!]+")
"""Words before the program."""
_WRITES: Final = re.compile(r"(?<![\d&>=-])>{1,2}\s?(?!&|/dev/)[^\s>]")
_WORD: Final = re.compile(r"[A-Za-z][\w-]*")
_OPTIONS_WITH_VALUE: Final = frozenset({"-C", "-n", "-f", "-c", "--namespace", "--context", "--prefix", "-s"})
_OF_TWO_WORDS: Final = frozenset({"gh", "aws", "gcloud", "az", "docker", "systemctl"})
"""Programs whose subcommands may have two words: ``gh pr create``."""
_SCRIPT: Final = re.compile(r"\.{0,2}/(?!usr/|bin/|opt/)|.*\.(?:sh|py|js|ts|rb|pl)$")
"""A program of the project's own, whose name tells nothing for sure."""
_MOST_WORDS: Final = 12
"""Words of a command among which it has its name."""
_PROGRAMS: Final = {"apt-get": "apt"}
"""Other names of programs whose own name has a word that a subcommand may be."""
_READS: Final = frozenset(
    """
    awk cat cd cmp cut date df diff du echo egrep env fd file find grep head jq less ls more pgrep printenv
    printf ps pwd rg sed sort stat tail tee tree tr true type uniq wc which whoami
    blame describe get info inspect list log logs outdated plan show status top validate version view
    """.split()  # noqa: SIM905 - readable in this form
)
"""Programs that only read, and subcommands of others that do."""
_PRINTS: Final = frozenset(
    {"cat", "egrep", "grep", "head", "jq", "less", "log", "logs", "more", "rg", "sort", "tail"}
)
"""Programs and subcommands that print what others wrote."""
_CHANGES: Final = {
    "rm": "delete", "rmdir": "delete", "shred": "delete", "dropdb": "delete", "scancel": "cancel",
    "mv": "move", "cp": "create", "mkdir": "create", "touch": "create", "ln": "create",
    "chmod": "change", "chown": "change", "kill": "stop", "pkill": "stop",
}  # fmt: skip
"""Programs that change something, with the verb for what they do."""
RUNS_TESTS: Final = re.compile(
    r"(?<![A-Za-z])(?:tests?|pytest|unittest|tox|nox|spec|rspec|jest|vitest|mocha|ava|phpunit|ctest|nextest"
    r"|mvn|gradlew?|bazel|behat|cypress|playwright)(?![A-Za-z])",
    re.IGNORECASE,
)
"""Words in the name of a tool, or a command, that runs tests."""
_TESTS: Final = re.compile(rf"(?:{RUNS_TESTS.pattern})(?::[\w:-]+)?|e2e", re.IGNORECASE)
"""A word of a command that says that it runs tests: ``test:unit``."""
_MOST_BEFORE_TESTS: Final = 6
"""Words of a command among which it stands."""
_DELETES: Final = re.compile(r"\s--?delete\b|\s-exec\s+rm\b")
"""Options by which a search, or a copy, deletes."""


def call_name(step: Step) -> str:
    """Return the name that tells what a call does: the tool's, or the last command that a shell ran.

    Filters and commands that only read do not count beside others; ``read`` or ``check`` stands before the
    name of a command that does no more than that. A command that tells nothing, such as a script, has the
    tool's name. Of a request over HTTP, the method tells if the tool's name does not.
    """
    commands = commands_of(step)
    if not commands:
        return _requested(step.target or "", step.input)
    telling = [one for one in commands if deed_of(one)] or [
        one for one in commands if not one.startswith("read ")
    ]
    last = (telling or commands)[-1]
    return last if deed_of(last) or looks_up(last) else step.target or ""


def _requested(tool: str, arguments: str) -> str:
    """Return a tool's name, after the method of HTTP if only that tells what the call does."""
    if '"method"' not in arguments[:_HEAD] or deed_of(tool) or looks_up(tool):
        return tool
    method = str(mapping(arguments[:_HEAD]).get("method", "")).casefold()
    return f"{method} {tool}" if method in _METHODS else tool


def prints_others_words(step: Step) -> bool:
    """Tell whether a shell only prints what others wrote: files, logs, lines that match."""
    commands = commands_of(step)
    return bool(commands) and all(not _PRINTS.isdisjoint(one.split()) for one in commands)


def commands_of(step: Step) -> tuple[str, ...]:
    """Return the commands that a shell or a program ran, each by program and subcommand; else none."""
    if step.kind is not StepKind.TOOL:
        return ()
    tool = step.target or ""
    if not _SHELLS.isdisjoint(words_in(tool)):
        return _named(step.input[:_HEAD])
    return _named_of_program(tool, step.input[:_HEAD]) if tool.isalpha() else ()


@functools.lru_cache(maxsize=256)
def _named(arguments: str) -> tuple[str, ...]:
    command = _QUOTED.sub(" ", _command_in(arguments))
    return tuple(filter(None, map(_name, _APART.split(command)[-_MOST:])))


@functools.lru_cache(maxsize=256)
def _named_of_program(tool: str, arguments: str) -> tuple[str, ...]:
    """Return the commands of a tool of one word whose arguments hold a subcommand: ``git`` with ``args``."""
    options = _command_in(arguments, _KEYS_OF_PROGRAMS) if mapping(arguments) else ""
    first, *others = _APART.split(_QUOTED.sub(" ", options))[:_MOST]
    if not _WORD.search(first):
        return ()
    bare = (one for one in others if one.strip())
    return tuple(filter(None, map(_name, (f"{tool} {first.removeprefix(tool)}", *bare))))


def forget_commands() -> None:
    """Drop the commands of the last calls that were read."""
    for cache in (_named, _named_of_program):
        cache.cache_clear()


def _command_in(arguments: str, keys: Sequence[str] = _KEYS) -> str:
    """Return the command among a call's arguments, or the arguments themselves if they are plain text."""
    value: Any = structured(arguments)
    fields = mapping(arguments)
    if fields:
        value = next((fields[key] for key in keys if key in fields), "")
    if isinstance(value, list | tuple):
        words = [str(one) for one in value]
        return words[-1] if len(words) > 1 and words[-2] in _SHELL_OF_LIST else " ".join(words)
    return value if isinstance(value, str) else ""


def _name(command: str) -> str:
    """Return a command's program and subcommands, after a verb for what it does if they do not tell."""
    words = list(_words(command.split()[:_MOST_WORDS]))
    if not words:
        return ""
    name = " ".join(words)
    verb = next((_CHANGES[word] for word in words if word in _CHANGES), "")
    if verb or _DELETES.search(command):
        return f"{verb or 'delete'} {name}"
    is_test = any(_TESTS.fullmatch(word) for word in (words[0], *command.split()[:_MOST_BEFORE_TESTS]))
    if is_test and words[0] not in _READS and not deed_of(name):
        return f"check {name}"
    if words[0] == "sed" and " -i" in command:
        return f"edit {name}"
    if words[0] in _READS and _WRITES.search(command):
        return f"write {name}"
    return f"read {name}" if not _READS.isdisjoint(words) and not deed_of(name) else name


def _words(parts: Sequence[str]) -> Iterator[str]:
    """Yield the words that name a command: the program, and its subcommands up to the first argument."""
    start = next((place for place, one in enumerate(parts) if not _BEFORE.fullmatch(one)), len(parts))
    for part in parts[start : start + 1]:
        yield "script" if _SCRIPT.match(part) else _PROGRAMS.get(part, part.rpartition("/")[2])
    left = 2 if parts[start : start + 1] and parts[start] in _OF_TWO_WORDS else 1
    place = start + 1
    while place < len(parts) and left:
        if parts[place].startswith("-"):
            place += 2 if parts[place] in _OPTIONS_WITH_VALUE else 1
        elif _WORD.fullmatch(parts[place]):
            yield parts[place]
            left, place = left - 1, place + 1
        else:
            return
