"""Single requests that held the whole service: ``python -m benchmarks.hostile.doors``.

Each attack goes to a service of its own while ``/healthz`` is asked again and again. Printed are the longest
answer of ``/healthz``, the CPU time of the serving process until the attack is answered, the growth of its
memory, and the answer. ``--tree CHECKOUT`` attacks the code of another checkout: a figure before a change;
``--most SECONDS`` kills a service that an attack holds for longer.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

from collector_processor.rebuild.encode import encode
from semconv.model import Span
from tests.e2e.header_flood import flood, indexed, literal
from tests.e2e.line import Line, starting
from tests.e2e.test_uploads_attacked import HOSTILE
from tests.e2e.traffic import play_demo, send
from tests.factories import TRACE, agent, chat, openinference, said, span, tool

_LONG_S: Final = 600.0
_MIB: Final = 1 << 20
_OK: Final = 200
_SETTLE_S: Final = 1.0
"""A service may refuse a request, and then be held by it."""
TOKEN: Final = "a-token-of-the-operator"
Attack = Callable[[Line], str]


def _headers(block: Callable[[], bytes]) -> Attack:
    def attack(line: Line) -> str:
        answer = flood(line.grpc.removeprefix("http://"), block())
        return "refused" if b"grpc-status" in answer else "no answer"

    return attack


def _upload(body: Callable[[], bytes]) -> Attack:
    def attack(line: Line) -> str:
        packed = gzip.compress(body(), 6)
        headers = {"Content-Type": "application/octet-stream", "x-blamespan-token": TOKEN}
        request = Request(f"{line.web}/api/analyse?wait_s=60", data=packed, headers=headers)
        try:
            with build_opener(ProxyHandler({})).open(request, timeout=_LONG_S) as answer:
                return f"{len(packed) >> 10} KiB: {answer.status}"
        except HTTPError as refusal:
            with refusal:
                said = refusal.read()[:60].decode(errors="replace").strip()
                return f"{len(packed) >> 10} KiB: {refusal.code} {said}"

    return attack


def _run_at_once(line: Line) -> str:
    """Send a failed run while the model's library is imported."""
    send(line, play_demo().body, headers={"x-blamespan-token": TOKEN})
    time.sleep(10)
    return "sent"


def _result(text: str) -> Attack:
    """Send a run whose tool returns this text."""
    return _run(lambda: [tool(4, "look", arguments="{}", result=text)])


def _answer(text: str) -> Attack:
    """Send a run whose answer ends in this text."""
    asked = [said("user", "And?")]
    looked = tool(4, "look", arguments="{}", result="4711.5 EUR")
    return _run(lambda: [looked, chat(80, heard=asked, answer=f"They cost 4711.5 EUR. {text}")])


def _model(answer: str) -> Attack:
    """Send a run with a model's call as OpenInference writes it, whose output is this one message."""
    texts = {"input.value": "q", "output.value": json.dumps({"messages": [answer]})}
    return _run(lambda: [openinference(4, "LLM", attributes=texts)])


def _named(name: str) -> list[Span]:
    """Return the spans of an unknown framework, some of them with this name."""
    asked, told = (
        json.dumps([{"role": "user", "content": "How many?"}]),
        {"role": "assistant", "content": "7"},
    )
    texts = {"input": asked, "output": json.dumps({"choices": [{"message": told}]}), "model": "m-1"}
    return [
        span(1, name="job", end=900),
        span(2, parent=1, name=name, end=400),
        span(3, parent=2, name="ask_model", attributes=texts),
        span(4, parent=2, name=name, attributes={"result": "9 W"}),
    ]


def _together(count: int) -> list[Span]:
    """Return a model's call that heard one message of this many results."""
    parts = [{"type": "tool_call_response", "id": "1", "response": "r"} for _ in range(count)]
    heard = [{"role": "assistant", "parts": [{"type": "tool_call", "name": "x", "id": "1"}, *parts]}]
    return [chat(50, heard=heard, answer="I see.")]


def _polled(times: int) -> list[Span]:
    """Return calls that list the same sixty entries again, and ask for all of them by their id."""
    rows = [{"id": f"T-{at}", **{f"f{column}": f"w{at}q{column}" for column in range(9)}} for at in range(60)]
    listed = [json.dumps([row | {"seen": at} for row in rows]) for at in range(times)]
    asked = json.dumps({f"a{at}": row["id"] for at, row in enumerate(rows)})
    return [tool(10 + at, "tickets", arguments=asked, result=text) for at, text in enumerate(listed)]


_USUAL: Final = (
    agent(1, "asker", parent=None, end=900),
    chat(2, heard=[said("user", "What do 17 tables cost?")], answer="I look."),
    chat(60, heard=[said("user", "And?")], answer="They cost 4711.5 EUR; 12 of 83 are gone."),
)


