"""The providers' own SDKs against a tape: each API, with and without streaming."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path

from analyzer.experiment.replay.gateway_options import GatewayOptions
from analyzer.experiment.replay.gateway_server import serving
from analyzer.experiment.replay.tape import Answer
from tests.frameworks.catalogue import catalogue
from tests.frameworks.install import install
from tests.tapes import call, tape

WAYS = ("chat", "chat streamed", "responses", "responses streamed", "messages", "messages streamed")
ANSWER = "Odile: 40 seats, größer ✓\n" * 60
PROGRAM = Path(__file__).with_name("sdk_program.py")
HAS_BOTH = "agno_openlit"
"""A framework whose environment has OpenAI's and Anthropic's SDKs."""


def sdks() -> int:
    """Send every kind of request; return 1 if an answer differs from the recording."""
    python = install(catalogue()[HAS_BOTH])
    heard = asyncio.run(_heard(python))
    for way in WAYS:
        print(f"{way:20} {'as recorded' if heard.get(way) == ANSWER else 'DIFFERS'}")
    return int(any(heard.get(way) != ANSWER for way in WAYS))


async def _heard(python: Path) -> dict[str, str]:
    played = tape(call(0, "How many seats?", answer=Answer(text=ANSWER)))
    async with serving(GatewayOptions()) as gateway:
        places = {way: gateway.open(played, lifetime_s=600).base_url for way in WAYS}
        environ = {
            **os.environ,
            "QUESTION": "How many seats?",
            "SYSTEM": "Be brief.",
            "PLACES": json.dumps(places),
        }
        done = await asyncio.to_thread(
            subprocess.run,
            [str(python), str(PROGRAM)],
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        print(done.stderr[-2000:])
    return dict(json.loads(line) for line in done.stdout.splitlines())
