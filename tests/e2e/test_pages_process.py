"""The pages' process ends, hangs or is orphaned: spans and verdicts go on, and it is started again."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from analyzer.service.pages_process import BEAT_S, SILENT_S
from collector_processor.store.verdicts import RunStore
from tests.backends.supervise import wait_until
from tests.e2e.demo_again import DemoAgain
from tests.e2e.line import StartLine
from tests.e2e.test_worker_processes import GRACE_MS, await_verdicts, send_runs

LONG_S = 300.0
SOON_S = 10.0
NO_HEADERS: Mapping[str, str] = {}
QUICK: dict[str, str | float] = {"method": "signals", "root_grace": GRACE_MS}


def is_running(pid: int) -> bool:
    """Return whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def asked(url: str, headers: Mapping[str, str] = NO_HEADERS, timeout_s: float = LONG_S) -> tuple[int, str]:
    """Return the status and the text of an answer."""
    try:
        with urlopen(Request(url, headers=dict(headers)), timeout=timeout_s) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as refusal:
        return refusal.code, refusal.read().decode()


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process until the block ends."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def test_pages_that_die_are_started_again_and_neither_spans_nor_verdicts_wait(start_line: StartLine) -> None:
    line, runs = start_line(**QUICK), DemoAgain()
    await_verdicts(line, send_runs(line, runs, 1))
    first = line.pages_pid()
    os.kill(first, signal.SIGKILL)
    assert asked(f"{line.http}/healthz", timeout_s=SOON_S) == (HTTPStatus.OK, "ok\n")
    sent = send_runs(line, runs, 3)
    await_verdicts(line, sent)  # asks the new process
    second = line.pages_pid()
    assert second != first
    assert "blamespan_pages_restarts_total 1.0" in asked(f"{line.http}/metrics")[1]
    (said,) = line.said("the pages' process ended")
    assert (said["level"], said["status"]) == ("error", -signal.SIGKILL)
    assert line.terminate() == 0
    assert not is_running(second)


def test_pages_that_hang_delay_no_verdict_and_not_the_end(start_line: StartLine, tmp_path: Path) -> None:
    line, runs = start_line(**QUICK), DemoAgain()
    await_verdicts(line, send_runs(line, runs, 1))
    before = _verdicts(tmp_path)
    pages = line.pages_pid()
    with stopped(pages):
        send_runs(line, runs, 2)
        wait_until(lambda: _verdicts(tmp_path) == before + 2, what="the verdicts", timeout_s=LONG_S)
        assert asked(f"{line.http}/readyz")[0] == HTTPStatus.OK
        assert line.terminate() == 0
        assert not is_running(pages)


def test_pages_that_hang_are_killed_and_started_again(start_line: StartLine) -> None:
    line = start_line(**QUICK)
    assert asked(f"{line.web}/runs")[0] == HTTPStatus.OK
    first = line.pages_pid()
    with stopped(first):
        began_s = time.monotonic()
        wait_until(lambda: not is_running(first), what="the end of the pages that hang", timeout_s=LONG_S)
        assert time.monotonic() - began_s > SILENT_S / 2, "on a busy machine, the last sign of life is older"
        assert asked(f"{line.http}/readyz")[0] == HTTPStatus.OK
        assert asked(f"{line.web}/runs")[0] == HTTPStatus.OK, "waits for the new process"
    assert line.pages_pid() != first
    assert "blamespan_pages_restarts_total 1.0" in asked(f"{line.http}/metrics")[1]
    assert len(line.said("the pages' process does not answer: it is killed")) == 1
    assert line.terminate() == 0


