"""Text of traces, wherever people see it, never acts as markup, a terminal escape, a path or code."""

from __future__ import annotations

import ast
import asyncio
import json
import logging
import re
import unicodedata
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from analyzer.inquiry.present import plain
from analyzer.inquiry.terminal import attributes_table, console, run_heading, steps_table, verdict_panel
from analyzer.lab.evaluation.bench_tables import to_svg
from analyzer.methods.without_model import Signals
from analyzer.telemetry.json_lines import JsonFormatter
from collector_processor.settings import Settings
from semconv.model import Attribution, Trajectory
from tests.inquiries import attribute
from tests.runs import failed_tool, run, step, tool
from tests.web.stage import open_stage, serving

PACKAGES = ("semconv", "collector_processor", "analyzer")
ROOT = Path(__file__).parents[2]
HOSTILE = {
    "title": "\x1b]0;owned\x07",
    "clear screen": "\x1b[2J\x1b[H",
    "C1 control": "\x9b31m",
    "link": "\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\",
    "clipboard": "\x1b]52;c;cm0gLXJmIC8=\x07",
    "carriage return": "all is well\rrm -rf /",
    "backspaces": "evil\b\b\b\bfine",
    "right to left": "\u202egnp.exe\u2066",
    "zero width": "pay\u200bpal\u2060",
    "line separators": "a\u2028b\u2029c\x85d\x0be\x0cf",
    "rich markup": "[bold red]guilty[/] [link=http://evil.example]x[/link]",
    "rich escape": "\\[bold]",
    "html": "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "svg": "</text></svg><svg onload=alert(1)>",
    "xml entity": "&lol; <!DOCTYPE x [<!ENTITY e SYSTEM 'file:///etc/passwd'>]>",
    "log line": 'x\n{"level": "critical", "message": "forged"}\nINFO: forged',
    "path": "../../../../etc/passwd\0.json",
    "formula": '=HYPERLINK("http://evil.example")',
    "unassigned": "\u0378\U000e0fff",
    "private use": "\ue000\U0010fffd",
    "zalgo": "Z" + "\u0335\u0321" * 200,
}


def hostile_run(text: str) -> Trajectory:
    return run(
        step(f"plan {text}", text),
        failed_tool(f"clerk {text}", error=text, target=text, input=text),
        tool(f"clerk {text}", text, target=text),
        step(text or "x", text, instructions=text, tools=text),
        task=text, output=text, reference=text, warnings=(text,), run_id=text
    )  # fmt: skip


async def verdict_on(trajectory: Trajectory) -> Attribution:
    async def nobody(_prompt: object) -> None:
        raise AssertionError

    inquest = await attribute(Signals(), trajectory, nobody)  # type: ignore[arg-type]
    return inquest.attribution


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_terminal_is_sent_nothing_but_text_and_our_own_colours(name: str) -> None:
    trajectory = hostile_run(HOSTILE[name])
    attribution = await verdict_on(trajectory)
    screen = StringIO()
    terminal = Console(file=screen, width=100, highlight=False, force_terminal=False)
    terminal.print(run_heading(trajectory), steps_table(trajectory, attribution, width=100))
    terminal.print(verdict_panel(attribution, trajectory), attributes_table({"a": HOSTILE[name]}))
    shown = screen.getvalue()
    bad = {char for char in shown if char != "\n" and unicodedata.category(char)[0] == "C"}
    assert not bad
    if name == "rich markup":
        assert "[bold red]guilty[/]" in shown  # shown as it is, not obeyed


MARKUP = (
    "calc[/oops]",
    "[link=http://evil.example]x[/link]",
    "[red]",
    ":skull:",
    "\\[bold]",
    "[/]",
    "[@click=x]y",
)


