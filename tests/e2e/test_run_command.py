"""``blamespan run``: programs nobody prepared, judged in the terminal that they ran in."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, build_opener

import pytest

from analyzer.programs.child import run_child
from collector_processor.otlp import Signal
from collector_processor.rebuild.decode import decode
from tests.backends.forked import ran
from tests.backends.supervise import wait_until
from tests.e2e.backend import grpc_backend
from tests.loopback import serve_http

PLAIN = """
import json, os, sys
from openai import OpenAI
client = OpenAI(api_key="sk-verysecret1234567890abcdef")
def ask(instructions, *messages):
    asked = [{"role": "system", "content": instructions}, *messages]
    answer = client.chat.completions.create(model="m", messages=asked, **json.loads(os.environ.get("MORE", "{}")))
    return answer.choices[0].message.model_dump(exclude_none=True)
task = {"role": "user", "content": "How many units did we sell in the north in total?"}
wanted = ask("You are the researcher.", task)
result = {"role": "tool", "tool_call_id": wanted["tool_calls"][0]["id"], "content": '{"units": [1200, 1450, 980]}'}
found = ask("You are the researcher.", task, wanted, result)
print(ask("You are the analyst.", {"role": "user", "content": found["content"]})["content"])
"""  # noqa: E501 - a program
_LINES = PLAIN.splitlines(keepends=True)
WITH_OPENAI = ("".join(_LINES[2:4]), "".join(_LINES[6:8]))
WITHOUT = (
    "import urllib.request\n",
    """    body = json.dumps({"model": "m", "messages": asked}).encode()
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    headers = {"Content-Type": "application/json", "Authorization": "Bearer x"}
    request = urllib.request.Request(url, body, headers)
    answer = json.load(urllib.request.urlopen(request))["choices"][0]["message"]
    return {name: value for name, value in answer.items() if value is not None}
""",
)
INSTRUMENTED = """
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from semconv.instrument import agent, llm, run
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
with run("sales", task="How many units?", tracer_provider=provider) as this:
    with agent("analyst"), llm("m") as call:
        call.output("1,200 + 1,450 + 980 = 3,530.")
    this.output("1,200 + 1,450 + 980 = 3,530.")
provider.shutdown()
"""


def quick(program: str) -> str:
    """Return the program without openai, whose import takes a second of CPU in each trial."""
    for old, new in zip(WITH_OPENAI, WITHOUT, strict=True):
        assert old in program
        program = program.replace(old, new)
    return program


SALES = {"id": "c1", "type": "function", "function": {"name": "sales", "arguments": '{"region": "north"}'}}
WRONG = "1,200 + 1,450 + 980 = 3,530. The total is 3,530 units."


class Provider(BaseHTTPRequestHandler):
    """A model that looks sales up, and adds them up wrongly."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Write nothing."""

    def do_POST(self) -> None:
        self.say(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"], WRONG)

    def say(self, asked: list[dict[str, Any]], total: str) -> None:
        """Answer as the researcher, or as the analyst with this total."""
        said: dict[str, Any] = {"content": total}
        if "researcher" in asked[0]["content"]:
            has_result = asked[-1]["role"] == "tool"
            said = {"content": "1,200, 1,450 and 980 units."} if has_result else {"tool_calls": [SALES]}
        body = json.dumps(
            {
                "id": "x", "object": "chat.completion", "created": 0, "model": "m",
                "choices": [{"index": 0, "message": {"role": "assistant", **said}, "finish_reason": "stop"}],
            }
        ).encode()  # fmt: skip
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def provider() -> Iterator[str]:
    with serving() as url:
        yield url


@contextmanager
def serving(provider: type[BaseHTTPRequestHandler] = Provider) -> Iterator[str]:
    with serve_http(provider) as address:
        yield f"{address}/v1"


def run(folder: Path, *words: str, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    return blamespan(folder, "run", *words, stdin=stdin, **variables)


def blamespan(
    folder: Path, *words: str, stdin: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "analyzer", *words]
    return ran(command, environ=environment(**variables), folder=folder, given=stdin)


def environment(**variables: str) -> Mapping[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "BLAMESPAN_"))}
    return {**kept, "PYTHONPATH": str(Path.cwd()), **variables}


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    pytest.importorskip("openai")
    (tmp_path / "report.py").write_text(PLAIN)
    return tmp_path


