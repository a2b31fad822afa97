"""``blamespan experiment --tenant``: one of two tenants with a run of the same id."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final
from urllib.request import Request, urlopen

import pytest

from semconv.attributes import TRIAL
from tests.backends.supervise import wait_until
from tests.e2e.line import Line, StartLine
from tests.e2e.test_experiment import (
    BIN,
    FORGED,
    REPORTING,
    RUN,
    attribute,
    command,
    model,
    recorded,
    started,
)
from tests.e2e.test_kept import ask

HEADER: Final = "x-scope-orgid"
AS_RED: Final = REPORTING.replace(
    'headers = {"Content-Type": "application/json"}',
    'open(os.environ["IDS"], "a").write(told["blamespan.trial"] + "\\n")\n'
    'headers = {"Content-Type": "application/json", "x-scope-orgid": "red"}',
)
"""The workflow sends its trials' spans as the red tenant, and notes their ids."""

pytestmark = pytest.mark.skipif(not (BIN / "blamespan").exists(), reason="the command is not installed")


def post(line: Line, body: bytes, tenant: str) -> None:
    headers = {"Content-Type": "application/json", HEADER: tenant}
    with urlopen(Request(f"{line.http}/v1/traces", body, headers)) as answer:
        assert answer.status == 200


def verdict(line: Line, tenant: str, *, run_id: str = RUN, version: int = 1) -> dict[str, Any]:
    def decided() -> dict[str, Any] | None:
        status, text = ask(line, f"/api/runs/{run_id}", headers={HEADER: tenant})
        found: dict[str, Any] = json.loads(text) if status == 200 else {}
        return found if found and not found["provisional"] and found["version"] >= version else None

    return wait_until(decided, what=f"verdict {version} on {run_id} of {tenant}")


async def test_an_experiment_on_a_tenants_run_leaves_the_other_tenants_alone(
    tmp_path: Path, start_line: StartLine
) -> None:
    line, place, ids = start_line(), recorded(tmp_path), tmp_path / "ids"
    for tenant in ("red", "blue"):
        await asyncio.to_thread(post, line, place.read_bytes(), tenant)
    before = {name: await asyncio.to_thread(verdict, line, name) for name in ("red", "blue")}

    async def experiment(*options: str) -> tuple[int | None, str, str]:
        async with model() as url:
            needed = ["--expect", "840", "--upstream", url, "--max-calls", "300", "--step", "0"]
            process = await started(
                tmp_path,
                RUN,
                *needed,
                *options,
                *command(tmp_path, more=AS_RED),
                data_dir=tmp_path / "data",
                RECORDED=str(place),
                SERVICE=line.http,
                IDS=str(ids),
            )
            out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()

    for options in ((), ("--tenant", f"{HEADER}=green")):
        code, _, err = await experiment(*options)
        assert (code, RUN in err, ids.exists()) == (2, True, False), err

    code, out, err = await experiment("--tenant", f"{HEADER}=red", "--parallel", "4")
    assert code == 0, (out, err)
    version = before["red"]["version"] + 1
    now = await asyncio.to_thread(verdict, line, "red", version=version)
    assert (now["method"], now["proof"]["decision"]) == ("experiment", "proved")
    untouched = await asyncio.to_thread(verdict, line, "blue")
    assert [untouched[key] for key in ("version", "method")] == [
        before["blue"][key] for key in ("version", "method")
    ]

    forged = json.loads(place.read_text().replace(RUN, FORGED))
    issued = ids.read_text().split()[0]
    forged["resourceSpans"][0]["resource"] = {"attributes": [attribute(TRIAL, issued)]}
    await asyncio.to_thread(post, line, json.dumps(forged).encode(), "blue")
    await asyncio.to_thread(verdict, line, "blue", run_id=FORGED)
    assert sorted(run["run_id"] for run in line.runs()) == [RUN, RUN, FORGED]
