"""The story through LiteLLM's proxy: a program without spans sends session and agents along."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from openai import OpenAI
from story import (
    CONCIERGE,
    INSTRUCTIONS,
    MODEL,
    PURSER,
    QUESTION,
    REGISTRAR,
    TOOLS,
    RegisterUnavailable,
    look_up_vessel,
)

PATIENCE_S = 400
SESSION = os.urandom(8).hex()
WRITING_S = 5
"""The callback writes on a thread of its own, which the proxy does not wait for when it ends."""


@contextmanager
def proxy() -> Iterator[str]:
    """Run the proxy, which has sent all its spans when the block ends; yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    base = os.environ["OPENAI_BASE_URL"]
    model = {"model": f"openai/{MODEL}", "api_base": base, "api_key": "dummy"}
    config = {
        "model_list": [{"model_name": MODEL, "litellm_params": model}],
        "litellm_settings": {"callbacks": ["otel"], "num_retries": 0},
        "router_settings": {"num_retries": 0, "disable_cooldowns": True},
    }
    path = Path("config.yaml")
    path.write_text(json.dumps(config))  # JSON is YAML
    command = [sys.executable, "-m", "litellm.proxy.proxy_cli", "--config", str(path), "--port", str(port)]
    running = subprocess.Popen([*command, "--host", "127.0.0.1"], stdout=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_for(f"{address}/health/liveliness")
        yield address
        time.sleep(WRITING_S)
    finally:
        running.terminate()
        running.wait(timeout=PATIENCE_S)


def _wait_for(url: str) -> None:
    late = time.monotonic() + PATIENCE_S
    while time.monotonic() < late:
        try:
            with urlopen(url, timeout=5):
                return
        except URLError:
            time.sleep(0.2)
    raise TimeoutError(url)


def ask(client: OpenAI, who: str, question: str, **more: Any) -> str:
    messages: list[Any] = [
        {"role": "system", "content": INSTRUCTIONS[who]},
        {"role": "user", "content": question},
    ]
    said_along = {"metadata": {"agent": who, "session_id": SESSION}}
    while True:
        reply = client.chat.completions.create(model=MODEL, messages=messages, extra_body=said_along, **more)
        said = reply.choices[0].message
        if not said.tool_calls:
            return str(said.content)
        messages += [said.model_dump(exclude_none=True), *map(result_of, said.tool_calls)]


def result_of(call: Any) -> dict[str, str]:
    try:
        found = look_up_vessel(**json.loads(call.function.arguments))
    except RegisterUnavailable as error:
        found = f"Error: {error}"
    return {"role": "tool", "tool_call_id": call.id, "content": found}


def answer() -> str:
    """Run the variant of the environment and return the purser's answer."""
    with proxy() as address:
        client = OpenAI(base_url=f"{address}/v1", api_key="dummy", max_retries=0)
        ask(client, CONCIERGE, QUESTION)
        found = ask(client, REGISTRAR, QUESTION, tools=TOOLS)
        return ask(client, PURSER, f"{QUESTION} {found}")
