"""A model's replies attack the service: a key in every field of every method's reply, and absurd usage.

The run itself does not hold the key, so it may stand in no file, page, carrier, evaluation log or log line.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import pytest

from analyzer.methods.registry import METHODS
from tests.e2e.backend import Backend, grpc_backend
from tests.e2e.line import Line, starting
from tests.e2e.model_server import Scripted, serve
from tests.e2e.test_line_model import in_background, settings_for
from tests.e2e.traffic import DEMO_SPANS, play_demo, send

KEY: Final = "sk-ant-api03-q7Rt2LmXv9ZkPw4Yb8NcJd6H"
STEP: Final = 9
QUOTE: Final = "9,266.14"
SAID: Final = {
    "reason": f"it printed {KEY}",
    "why": f"it printed {KEY}",
    "step": STEP,
    "agent": f"calculator {KEY}",
    "mode": KEY,
    "fix": f"revoke {KEY}",
    "answer": "yes",
    "quote": QUOTE,
    "holds": True,
    "confidence": 0.9,
    "evidence": [
        {"step": STEP, "quote": QUOTE},
        {"step": STEP, "quote": f"{QUOTE} {KEY}"},
        {"step": 1, "quote": KEY},
    ],
    "ranking": [
        {"step": STEP, "probability": 0.9, "agent": KEY},
        {"step": 3, "probability": 0.1, "note": KEY},
    ],
    KEY: KEY,
}
REPLY: Final = json.dumps({**SAID, "answers": [{**SAID, "step": step} for step in range(20)]})
FREE: Final = (
    f"\n1. Yes.\n2. Agent Name: calculator {KEY}\nStep Number: {STEP}\nReason: {KEY}\nupper half {KEY}"
)
ASKING: Final = [name for name, entry in METHODS.items() if entry.needs_model]
PAGES: Final = (
    *("/runs/{}", "/api/runs/{}", "/runs/{}/report.html", "/runs/{}/run.json", "/api/runs/{}/steps"),
    *("/api/runs/{}/otlp", "/runs/{}/steps/9", "/runs", "/api/runs", "/issues", "/api/issues", "/queue"),
    *("/workflows", "/api/workflows", "/api/queue", "/health", "/metrics", "/healthz"),
)


def ask(line: Line, path: str, body: object = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    asked = Request(line.web + path, data, {"Content-Type": "application/json"})
    try:
        with build_opener(ProxyHandler({})).open(asked, timeout=300) as answer:
            return str(answer.read().decode())
    except HTTPError as error:
        with error:
            return str(error.read().decode())


def holding(line: Line, backend: Backend, folder: Path, run_id: str) -> list[str]:
    """Return the pages, requests and files that hold the key."""
    found = [path for path in PAGES if KEY in ask(line, path.format(run_id))]
    found += [f"sent {one.signal}" for one in backend.requests if KEY.encode() in one.body]
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any(path.suffix == ".sqlite" for path in files)
    return found + [path.name for path in files if KEY.encode() in path.read_bytes()]


REPLIES: Final = {
    "every field": REPLY,
    "every field, and free text": REPLY + FREE,
    "unreadable": f'{{"{KEY}": {KEY}',
}


@pytest.mark.parametrize("text", REPLIES.values(), ids=REPLIES)
def test_a_key_in_a_reply_is_shown_kept_and_sent_nowhere(tmp_path: Path, text: str) -> None:
    model = in_background(serve(Scripted(text=text)))
    with grpc_backend() as backend, model as server, starting(tmp_path) as start:
        line = start(root_grace=100, method="judge", forward_endpoint=backend.url, **settings_for(server))
        played = play_demo()
        send(line, played.body)
        line.verdict(played.trace_id)
        backend.await_spans(played.trace_id, DEMO_SPANS)
        path = f"/api/runs/{played.trace_id}/opinions"
        answers = {method: ask(line, path, {"method": method}) for method in ASKING}
        print(
            {
                method: (json.loads(said).get("status"), json.loads(said).get("method"), said[:300])
                for method, said in answers.items()
            }
        )
        assert len(server.received) > len(ASKING)
        assert [method for method, said in answers.items() if KEY in said] == []
        assert holding(line, backend, tmp_path, played.trace_id) == []
