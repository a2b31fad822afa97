"""A forked service, and the processes that it starts, behave as if they were started by their commands."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.backends.forked import SPARES, Process, fork, ran
from tests.backends.supervise import Start, spawn, wait_until

SHOWN = """
import os, sys
print(sys.argv[1:], sorted(os.environ), os.getsid(0) == os.getpid(), sys.stdin.read() == "", flush=True)
print(*sorted(map(int, os.listdir("/proc/self/fd")))[:3], flush=True)
sys.exit(7)
"""
STARTS = f"""
import os, subprocess, sys
read, write = os.pipe()
environ = {{"ONLY": "this", "PYTHONPATH": os.environ["PYTHONPATH"]}}
for number in range({SPARES + 1}):
    command = [sys.executable, "-P", "-m", "{__name__}", str(write), "a b"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ, pass_fds=[write], process_group=0
    )
    said, _ = process.communicate(b"given")
    told, group = said.decode().rsplit(" ", 1)
    print(told, int(group) == process.pid, os.read(read, 9), process.returncode, flush=True)
"""
WAITS = "import time; print('up', flush=True); time.sleep(600)"


def run(start: Start, folder: Path, text: str, *arguments: str) -> Process:
    program = folder / "program.py"
    program.write_text(text)
    return start([sys.executable, str(program), *arguments], {"ONLY": "this"}, folder / "log")


@pytest.mark.parametrize("start", [fork, spawn])
def test_arguments_environment_session_and_exit_code_are_its_own(start: Start, tmp_path: Path) -> None:
    process = run(start, tmp_path, SHOWN, "a", "b c")
    assert process.wait(60) == process.poll() == process.returncode == 7
    said = (tmp_path / "log").read_text()
    assert said.replace("'LC_CTYPE', ", "") == "['a', 'b c'] ['ONLY'] True True\n0 1 2\n"


@pytest.mark.parametrize("start", [fork, spawn])
def test_a_signal_ends_it_and_is_its_exit_code(start: Start, tmp_path: Path) -> None:
    process = run(start, tmp_path, WAITS)
    wait_until(lambda: "up" in (tmp_path / "log").read_text(), what="the program")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.1)
    assert process.poll() is None
    process.terminate()
    assert process.wait(60) == -signal.SIGTERM
    process.kill()  # of one that has ended: nothing happens


@pytest.mark.parametrize("start", [fork, spawn])
def test_an_uncaught_error_is_in_its_log(start: Start, tmp_path: Path) -> None:
    assert run(start, tmp_path, "raise LookupError('gone')").wait(60) == 1
    assert "LookupError: gone" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("start", [fork, spawn])
def test_what_it_starts_has_its_own_streams_files_environment_group_and_exit_code(
    start: Start, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(STARTS)
    process = start(
        [sys.executable, str(program)], os.environ | {"PYTHONPATH": str(Path.cwd())}, tmp_path / "log"
    )
    assert process.wait(60) == 0, (tmp_path / "log").read_text()
    said = (tmp_path / "log").read_text().splitlines()
    assert said == ["given ['a b'] ['ONLY', 'PYTHONPATH'] True b'told' 3"] * (SPARES + 1)


@pytest.mark.parametrize("more", [{}, {"PYTHONUTF8": "1"}], ids=["forked", "afresh"])
def test_a_command_reads_writes_and_finds_modules_as_if_run_by_itself(
    more: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "beside.py").touch()
    (tmp_path / "shown.py").write_text(
        "import beside, os, sys\n"
        "print(sys.argv[1:], input(), os.getcwd() == sys.path[0], 'OLD' in os.environ, end=' ')\n"
        "sys.exit('forked' if 'analyzer' in sys.modules else 'afresh')\n"
    )
    environ = os.environ | {"PYTHONPATH": str(tmp_path / "site"), **more}
    monkeypatch.setenv("OLD", "of the tests")
    done = ran([sys.executable, "-m", "shown", "a b"], environ=environ, folder=tmp_path, given="given\n")
    assert (done.returncode, done.stdout) == (1, "['a b'] given True False ")
    assert done.stderr == ("afresh\n" if more else "forked\n")


def test_a_command_that_hangs_is_killed(tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text(f"import os; open('pid', 'w').write(str(os.getpid()))\n{WAITS}")
    with pytest.raises(subprocess.TimeoutExpired):
        ran([sys.executable, "-m", "hangs"], environ=os.environ, folder=tmp_path, timeout_s=1.0)
    pid = int((tmp_path / "pid").read_text())
    wait_until(
        lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text(),
        what="its end",
    )


if __name__ == "__main__":
    os.write(int(sys.argv[1]), b"told")
    print(sys.stdin.read(), sys.argv[2:], sorted({*os.environ} - {"LC_CTYPE"}), os.getpgid(0), end="")
    sys.exit(3)