@pytest.mark.parametrize("name", MARKUP)
def test_our_console_takes_names_for_names(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A name like ``calc[/oops]`` ended `query`, `workflows` and `label --queue` for everyone."""
    table = Table(name, title=name)
    table.add_row(name)
    console().print(name, table, Padding(name, 0), style="red")
    shown = capsys.readouterr().out
    assert shown.count(name) == 5, shown
    assert "\x1b" not in shown


def test_one_console_without_markup_is_used_everywhere() -> None:
    """Whatever a command prints of a run goes through a console that reads no markup."""
    made = {
        (path.relative_to(ROOT).as_posix(), ast.unparse(node.func))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and re.search(r"\bConsole$|from_markup$", ast.unparse(node.func))
    }
    assert made == {("analyzer/inquiry/terminal.py", "Console"), ("analyzer/cli/output.py", "Console")}


@pytest.mark.parametrize("name", HOSTILE)
def test_one_line_stays_one_line(name: str) -> None:
    assert len(plain(HOSTILE[name]).splitlines()) <= 1


@pytest.mark.parametrize("name", HOSTILE)
def test_a_picture_stays_the_same_picture(name: str) -> None:
    line = {
        "n": 1, "step_accuracy": 0.5, "step_accuracy_ci": [0.1, 0.9], "agent_accuracy": 0.5,
        "agent_accuracy_ci": [0.1, 0.9], "coverage_curve": [], "curve": [],
    }  # fmt: skip
    text = "".join(char for char in HOSTILE[name] if char.isprintable())
    drawn = ET.fromstring(to_svg([line | {"method": text, "subset": text}], text))
    expected = ET.fromstring(to_svg([line | {"method": "m", "subset": "s"}], "t"))
    assert [node.tag for node in drawn.iter()] == [node.tag for node in expected.iter()]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_log_record_is_one_line_of_json(name: str) -> None:
    record = logging.makeLogRecord({"msg": "trace released", "agent": HOSTILE[name], "levelname": "INFO"})
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert "\r" not in line
    assert json.loads(line)["agent"] == HOSTILE[name]
    assert json.loads(line)["level"] == "info"


@pytest.mark.parametrize(
    "run_id",
    ["..%2f..%2f..%2fetc%2fpasswd", "../../etc/passwd", "%00", "a%0d%0aX-Evil:%201", "<script>", "%"],
)
async def test_a_run_id_is_never_a_path_nor_a_header(tmp_path: Path, run_id: str) -> None:
    """Requested over a raw socket: HTTP clients would normalise the path."""
    async with serving(open_stage(tmp_path).parts()) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(
            f"GET /api/runs/{run_id} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
        )
        answer = (await reader.read()).decode()
        writer.close()
        await writer.wait_closed()
    status, _, rest = answer.partition("\r\n")
    assert status.split()[1] in {"400", "404"}
    assert "root:" not in answer
    assert "X-Evil" not in rest
    assert run_id not in rest


def test_no_setting_can_be_changed_by_a_request() -> None:
    """Settings come from the environment and one file: pages cannot choose where we connect to."""
    assert Settings.model_config["frozen"] is True
    for path in _sources("analyzer/web"):
        names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
        assert not names & {"ClientSession", "urlopen", "load_settings", "open_exporter", "environ"}, path


def _sources(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


_FORBIDDEN_CALLS = frozenset({"eval", "exec", "compile", "__import__", "input"})
_FORBIDDEN_MODULES = frozenset({"pickle", "cPickle", "dill", "shelve", "marshal", "telnetlib", "xmlrpc"})
_FORBIDDEN_ATTRIBUTES = frozenset({("os", "system"), ("os", "popen"), ("subprocess", "getoutput")})


@pytest.mark.parametrize("path", [pytest.param(p, id=str(p.relative_to(ROOT))) for p in _sources(*PACKAGES)])
def test_no_code_runs_what_it_reads(path: Path) -> None:
    """No pickle, no eval, no shell; ruff's S rules check the same and more."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in _FORBIDDEN_CALLS, f"line {node.lineno}"
        if isinstance(node, ast.Call):
            shell = [kw.value for kw in node.keywords if kw.arg == "shell"]
            assert not any(not (isinstance(v, ast.Constant) and v.value is False) for v in shell)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert (node.value.id, node.attr) not in _FORBIDDEN_ATTRIBUTES, f"line {node.lineno}"
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        found = {module.partition(".")[0] for module in modules} & _FORBIDDEN_MODULES
        assert not found, f"line {getattr(node, 'lineno', 0)}: {found}"


def test_yaml_is_read_in_three_places_and_by_a_safe_loader() -> None:
    """The API's description from the package, recorded runs (the parser's events), and mapping files."""
    users = [path for path in _sources(*PACKAGES) if "import yaml" in path.read_text(encoding="utf-8")]
    assert {str(path.relative_to(ROOT)) for path in users} == {
        "analyzer/recordings/file_text.py",
        "analyzer/web/app.py",
        "collector_processor/mapping_files.py",
    }
    nodes = [node for path in users for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    for call in (node for node in nodes if isinstance(node, ast.Call)):
        name = ast.unparse(call.func)
        if name in {"yaml.parse", "yaml.scan", "yaml.compose"}:
            loaders = [ast.unparse(one.value) for one in call.keywords if one.arg == "Loader"]
            assert loaders in (["yaml.CSafeLoader"], ["yaml.SafeLoader"])
        elif name.startswith("yaml."):
            assert name in {"yaml.safe_load", "yaml.safe_dump", "yaml.MarkedYAMLError"}
