"""Recorder of the session in docs/mcp.md: ``python -m tools.references.mcp_session``.

The session is about the run that ``blamespan demo`` plays, read by ``blamespan mcp`` over standard input and
output. Answers keep the fields below in their order; ``…`` marks fields that were left out.
"""

from __future__ import annotations

import asyncio
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

PAGE: Final = Path(__file__).parents[2] / "docs" / "mcp.md"
_SESSION: Final = re.compile(r"(?<=```text\n)>>> .*?(?=```)", re.DOTALL)
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
}
"""Fields of each tool's answer that the page shows; a list shows its first entry."""
_MOST_TEXT: Final = 60
"""Characters of a file's text that the page shows."""


def session() -> str:
    """Play the session and return it."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*_COMMAND, "demo", "--data-dir", folder], check=True, stdout=subprocess.DEVNULL)
        return asyncio.run(_recorded(folder))


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


def settled(text: str) -> str:
    """Return a session without what differs between two recordings: ids and days."""
    return re.sub(r"\d{4}-\d\d-\d\d", "DAY", re.sub(r"(?<![0-9a-z])[0-9a-f]{12,32}(?![0-9a-z])", "ID", text))


if __name__ == "__main__":
    recorded = session()
    PAGE.write_text(_SESSION.sub(lambda _: recorded, PAGE.read_text()))
