"""Backtests of planted fixes, each by the command itself: real processes, the gateway, and a scripted model.

Three systems, whose model makes one mistake: in every run (``report``, ``quote``), or in half of the repeats
(``healing``). Three fixes of each: a right one, a useless one, and one after which another agent fails. In
half of the backtests the instructions of the agents before the decisive step change too. Each line of the
file is one backtest, so that an interrupted measurement can resume.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

from analyzer.inquiry.intervals import wilson

Row = dict[str, Any]

_FLOWS: Final = {
    "report": ("researcher", "analyst", "writer"),
    "quote": ("planner", "researcher", "analyst", "reviewer", "writer"),
    "healing": ("researcher", "planner", "analyst", "writer"),
}
"""The agents of each system, in their order; the analyst's answer is the decisive one."""
_FIXES: Final = ("right", "useless", "moves")
_CALLS: Final = {name: len(agents) + 1 for name, agents in _FLOWS.items()}
"""Model calls of a run: the researcher makes two."""
_RECORDED: Final = 4
"""Failed runs of each system."""
_WANTED: Final = {"right": {"fixed"}, "useless": {"not_fixed"}, "moves": {"moved"}}
_WANTED_WHERE_IT_HEALS: Final = {**_WANTED, "useless": {"not_fixed", "undecided"}}

PROGRAM: Final = """
import json, os, random, urllib.request
task = os.environ.get("BLAMESPAN_TASK") or os.environ["TASK"]
agents = json.load(open("agents.json"))
def ask(name, *messages):
    asked = {"model": "m", "messages": [{"role": "system", "content": agents[name]}, *messages]}
    headers = {"Content-Type": "application/json", "Authorization": "Bearer none"}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(asked).encode(), headers)) as answer:
        return json.load(answer)["choices"][0]["message"]
said = {"role": "user", "content": task}
for name in agents:
    if name == "researcher":
        wanted = ask(name, said)
        coin = random.Random(task)
        units = [10 * coin.randrange(30, 160) for _ in range(3)]
        call = wanted["tool_calls"][0]["id"]
        result = {"role": "tool", "tool_call_id": call, "content": json.dumps({"units": units})}
        answer = ask(name, said, wanted, result)["content"]
    else:
        answer = ask(name, said)["content"]
    said = {"role": "user", "content": answer}
print(task)
print(answer)
"""
CHECK: Final = """
import random, sys
task, _, answer = sys.stdin.read().partition("\\n")
coin = random.Random(task)
units = [10 * coin.randrange(30, 160) for _ in range(3)]
sys.exit(f"{sum(units):,}" not in answer)
"""