def test_a_program_that_has_never_heard_of_spans_is_judged(plain: Path, provider: str) -> None:
    ended = run(plain, "--save", "run.json", "--", sys.executable, "report.py", OPENAI_BASE_URL=provider)
    assert (ended.returncode, ended.stdout) == (0, f"{WRONG}\n")
    assert "analyst, at step 3 of 4" in ended.stderr
    assert 'sales({"region": "north"})' in ended.stderr
    assert "3,630" in ended.stderr  # the right result
    saved = (plain / "run.json").read_text()
    assert "verysecret" not in saved
    again = blamespan(plain, "attribute", "run.json", "--format", "json")
    assert json.loads(again.stdout)["agent"] == "analyst"


def test_a_program_that_fails_between_two_calls_is_told_where(plain: Path, provider: str) -> None:
    broken = PLAIN.replace("result =", "raise KeyError('units')\nresult =")
    (plain / "report.py").write_text(broken)
    ended = run(plain, "--", sys.executable, "report.py", OPENAI_BASE_URL=provider)
    assert ended.returncode == 1
    assert "KeyError: 'units'" in ended.stderr
    last = ended.stderr.splitlines()[-1]
    said = "after step 0, in which researcher asked for sales; no result was seen"
    assert last == f"blamespan: the program ended with exit code 1 {said}"
    (plain / "report.py").write_text(f"{PLAIN}\nsys.exit(3)")
    ended = run(plain, "--", sys.executable, "report.py", OPENAI_BASE_URL=provider)
    assert "the program ended with exit code 3 after step 3\n" in ended.stderr


def test_a_program_in_an_environment_without_its_packages_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text("import a_package_of_another_environment")
    ended = run(tmp_path, "--", sys.executable, "agents.py")
    assert ended.returncode == 1
    assert "name the one of your program's environment" in ended.stderr
    ended = run(tmp_path, "--", shutil.which("python3", path=os.defpath) or "", "agents.py")
    assert ended.returncode == 1
    assert "name the one of your program's environment" not in ended.stderr


def test_as_json_the_programs_output_goes_to_standard_error(plain: Path, provider: str) -> None:
    ended = run(plain, "--format", "json", "--fail", sys.executable, "report.py", OPENAI_API_BASE=provider)
    (line,) = ended.stdout.splitlines()
    verdict = json.loads(line)
    assert (verdict["status"], verdict["agent"], verdict["step"]) == ("suspected", "analyst", 3)
    assert WRONG in ended.stderr
    assert ended.returncode == 1  # an agent is accused, and the program gave 0


@pytest.mark.parametrize(
    ("options", "status"),
    [
        (["--expect", "3,630"], "attributed"),
        (["--expect", "3,530"], "no_failure"),
        (["--check", "grep -q 3,630"], "attributed"),
        (["--check", "grep -q 3,530"], "no_failure"),
        (["--failed"], "attributed"),
    ],
)
def test_the_user_says_whether_it_failed(plain: Path, provider: str, options: list[str], status: str) -> None:
    ended = run(
        plain, *options, "--format", "json", "--", sys.executable, "report.py", OPENAI_BASE_URL=provider
    )
    assert json.loads(ended.stdout)["status"] == status
    assert ended.returncode == 0
    assert WRONG in ended.stderr


def test_spans_are_judged_and_still_reach_the_programs_own_backend(tmp_path: Path) -> None:
    (tmp_path / "sales.py").write_text(INSTRUMENTED)
    with grpc_backend() as backend:
        own = {"OTEL_EXPORTER_OTLP_ENDPOINT": backend.url, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
        ended = run(tmp_path, "--format", "json", sys.executable, "sales.py", **own)
        assert json.loads(ended.stdout)["agent"] == "analyst", ended.stderr
        bodies = [each.body for each in backend.of(Signal.TRACES)]
    names = {span.name for body in bodies for span in decode(body).spans}
    assert {"invoke_workflow sales", "invoke_agent analyst"} <= names


def test_an_unreachable_backend_is_reported_and_costs_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "sales.py").write_text(INSTRUMENTED)
    own = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    ended = run(tmp_path, sys.executable, "sales.py", **own)
    assert "analyst, at step" in ended.stderr
    assert "could not be passed on to the program's own backend" in ended.stderr


