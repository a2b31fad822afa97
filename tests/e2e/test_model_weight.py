"""A running service pools a model's answers with what earlier labels say of the model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp

from analyzer.analyses.analyst import RunAnalyst
from analyzer.analyses.models.scripted import ScriptedModel
from analyzer.methods.attribution import Attributor
from analyzer.service.all_in_one import running_service
from collector_processor.rebuild.encode import encode
from collector_processor.settings import load_settings
from semconv.model import Span, TraceId
from tests.e2e.line import environment
from tests.factories import chat, workflow

REPLY = json.dumps({"reason": "astray", "step": 0, "evidence": [{"step": 0, "quote": "scout speaks"}]})
PROTOBUF = {"Content-Type": "application/x-protobuf"}


def failed(trace_id: str) -> list[Span]:
    trace: dict[str, Any] = {"trace_id": TraceId(trace_id)}
    return [
        workflow(1, task="dinner?", error="it failed", **trace),
        chat(2, answer="scout speaks", agent_name="scout", **trace),
        chat(3, answer="cook speaks", agent_name="cook", **trace),
    ]


async def judged(folder: Path, trace_id: str) -> Mapping[str, Any]:
    """Start a service, send it a run, label its first step, and return the verdict before the label."""
    analyst = RunAnalyst(attributor=Attributor(model=ScriptedModel(replies=[REPLY])))
    settings = load_settings(environment(), data_dir=folder, model="scripted")
    async with running_service(settings, analyst) as running, aiohttp.ClientSession() as client:
        intake = f"http://{running.http.host}:{running.http.port}/v1/traces"
        label = f"http://{running.web.host}:{running.web.port}/api/runs/{trace_id}/label"
        (await client.post(intake, data=encode(failed(trace_id)), headers=PROTOBUF)).raise_for_status()
        async with asyncio.timeout(60):
            while not (found := await running.find(trace_id)) or found[0].is_provisional:  # noqa: ASYNC110 - in steps
                await asyncio.sleep(0.05)
        (await client.post(label, json={"step": 0})).raise_for_status()
        return found[0].fields


async def test_a_label_counts_for_the_next_run(tmp_path: Path) -> None:
    first, second = await judged(tmp_path, "a" * 32), await judged(tmp_path, "b" * 32)
    assert [verdict["method"] for verdict in (first, second)] == ["judge+signals"] * 2
    assert (first["pooled"]["right"], first["pooled"]["labelled"]) == (0, 0)
    assert (second["pooled"]["right"], second["pooled"]["labelled"]) == (1, 1)
