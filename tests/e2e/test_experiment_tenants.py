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
    FORGED,
    REPORTING,
    RUN,
    attribute,
    command,
    model,
    ran_experiment,
    recorded,
)

HEADER: Final = "x-scope-orgid"
AS_RED: Final = REPORTING.replace(
    'headers = {"Content-Type": "application/json"}',
    'open(os.environ["IDS"], "a").write(told["blamespan.trial"] + "\\n")\n'
    'headers = {"Content-Type": "application/json", "x-scope-orgid": "red"}',
)
"""The workflow sends its trials' spans as the red tenant, and notes their ids."""


def post(line: Line, body: bytes, tenant: str) -> None:
    headers = {"Content-Type": "application/json", HEADER: tenant}
    with urlopen(Request(f"{line.http}/v1/traces", body, headers)) as answer:
        assert answer.status == 200


def verdict(line: Line, tenant: str, *, run_id: str = RUN, version: int = 1) -> dict[str, Any]:
    def decided() -> dict[str, Any] | None:
        status, text = line.ask(f"/api/runs/{run_id}", headers={HEADER: tenant})
        found: dict[str, Any] = json.loads(text) if status == 200 else {}
        return found if found and not found["provisional"] and found["version"] >= version else None

    return wait_until(decided, what=f"verdict {version} on {run_id} of {tenant}")


async def experiment(folder: Path, line: Line, *options: str) -> tuple[int, str, str]:
    async with model() as url:
        needed = ["--expect", "840", "--upstream", url, "--max-calls", "300", "--step", "0"]
        return await ran_experiment(
            folder,
            RUN,
            *needed,
            *options,
            *command(folder, more=AS_RED),
            data_dir=folder / "data",
            RECORDED=str(folder / "trace.json"),
            SERVICE=line.http,
            IDS=str(folder / "ids"),
        )


async def of_both(folder: Path, line: Line) -> dict[str, dict[str, Any]]:
    """Send a run of the same id for two tenants; return its verdicts."""
    place = recorded(folder)
    for tenant in ("red", "blue"):
        await asyncio.to_thread(post, line, place.read_bytes(), tenant)
    return {name: await asyncio.to_thread(verdict, line, name) for name in ("red", "blue")}


@pytest.mark.parametrize("options", [(), ("--tenant", f"{HEADER}=green")], ids=["no tenant", "a third one"])
@pytest.mark.timeout(900)
async def test_a_run_id_of_two_tenants_needs_the_tenant(
    tmp_path: Path, start_line: StartLine, options: tuple[str, ...]
) -> None:
    line = start_line()
    await of_both(tmp_path, line)
    code, _, err = await experiment(tmp_path, line, *options)
    assert (code, RUN in err, (tmp_path / "ids").exists()) == (2, True, False), err


@pytest.mark.timeout(900)
async def test_an_experiment_on_a_tenants_run_leaves_the_other_tenants_alone(
    tmp_path: Path, start_line: StartLine
) -> None:
    line = start_line()
    before = await of_both(tmp_path, line)
    code, out, err = await experiment(tmp_path, line, "--tenant", f"{HEADER}=red", "--parallel", "4")
    assert code == 0, (out, err)
    version = before["red"]["version"] + 1
    now = await asyncio.to_thread(verdict, line, "red", version=version)
    assert (now["method"], now["proof"]["decision"]) == ("experiment", "proved")
    untouched = await asyncio.to_thread(verdict, line, "blue")
    assert [untouched[key] for key in ("version", "method")] == [
        before["blue"][key] for key in ("version", "method")
    ]
    forged = json.loads((tmp_path / "trace.json").read_text().replace(RUN, FORGED))
    issued = (tmp_path / "ids").read_text().split()[0]
    forged["resourceSpans"][0]["resource"] = {"attributes": [attribute(TRIAL, issued)]}
    await asyncio.to_thread(post, line, json.dumps(forged).encode(), "blue")
    await asyncio.to_thread(verdict, line, "blue", run_id=FORGED)
    assert sorted(run["run_id"] for run in line.runs()) == [RUN, RUN, FORGED]