def test_the_pages_of_a_suspended_service_continue_with_it(start_line: StartLine) -> None:
    line = start_line(**QUICK)
    assert asked(f"{line.web}/runs")[0] == HTTPStatus.OK
    pages = line.pages_pid()
    with stopped(pages), stopped(line.server.process.pid):
        time.sleep(SILENT_S + 2 * BEAT_S)
    os.kill(pages, signal.SIGSTOP)  # the service wakes up first
    time.sleep(2 * BEAT_S)
    os.kill(pages, signal.SIGCONT)
    time.sleep(2 * BEAT_S)
    assert line.pages_pid() == pages
    assert "blamespan_pages_restarts_total 0.0" in asked(f"{line.http}/metrics")[1]


def _verdicts(folder: Path) -> int:
    store = RunStore(folder / "data" / "store.sqlite")
    try:
        return len(store.starting_with("", None, 100))
    finally:
        store.close()


def test_pages_end_with_a_service_that_was_killed(start_line: StartLine) -> None:
    line = start_line(**QUICK)
    assert asked(f"{line.web}/runs")[0] == HTTPStatus.OK
    pages = line.pages_pid()
    line.server.process.kill()
    line.server.process.wait()
    wait_until(lambda: not is_running(pages), what="the end of the pages", timeout_s=LONG_S)


def test_a_service_killed_as_it_starts_leaves_its_port_to_the_next(start_line: StartLine) -> None:
    line = start_line(**QUICK)
    pages = line.pages_pid()  # imports modules for seconds
    line.server.process.kill()
    line.server.process.wait()
    again = start_line(**QUICK, web_listen=line.announced["web"])
    assert not is_running(pages)
    assert asked(f"{again.web}/runs")[0] == HTTPStatus.OK


def test_the_pages_pass_probes_on_and_say_so_if_nothing_answers(start_line: StartLine) -> None:
    line = start_line(**QUICK)

    def is_ready() -> bool:
        return asked(f"{line.web}/readyz")[0] == HTTPStatus.OK

    wait_until(is_ready, what="a service that is ready", timeout_s=LONG_S)
    for path in ("/healthz", "/readyz"):
        assert asked(line.web + path) == asked(line.http + path)
    assert "blamespan_open_traces" in asked(f"{line.web}/metrics")[1]
    with stopped(line.server.process.pid):
        status, text = asked(f"{line.web}/healthz")
        assert (status, text) == (503, "the process that takes spans does not answer\n")
        assert asked(f"{line.web}/runs")[0] == HTTPStatus.OK, "runs are read from the store"
    assert asked(f"{line.web}/healthz")[0] == HTTPStatus.OK


def test_probes_of_the_otlp_port_follow_the_rules_of_the_pages(start_line: StartLine) -> None:
    line = start_line(**QUICK, token="s3cret", metrics_token="operator")
    assert asked(f"{line.http}/healthz")[0] == HTTPStatus.OK
    assert asked(f"{line.http}/metrics")[0] == HTTPStatus.UNAUTHORIZED
    assert asked(f"{line.http}/metrics", {"Authorization": "Bearer s3cret"})[0] == HTTPStatus.UNAUTHORIZED
    known = {"Authorization": "Bearer operator"}
    assert asked(f"{line.http}/metrics", known)[0] == HTTPStatus.OK
    assert asked(f"{line.http}/metrics", known | {"X-Scope-OrgID": "a"})[0] == HTTPStatus.FORBIDDEN
    assert asked(f"{line.http}/runs", known)[0] == HTTPStatus.NOT_FOUND


def test_a_label_is_in_the_verdict_when_it_is_answered(start_line: StartLine) -> None:
    line, runs = start_line(**QUICK), DemoAgain()
    (run,) = send_runs(line, runs, 1)
    await_verdicts(line, [run])
    body = json.dumps({"failed": False}).encode()
    headers = {"Content-Type": "application/json"}
    began_s = time.monotonic()
    with urlopen(Request(f"{line.web}/api/runs/{run}/label", data=body, headers=headers), timeout=LONG_S):
        pass
    print(f"labelled in {time.monotonic() - began_s:.3f} s")
    found = line.run(run)
    assert found is not None
    assert (found["version"], found["status"]) == (2, "no_failure")
