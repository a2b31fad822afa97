"""Recorder of the sessions in docs/mcp.md: ``python -m tools.references.mcp_session``.

The first is about the run that ``blamespan demo`` plays, read by ``blamespan mcp`` over standard input and
output. The second goes from an issue to a proved fix of the program of ``tests/e2e/test_backtest.py``, whose
model is scripted. Answers keep the fields below in their order; ``…`` marks fields that were left out. Ids
are replaced by their order, so that two recordings are equal.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

from mcp import Client, StdioServerParameters
from mcp.types import TextContent

from analyzer.experiment.kept_experiments import remember
from collector_processor.otlp import NO_TENANT
from tests.e2e.test_backtest import CAREFUL, change, kept, record_runs, serving
from tests.e2e.test_mcp_backtest import GIVEN, ended, session

PAGE: Final = Path(__file__).parents[2] / "docs" / "mcp.md"
_SESSION: Final = re.compile(r"(?<=```text\n)>>> .*?(?=```)", re.DOTALL)
_ID: Final = re.compile(r"(?<![0-9a-z.])[0-9a-f]{8,32}(?![0-9a-z])")
"""Ids are hex; the first digits of one may stand in a name."""
_COMMAND: Final = (sys.executable, "-P", "-m", "analyzer")
_SHOWN: Final[Mapping[str, tuple[str, ...]]] = {
    "list_failed_runs": ("runs", "run_id", "status", "agent", "step", "confidence", "reason", "mode", "next"),
    "get_verdict": ("agent", "step", "confidence", "reason", "fix", "evidence", "quote", "method", "calls"),
    "get_steps": (
        "task",
        "reference",
        "steps",
        "index",
        "agent",
        "kind",
        "model",
        "input",
        "output",
        "instructions",
    ),
    "list_issues": ("issues", "state", "title", "service", "count", "examples"),
    "list_workflows": ("workflows", "service", "workflow", "passed", "failed", "unsaid"),
    "get_lineage": ("values", "lineage", "value", "origin", "formula", "chain", "step", "change"),
    "get_workflow": ("service", "workflow", "failed", "mined_runs", "always"),
    "list_issues of the program": ("issues", "id", "title", "service", "count"),
    "start_backtest": ("backtest", "state"),
    "get_backtest": ("state", "progress", "exit_code", "result", "verdict", "passing", "n", "held", "broken"),
}
"""Fields of each tool's answer that the page shows; a list shows its first entry."""
_MOST_TEXT: Final = 60
"""Characters of a file's text that the page shows."""


def sessions() -> tuple[str, str]:
    """Play the sessions and return them, in the order of the page."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*_COMMAND, "demo", "--data-dir", folder], check=True, stdout=subprocess.DEVNULL)
        demo = asyncio.run(_recorded(folder))
    with tempfile.TemporaryDirectory() as folder, serving() as url:
        record_runs(Path(folder))
        issue = kept(Path(folder), {"run": "failed", "good": "passed"})
        remember(Path(folder, "data"), NO_TENANT, "sales", GIVEN)
        return _numbered(demo), _numbered(asyncio.run(_proved(Path(folder), url, issue)))


def shown() -> tuple[str, ...]:
    """Return the sessions that the page shows."""
    return tuple(_SESSION.findall(PAGE.read_text(encoding="utf-8")))


def _numbered(text: str) -> str:
    """Return a session with the hash of its number in place of each id, or of an id's beginning."""
    ids: dict[str, str] = {}
    for found in sorted(dict.fromkeys(_ID.findall(text)), key=len, reverse=True):
        whole = next((known for known in ids if known.startswith(found)), None)
        number = hashlib.sha256(f"{len(ids)}".encode()).hexdigest()
        ids[found] = (ids[whole] if whole else number)[: len(found)]
    return _ID.sub(lambda found: ids[found[0]], text)


async def _proved(folder: Path, url: str, issue: str) -> str:
    """Play a coding agent that proves its second fix of an issue."""
    async with session(folder, url) as client:
        _, listed = await _ask(client, "list_issues", {})
        told = [_told("list_issues", {}, _abridged("list_issues of the program", listed))]
        for change_to in ("You are the analyst. Be nice.", CAREFUL[1]):
            change(folder, (CAREFUL[0], change_to))
            told.append(f"(The agent changes report.py: “{CAREFUL[0]}” to “{change_to}”.)\n")
            asked: dict[str, Any] = {"subject": issue, "passing": 1, "max_calls": 200}
            _, begun = await _ask(client, "start_backtest", asked)
            told.append(_told("start_backtest", asked, _abridged("start_backtest", begun)))
            asked = {"backtest": begun["backtest"], "wait_s": 15}
            found = {**await ended(client, begun["backtest"])}
            told.append(_told("get_backtest", asked, _abridged("get_backtest", found)))
        return "".join(told)