def test_the_programs_streams_and_code_are_its_own(tmp_path: Path) -> None:
    program = "import sys; sys.stdout.buffer.write(b'\\x00\\xff' + sys.stdin.buffer.read()); sys.exit(7)"
    done = subprocess.run(
        [sys.executable, "-m", "analyzer", "run", "--", sys.executable, "-c", program],
        cwd=tmp_path, env=environment(), input=b"in\x00", capture_output=True, timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (7, b"\x00\xffin\x00")
    assert b"nothing to judge" in done.stderr
    assert b"leave base_url out" not in done.stderr  # it failed: its own error says why


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["no-such-program"], 127, "no-such-program: not found"),
        (["/"], 126, "/: cannot be executed"),
        ([], 2, "COMMAND"),
        (["--save", "no/such/folder", "true"], 2, "no such folder"),
        (["--save", ".", "true"], 2, "a folder in place of a file"),
        (["--check", "no-such-check", "true"], 2, "expected a command that can be run"),
        (["report.py"], 127, "blamespan run -- python report.py"),
        (["python report.py"], 127, "blamespan run -- python report.py"),
        (["--check", "'", "true"], 2, "expected a command that can be run"),
        (["sh", "-c", "kill -9 $$"], 137, "nothing to judge"),
    ],
)
def test_what_cannot_be_run_or_is_killed_has_the_code_of_shells(
    tmp_path: Path, words: list[str], code: int, told: str
) -> None:
    ended = run(tmp_path, *words)
    assert (ended.returncode, told in ended.stderr) == (code, True), ended.stderr
    assert "Traceback" not in ended.stderr


ODD = """
import json, os, urllib.request
asked = [{"role": "system", "content": "You are the clerk."}]
body = json.dumps({"model": "m", "messages": asked, "tools": 5})
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
print(urllib.request.urlopen(urllib.request.Request(url, body.encode())).read().decode())
"""


def test_a_run_that_shows_no_failure_says_how_to_call_it_one(plain: Path, provider: str) -> None:
    hint = "blamespan: wrong all the same? Add --failed"
    (plain / "report.py").write_text(PLAIN.partition("result = ")[0])
    words = ("--", sys.executable, "report.py")
    assert hint in run(plain, *words, OPENAI_BASE_URL=provider).stderr
    assert hint not in run(plain, "--failed", *words, OPENAI_BASE_URL=provider).stderr


def test_an_agent_without_a_name_is_shown_with_its_instructions(plain: Path, provider: str) -> None:
    (plain / "report.py").write_text(
        PLAIN.replace("You are the analyst.", "Add the sales up. [red]Twice.[/red]")
    )
    ended = run(plain, "--", sys.executable, "report.py", OPENAI_BASE_URL=provider)
    assert "agent 1, at step 3 of 4" in ended.stderr
    assert "agent 1: “Add the sales up. [red]Twice.[/red]”" in ended.stderr
    assert "researcher: “" not in ended.stderr


@pytest.mark.parametrize("words", [["--failed"], ["--expect", "3,999"]])
def test_a_run_that_only_its_user_calls_failed_is_failed_in_its_file_too(
    tmp_path: Path, words: list[str]
) -> None:
    right = INSTRUMENTED.replace("3,530", "3,630")
    (tmp_path / "sales.py").write_text(right)
    ended = run(tmp_path, *words, "--format", "json", "--save", "run.json", "--", sys.executable, "sales.py")
    here = json.loads(ended.stdout)
    assert here["status"] == "attributed", ended.stderr
    again = blamespan(tmp_path, "attribute", "run.json", "--format", "json")
    there = json.loads(again.stdout)
    assert [there[key] for key in ("status", "agent", "step")] == [
        here[key] for key in ("status", "agent", "step")
    ]


def test_a_program_over_grpc_and_without_variables_is_seen_too(tmp_path: Path) -> None:
    (tmp_path / "sales.py").write_text(INSTRUMENTED)
    ended = run(tmp_path, "--format", "json", sys.executable, "sales.py")
    assert json.loads(ended.stdout)["agent"] == "analyst", ended.stderr