_POLLING: Final = (
    agent(1, "closer", parent=None, end=900),
    chat(2, heard=[said("user", " ".join(f"w{at % 60}q{at % 9}" for at in range(4_000)))], answer="I look."),
    chat(60, heard=[said("user", "And?")], answer="All of them are closed."),
)


def _run(spans: Callable[[], Sequence[Span]], usual: Sequence[Span] = _USUAL) -> Attack:
    """Send a run, and wait for its verdict."""

    def attack(line: Line) -> str:
        body = encode([*usual, *spans()])
        send(line, body, headers={"x-blamespan-token": TOKEN})
        began, sent = time.monotonic(), f"{len(gzip.compress(body))} bytes"
        while time.monotonic() - began < _LONG_S:
            status, told = line.ask(f"/api/runs/{TRACE}", headers={"x-blamespan-token": TOKEN})
            if status == _OK and not (found := json.loads(told))["provisional"]:
                return f"{sent}: {found['status']} after {time.monotonic() - began:.1f} s"
            time.sleep(0.2)
        return f"{sent}: no verdict"

    return attack


def _browser(request: str) -> list[Span]:
    """Return browser-use's run as Laminar writes it, with this request in its prompt."""
    asked = json.dumps([{"role": "user", "content": request}])
    texts = {"lmnr.span.type": "LLM", "gen_ai.input.messages": asked}
    return [
        span(3, parent=1, name="agent.run", scope="lmnr", attributes={"lmnr.span.type": "DEFAULT"}),
        span(4, parent=3, name="agent.step", scope="lmnr", attributes={"lmnr.span.type": "DEFAULT"}),
        span(5, parent=4, name="openai.chat", scope="lmnr", attributes=texts),
    ]


ATTACKS: Final[Mapping[str, Attack]] = {
    "a result of empty lines": _result("page" + "\n" * 19_900 + "1000 EUR"),
    "a result of dotted letters": _result("a." * 9_700 + " 1000 EUR"),
    "a result of one word": _result("a" * 19_900 + " 1000 EUR"),
    "a message in Python's words": _model("content='x' name='a' " + "tool_calls=[" * 5_000),
    "a span's name of 30 KB": _run(lambda: _named("agent x" + " step" * 6_000 + "!"), ()),
    "12,000 results of one message": _run(lambda: _together(12_000)),
    "an answer of 600 capitals": _answer("A" * 600),
    "a list of 60 polled 40 times": _run(lambda: _polled(40), _POLLING),
    "a request without an end": _run(lambda: _browser("<user_request>" + " " * 20_000)),
    "1 MB of indexed headers": _headers(lambda: indexed(1_000_000)),
    "15 MB of indexed headers": _headers(lambda: indexed(15_000_000)),
    "15 MB of written headers": _headers(lambda: literal(15_000_000)),
    "3 MB of tenant headers": _headers(lambda: literal(3_000_000, "x-scope-orgid")),
    **{f"upload: {name}": _upload(body) for name, body in HOSTILE.items()},
    "a run while a model is imported": _run_at_once,
}


def measure(name: str, tree: Path, most_s: float) -> str:
    """Attack a service of its own, and return a row of the table."""
    settings = {"token": TOKEN, "PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1", "OPENAI_API_KEY": "none"}
    settings |= {"model": "openai/none"} if "model" in name else {"method": "signals"}
    told: list[str] = []
    with tempfile.TemporaryDirectory(prefix="blamespan-doors-") as folder, starting(Path(folder)) as start:
        line = start(**settings)
        cpu_s, memory = line.cpu_s(), line.peak()

        def spent() -> tuple[float, int]:
            return line.cpu_s() - cpu_s, line.peak() - memory

        attacking = threading.Thread(target=lambda: told.append(ATTACKS[name](line)), daemon=True)
        with line.probed() as waits:
            attacking.start()
            attacking.join(most_s)
            time.sleep(_SETTLE_S)
            if not told:
                held = spent()
                line.server.process.kill()
        spent_s, grown = spent() if told else held
    return f"{name} | {max(waits):.2f} | {spent_s:.2f} | {grown // _MIB} | {told[0] if told else 'killed'}"


def main() -> int:
    """Print a row for each attack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tree", type=Path, default=Path(__file__).parents[2], help="checkout to attack")
    parser.add_argument("--most", type=float, default=_LONG_S, help="seconds for an attack")
    parser.add_argument("--only", action="append", choices=list(ATTACKS))
    given = parser.parse_args()
    print("attack | longest /healthz, s | CPU, s | memory, MiB | answer")
    for name in given.only or ATTACKS:
        print(measure(name, given.tree.resolve(), given.most), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