async def _recorded(folder: str) -> str:
    command, *arguments = _COMMAND
    # With our environment, or the SDK leaves out PYTHONPATH: another checkout could answer.
    server = StdioServerParameters(
        command=command, args=[*arguments, "mcp", "--data-dir", folder], env=dict(os.environ)
    )
    async with Client(server) as client:
        return "".join([exchange async for exchange in _exchanges(client)])


async def _exchanges(client: Client) -> AsyncIterator[str]:
    asked: dict[str, Any] = {"since": "1h"}
    head, found = await _ask(client, "list_failed_runs", asked)
    (run,) = found["runs"]
    yield _told("list_failed_runs", asked, f"{head}\n{_abridged('list_failed_runs', found)}")
    for tool, more in (("get_verdict", {}), ("get_steps", {"first": run["step"], "limit": 1})):
        asked = {"run_id": run["run_id"], **more}
        yield _told(tool, asked, _abridged(tool, (await _ask(client, tool, asked))[1]))
    yield _told("list_issues", {}, _abridged("list_issues", (await _ask(client, "list_issues", {}))[1]))
    _, found = await _ask(client, "list_workflows", {})
    yield _told("list_workflows", {}, _abridged("list_workflows", found))
    asked = {name: found["workflows"][0][name] for name in ("service", "workflow")}
    yield _told(
        "get_workflow", asked, _abridged("get_workflow", (await _ask(client, "get_workflow", asked))[1])
    )
    async for exchange in _to_a_test(client, run["run_id"]):
        yield exchange


async def _to_a_test(client: Client, run_id: str) -> AsyncIterator[str]:
    """Go from the run of an issue to a test of it."""
    asked: dict[str, Any] = {"run_id": run_id, "value": "9,266.14"}
    yield _told("get_lineage", asked, _abridged("get_lineage", (await _ask(client, "get_lineage", asked))[1]))
    asked = {"run_id": run_id}
    document = await _text(client, "explain_run", asked)
    title, _, rest = document.partition("\n")
    proof = _without_fences(rest.partition("## Prove it\n")[2])
    yield _told("explain_run", asked, f"{title}\n…\n{proof}")
    asked = {"run_id": run_id, "command": ["python", "my_agents.py"], "expect": "9,662.14"}
    _, found = await _ask(client, "pin_run", asked)
    shown = [{"path": one["path"], "text": one["text"][:_MOST_TEXT] + "…"} for one in found["files"]]
    yield _told("pin_run", asked, json.dumps({"files": shown}, indent=1, ensure_ascii=False))


async def _ask(client: Client, tool: str, asked: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the answer's first line, and its document."""
    head, _, document = (await _text(client, tool, asked)).partition("\n")
    return head, json.loads(document)


async def _text(client: Client, tool: str, asked: dict[str, Any]) -> str:
    content = (await client.call_tool(tool, asked)).content[0]
    assert isinstance(content, TextContent)
    return content.text


def _without_fences(document: str) -> str:
    """Return Markdown that can stand in a fence of the page."""
    return "\n".join(line for line in document.splitlines() if line and not line.startswith("```"))


def _told(tool: str, asked: dict[str, Any], answer: str) -> str:
    return f">>> {tool} {json.dumps(asked)}\n{answer}\n"


def _abridged(tool: str, found: dict[str, Any]) -> str:
    text = json.dumps(_chosen(found, _SHOWN[tool]), indent=1, ensure_ascii=False)
    return re.sub(r'"…": "…"', "…", text)


def _chosen(found: Any, keys: tuple[str, ...]) -> Any:
    if isinstance(found, list):
        return [_chosen(each, keys) for each in found[:1]] + ["…"] * (len(found) > 1)
    if not isinstance(found, dict):
        return found
    kept = {key: _chosen(found[key], keys) for key in keys if key in found}
    return kept if len(kept) == len(found) else {**kept, "…": "…"}


if __name__ == "__main__":
    recorded = iter(sessions())
    PAGE.write_text(_SESSION.sub(lambda _: next(recorded), PAGE.read_text()))