def test_an_odd_request_costs_no_verdict_and_no_code(tmp_path: Path, provider: str) -> None:
    (tmp_path / "odd.py").write_text(ODD)
    ended = run(tmp_path, "--format", "json", sys.executable, "odd.py", OPENAI_BASE_URL=provider)
    assert (ended.returncode, json.loads(ended.stdout)["status"]) == (0, "suspected"), ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_provider_named_in_code_gets_no_call_redirected_to_openai(plain: Path, provider: str) -> None:
    named = f"import os; os.environ.setdefault('OPENAI_BASE_URL', {provider!r})\n"
    (plain / "report.py").write_text(named + PLAIN.replace("sk-verysecret1234567890abcdef", "ollama"))
    ended = run(plain, sys.executable, "report.py")
    assert ended.returncode == 1
    assert "set OPENAI_BASE_URL or ANTHROPIC_BASE_URL to it" in ended.stderr
    (plain / ".env").write_text(f'export OPENAI_BASE_URL="{provider}"  # mine\n')
    ended = run(plain, sys.executable, "report.py")
    assert (ended.returncode, ended.stdout) == (0, f"{WRONG}\n")


def test_a_closed_output_does_not_end_the_program(tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text("import sys\nfor _ in range(50_000): print('x' * 20)\nsys.exit(5)\n")
    script = f"{sys.executable} -m analyzer run --expect x -- {sys.executable} long.py | head -1"
    done = subprocess.run(
        ["bash", "-c", f"{script}; echo code ${{PIPESTATUS[0]}}"],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert "nothing to judge" in done.stderr
    assert "code 5" in done.stdout


def test_output_counts_although_a_process_left_behind_holds_it_open() -> None:
    with Path(os.devnull).open("w") as out:
        leaving = run_child(["sh", "-c", "echo hi; sleep 120 &"], os.environ, out, watches_output=True)
        ended = asyncio.run(asyncio.wait_for(leaving, 60))
    assert (ended.code, ended.output) == (0, "hi\n")
    gc.collect()  # finds a pipe that is still open, which fails the test


def test_a_program_goes_on_if_the_command_is_killed(tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text(
        "import pathlib, sys, time\n"
        "print('waits', flush=True)\n"
        "while not pathlib.Path('go').exists(): time.sleep(0.05)\n"
        "pathlib.Path('done').write_text('done')\n"
    )
    with subprocess.Popen(
        [sys.executable, "-m", "analyzer", "run", "--", sys.executable, "long.py"],
        cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        while "waits" not in (line := process.stdout.readline()):
            assert line, "the program ended"
        process.kill()
        assert process.wait() == -signal.SIGKILL
        (tmp_path / "go").touch()
        wait_until(lambda: (tmp_path / "done").exists() or None, what="the program's end")


def test_after_ctrl_c_what_is_there_is_judged(plain: Path, provider: str) -> None:
    begun = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # a shell may ignore it
    waits = "import time; print('waits', flush=True); time.sleep(600)"
    (plain / "report.py").write_text(f"{begun}\n{PLAIN}\n{waits}\n")
    with subprocess.Popen(
        [sys.executable, "-m", "analyzer", "run", "--", sys.executable, "report.py"],
        cwd=plain, env=environment(OPENAI_BASE_URL=provider), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        while "waits" not in (line := process.stdout.readline()):
            assert line, "the program ended"
        os.killpg(process.pid, signal.SIGINT)
        try:
            _, told = process.communicate(timeout=120)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode in {1, 130}
    assert "analyst, at step 3 of 4" in told


@pytest.mark.parametrize(("code", "is_said"), [(1, True), (130, False)], ids=["an error", "Ctrl-C"])
def test_a_missing_package_is_suspected_after_an_error_only(tmp_path: Path, code: int, is_said: bool) -> None:
    ended = run(tmp_path, "--", sys.executable, "-c", f"raise SystemExit({code})")
    assert ("if a package is missing" in ended.stderr) is is_said


FLAKY = f"""
import pathlib, sys
count = pathlib.Path("count")
number = len(count.read_text()) if count.exists() else 0
count.write_text("x" * (number + 1))
{INSTRUMENTED.replace("3,530", "{3530 if number % 2 else 3630:,}").replace('"1,200', 'f"1,200')}
sys.exit(5 if number == 3 else 0)
"""


def test_many_runs_are_ranked_by_what_breaks_them(tmp_path: Path) -> None:
    (tmp_path / "flaky.py").write_text(FLAKY)
    ended = run(
        tmp_path, "-n", "4", "--format", "json", "--save", "runs.json", "--", sys.executable, "flaky.py"
    )
    *verdicts, final = map(json.loads, ended.stdout.splitlines())
    assert [one["status"] for one in verdicts] == ["no_failure", "suspected", "no_failure", "attributed"]
    assert [(one["repetition"], one["exit_code"]) for one in verdicts] == [(1, 0), (2, 0), (3, 0), (4, 5)]
    assert (final["final"], final["repetitions"], final["exit_codes"]) == (True, 4, {"0": 3, "5": 1})
    assert (final["failed"]["count"], final["suspected"]["count"]) == (1, 1)
    assert {one["agent"] for one in final["broken_by"]} == {"analyst"}
    assert "3 of 4: exit code 0, no failure" in ended.stderr
    assert "analyst, at step" not in ended.stderr, "the verdicts are on standard output"
    assert ended.returncode == 5
    assert len((tmp_path / "runs.json").read_text().splitlines()) == 4


def test_of_many_runs_the_first_failed_one_is_shown_in_full(tmp_path: Path) -> None:
    (tmp_path / "flaky.py").write_text(FLAKY)
    ended = run(tmp_path, "-n", "4", "--", sys.executable, "flaky.py")
    before, after = ended.stderr.split("3 of 4: exit code 0, no failure")
    assert "run 2 of 4" in before
    assert "analyst, at step" in before
    assert "analyst, at step" not in after
    assert after.rstrip().endswith("4"), "the run of the ranking's last failure"


def test_a_loop_over_many_tasks_is_a_list_with_the_first_failure_in_full(tmp_path: Path) -> None:
    loop = INSTRUMENTED.replace("\nwith run", "\nfor total in (3630, 3530, 3630, 3630, 3530):\n  with run")
    for line in ("    with agent", "    this.output"):
        loop = loop.replace(line, f"  {line}")
    loop = loop.replace("        call.output", "          call.output")
    (tmp_path / "loop.py").write_text(loop.replace('"1,200', 'f"1,200').replace("3,530", "{total:,}"))
    ended = run(tmp_path, "--", sys.executable, "loop.py")
    assert "run 1 of 5: no failure\n" in ended.stderr
    assert "runs 3 to 4 of 5: no failure\n" in ended.stderr
    assert (ended.stderr.count("Suspected failure"), ended.stderr.count("Nothing broke")) == (1, 0)
    assert "of 5 runs: 0 failed" in ended.stderr
    assert "2, 5" in ended.stderr.partition("of 5 runs")[2]
    as_json = run(tmp_path, "--format", "json", "--", sys.executable, "loop.py")
    assert len(as_json.stdout.splitlines()) == 5


ENTRY_POINTS = """
[opentelemetry_configurator]
configurator = stand_in:Configurator
[opentelemetry_instrumentor]
stand_in = stand_in:Instrumentor
"""


@pytest.fixture
def auto_instrumented(tmp_path: Path) -> dict[str, str]:
    """A stand-in for the packages of auto-instrumentation, which sets up the SDK and emits a run."""
    site = tmp_path / "site"
    place = site / "opentelemetry" / "instrumentation" / "auto_instrumentation"
    metadata = site / "opentelemetry_distro-0.dist-info"
    place.mkdir(parents=True)
    metadata.mkdir()
    (place.parent / "__init__.py").touch()
    (place / "__init__.py").touch()
    (place / "sitecustomize.py").write_text(
        "import os; assert os.environ['OTEL_TRACES_EXPORTER'] == 'otlp'\n" + INSTRUMENTED
    )
    (metadata / "METADATA").write_text("Name: opentelemetry-distro\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    return {"PYTHONPATH": f"{site}{os.pathsep}{Path.cwd()}"}


def test_a_python_program_without_telemetry_is_instrumented_if_its_python_can(
    tmp_path: Path, auto_instrumented: dict[str, str]
) -> None:
    (tmp_path / "plain.py").write_text("print('done')")
    (tmp_path / "own.py").write_text("import opentelemetry.trace\nprint('done')")
    ended = run(tmp_path, "--", sys.executable, "plain.py", **auto_instrumented)
    assert (ended.returncode, ended.stdout) == (0, "done\n")
    assert "auto-instrumentation is on (stand_in); --no-instrument leaves it off" in ended.stderr
    assert "analyst, at step 0" in ended.stderr
    for words in (["--no-instrument", "--", sys.executable, "plain.py"], ["--", sys.executable, "own.py"]):
        other = run(tmp_path, *words, **auto_instrumented)
        assert (other.returncode, other.stdout) == (0, "done\n")
        assert "nothing to judge" in other.stderr
        assert "auto-instrumentation" not in other.stderr


def test_a_framework_without_instrumentation_is_named_with_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("try:\n    import langgraph\nexcept ImportError:\n    print('done')")
    metadata = tmp_path / "site" / "langgraph-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Name: langgraph\nVersion: 1\n")
    path = f"{tmp_path / 'site'}{os.pathsep}{Path.cwd()}"
    ended = run(tmp_path, "--", sys.executable, "plain.py", PYTHONPATH=path)
    assert "more can be seen of langgraph: pip install opentelemetry-distro" in ended.stderr
    assert "openinference-instrumentation-langchain in the program's environment" in ended.stderr


def test_the_page_of_the_run_is_served_until_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(INSTRUMENTED)
    command = ["run", "--open", "--expect", "3,630", "--", sys.executable, "agents.py"]
    with subprocess.Popen(
        [sys.executable, "-m", "analyzer", *command],
        cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        line = next(line for line in process.stderr if "page: http" in line)
        with build_opener(ProxyHandler({})).open(line.split()[2], timeout=60) as answer:
            page = answer.read().decode()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert "analyst" in page
    assert "3,530" in page
    assert "Suspected" not in page  # the user said that it failed, and the page knows
    assert "blamespan experiment FILE --check CHECK -- COMMAND" in page  # the run's id is known nowhere else
    assert "blamespan run --save FILE -- COMMAND" in page


TWO_AGENTS = """
import json, os, urllib.request
said = "12 tickets at 35 and 30 at 14"
for role in ("clerk", "writer"):
    messages = [{"role": "system", "content": f"You are the {role}."}, {"role": "user", "content": said}]
    body = json.dumps({"model": "m", "messages": messages}).encode()
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    asked = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked) as answer:
        said = json.load(answer)["choices"][0]["message"]["content"]
print(said)
"""


class WrongOnce(Provider):
    """The clerk's sum is wrong the first time, and right from then on; the writer repeats what he hears.

    No two answers are equal: an experiment counts equal ones once, since they may come from a cache.
    """

    asked = 0

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).asked += 1
        number = type(self).asked
        total = f"{body['messages'][-1]['content']} ({number})"
        if "clerk" in body["messages"][0]["content"]:
            total = f"12 * 35 + 30 * 14 = {830 if number == 1 else 840} ({number})"
        self.say(body["messages"], total)


def test_a_failed_run_is_proved_by_an_experiment(tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text(TWO_AGENTS)
    WrongOnce.asked = 0
    words = ["--prove", "--max-calls", "400", "--expect", "840", "--", sys.executable, "two.py"]
    with serving(WrongOnce) as url:
        ended = run(tmp_path, *words, OPENAI_BASE_URL=url)
    assert (ended.returncode, ended.stdout) == (0, "12 * 35 + 30 * 14 = 830 (1) (2)\n"), ended.stderr
    verdict, told, report = ended.stderr.partition("--prove: runs the program again")
    assert "clerk" in verdict
    assert told
    assert "proved" in report, report
    assert "clerk" in report
    assert [file.name for file in tmp_path.iterdir()] == ["two.py"]


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        (("--failed",), "expected --expect TEXT or --check COMMAND too"),
        (("--expect", "3,530"), "there is nothing to prove: the run succeeded"),
        (("--expect", "3,630"), "the run: cannot be replayed: the tool `sales` would really run in a trial"),
    ],
)
def test_requirements_of_a_proof_are_shown_after_the_verdict(
    plain: Path, provider: str, options: tuple[str, ...], missing: str
) -> None:
    words = ["--prove", *options, "--", sys.executable, "report.py"]
    ended = run(plain, *words, OPENAI_BASE_URL=provider)
    assert (ended.returncode, ended.stdout) == (0, f"{WRONG}\n"), ended.stderr
    verdict, told, missed = ended.stderr.partition("--prove: ")
    assert "analyst" in verdict
    assert told
    assert missing in missed, ended.stderr
    if "sales" in missing:
        assert "save the run with --save FILE, then blamespan experiment FILE --expect 3,630 -- " in missed


@pytest.mark.parametrize("options", [("--prove", "-n", "2"), ("--prove", "--open"), ("--max-calls", "3")])
def test_a_proof_goes_with_one_run_alone(tmp_path: Path, options: tuple[str, ...]) -> None:
    ended = run(tmp_path, *options, "--", "true")
    assert ended.returncode == 2
    assert "--prove" in ended.stderr