class Model:
    """A scripted model: what an agent says follows from its instructions, its input, and a seeded coin."""

    def __init__(self, seed: str) -> None:
        self._coin: Final = random.Random(seed)

    def answer(self, messages: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
        """Return the message of an agent whose name stands in its instructions."""
        prompt, last = messages[0]["content"], messages[-1]["content"]
        said: dict[str, Any] = {"content": last}
        if name == "researcher":
            call = {"id": "c1", "type": "function", "function": {"name": "sales", "arguments": "{}"}}
            units = [f"{each:,}" for each in json.loads(last)["units"]] if _is_result(messages) else []
            said = {"content": f"The units: {'; '.join(units)}."} if units else {"tool_calls": [call]}
        elif name == "analyst":
            said = {"content": self._sum(prompt, last)}
        elif name == "writer":
            total = re.findall(r"= ([\d,]+)", last)[-1]
            said = {"content": f"The total: {_slipped(total) if 'sloppy' in prompt else total} units."}
        return {"role": "assistant", **said}

    def _sum(self, prompt: str, last: str) -> str:
        units = [int(each.replace(",", "")) for each in re.findall(r"\d[\d,]*\d", last)]
        heals = "healing" in prompt and self._coin.random() < 0.5
        total = sum(units) - (0 if "carefully" in prompt or heals else 100)
        added = " + ".join(f"{each:,}" for each in units)
        return f"{added} = {total:,} (answer {self._coin.randrange(10**9)})."


def _is_result(messages: Sequence[Mapping[str, Any]]) -> bool:
    return bool(messages[-1]["role"] == "tool")


def _slipped(total: str) -> str:
    """Return a figure with its last two different neighbouring digits swapped."""
    for at in range(len(total) - 1, 0, -1):
        one, other = total[at - 1], total[at]
        if one != other and "," not in {one, other}:
            return total[: at - 1] + other + one + total[at + 1 :]
    return f"{total}0"


@contextmanager
def serving(model: Model) -> Iterator[str]:
    """Serve a model as OpenAI's chat completions."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Write nothing."""

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"]
            name = re.findall(r"You are the (\w+)", asked[0]["content"])[0]
            choice = {"index": 0, "message": model.answer(asked, name), "finish_reason": "stop"}
            document = {
                "id": "x",
                "object": "chat.completion",
                "created": 0,
                "model": "m",
                "choices": [choice],
            }
            body = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def instructions(system: str, fix: str = "", *, earlier: bool = False) -> dict[str, str]:
    """Return the instructions of a system's agents, with a fix and a change of earlier agents."""
    found = {name: f"You are the {name} of the {system} team." for name in _FLOWS[system]}
    if earlier:
        for name in _FLOWS[system][: _FLOWS[system].index("analyst")]:
            found[name] += " Answer in one sentence."
    if fix in {"right", "moves"}:
        found["analyst"] += " Add carefully."
    if fix == "useless":
        found["analyst"] += " Be friendly."
    if fix == "moves":
        found["writer"] += " Be sloppy."
    return found


def measure(number: int, out: Path) -> None:
    """Run backtests up to this number; append each to the file."""
    done = len(_known(out))
    with tempfile.TemporaryDirectory(prefix="blamespan-loop-") as name:
        folder = Path(name)
        (folder / "program.py").write_text(PROGRAM)
        (folder / "check.py").write_text(CHECK)
        if done < number:
            for system in _FLOWS:
                _record(folder, system)
        for at in range(done, number):
            row = _backtest(folder, at)
            with out.open("a") as file:
                file.write(json.dumps(row) + "\n")


def _known(out: Path) -> list[Row]:
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def _record(folder: Path, system: str) -> None:
    """Save failed runs of a system, and one that passed."""
    with serving(Model(f"recorded {system}")) as url:
        for at in range(_RECORDED):
            while True:  # a system that heals by itself passes now and then
                ended = _run(folder, system, f"{system}-{at}", url, "--failed")
                if _fails(folder, ended):
                    break
        _run(folder, system, f"{system}-good", url, fix="right")


def _run(folder: Path, system: str, name: str, url: str, *words: str, fix: str = "") -> str:
    (folder / "agents.json").write_text(json.dumps(instructions(system, fix)))
    (folder / f"{name}.json").unlink(missing_ok=True)
    task = f"Order {name}: how many units did we sell in the north in total?"
    told = ("run", *words, "--save", f"{name}.json", "--", sys.executable, "program.py")
    ended = _command(folder, url, *told, TASK=task)
    if not (folder / f"{name}.json").exists():
        raise RuntimeError(ended.stderr)
    return ended.stdout


def _fails(folder: Path, answer: str) -> bool:
    check = [sys.executable, str(folder / "check.py")]
    return subprocess.run(check, input=answer, text=True, check=False, capture_output=True).returncode != 0


def _command(folder: Path, url: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BLAMESPAN_", "OTEL_"))}
    environment = {**kept, "OPENAI_BASE_URL": url, "PYTHONPATH": str(Path(__file__).parents[2]), **variables}
    command = [sys.executable, "-m", "analyzer", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def _backtest(folder: Path, at: int) -> Row:
    system, fix = tuple(_FLOWS)[at % 3], _FIXES[at // 3 % 3]
    earlier, runs = bool(at // 9 % 2), 1 + at // 18 % 2
    chosen = random.Random(f"backtest {at}").sample(range(_RECORDED), runs)
    (folder / "agents.json").write_text(json.dumps(instructions(system, fix, earlier=earlier)))
    names = [f"{system}-{each}.json" for each in chosen] + [f"{system}-good.json"]
    options = ("--check", f"{sys.executable} check.py", "--allow-tool", "sales", "--max-calls", "1000")
    begun = time.monotonic()
    with serving(Model(f"backtest {at}")) as url:
        program = ("--format", "json", "--", sys.executable, "program.py")
        ended = _command(folder, url, "backtest", *names, *options, *program)
    if not ended.stdout:
        raise RuntimeError(ended.stderr)
    found = json.loads(ended.stdout)
    wanted = _WANTED_WHERE_IT_HEALS if system == "healing" else _WANTED
    return {
        "at": at,
        "system": system,
        "fix": fix,
        "earlier": earlier,
        "runs": runs,
        "verdict": found["verdict"],
        "exit_code": found["exit_code"],
        "is_right": found["verdict"] in wanted[fix],
        "broken": found["passing"]["broken"],
        "masked": max(one["masked"] for one in found["runs"]),
        "trials": found["trials"],
        "live_calls": found["live_calls"],
        "calls_from_the_start": found["trials"] * _CALLS[system],
        "seconds": round(time.monotonic() - begun, 1),
    }


def table(out: Path) -> None:
    """Print the measurements, with Wilson's 95 % intervals."""
    rows = _known(out)
    print("system fix | backtests | right conclusion | verdicts | trials, median | live calls of all calls")
    for system in _FLOWS:
        for fix in _FIXES:
            own = [row for row in rows if (row["system"], row["fix"]) == (system, fix)]
            if own:
                print(_line(f"{system} {fix}", own))
    if rows:
        print(_line("all", rows))
    changed = [row for row in rows if row["fix"] != "right"]
    moved = [row for row in rows if row["fix"] == "moves"]
    print(f"false fixed: {_share([row for row in changed if row['verdict'] == 'fixed'], changed)}")
    print(f"moved blame found: {_share([row for row in moved if row['verdict'] == 'moved'], moved)}")
    earlier = [row for row in rows if row["earlier"]]
    print(
        f"right with changed earlier prompts: {_share([row for row in earlier if row['is_right']], earlier)}"
    )


def _line(name: str, rows: Sequence[Row]) -> str:
    right = [row for row in rows if row["is_right"]]
    verdicts = sorted({row["verdict"] for row in rows})
    counts = ", ".join(f"{each} {sum(row['verdict'] == each for row in rows)}" for each in verdicts)
    trials = sorted(row["trials"] for row in rows)[len(rows) // 2]
    live = sum(row["live_calls"] for row in rows) / sum(row["calls_from_the_start"] for row in rows)
    return f"{name} | {len(rows)} | {_share(right, rows)} | {counts} | {trials} | {live:.0%}"


def _share(part: Sequence[Row], whole: Sequence[Row]) -> str:
    if not whole:
        return "-"
    found = wilson(len(part), len(whole))
    return f"{len(part)} of {len(whole)}, {len(part) / len(whole):.0%} [{found.low:.0%}, {found.high:.0%}]"


__all__ = ["measure", "table"]
