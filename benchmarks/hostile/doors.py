"""Single requests that held the whole service: ``python -m benchmarks.hostile.doors``.

Each attack goes to a service of its own while ``/healthz`` is asked again and again. Printed are the longest
answer of ``/healthz``, the CPU time of the serving process until the attack is answered, the growth of its
memory, and the answer. ``--tree CHECKOUT`` attacks the code of another checkout: a figure before a change.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

from collector_processor.rebuild.encode import encode
from tests.e2e.header_flood import flood, indexed, literal
from tests.e2e.line import Line, starting
from tests.e2e.test_uploads_attacked import HOSTILE
from tests.e2e.traffic import play_demo, send
from tests.factories import agent, chat, said, tool

_LONG_S: Final = 600.0
_MIB: Final = 1 << 20
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


def _trace(result: str) -> Attack:
    """Send one small run whose tool returns ``result``; such runs are read in the serving process."""

    def attack(line: Line) -> str:
        body = encode(
            [
                agent(1, "asker", parent=None, end=90),
                chat(2, heard=[said("user", "What do 17 tables cost?")], answer="I look."),
                tool(4, "look", arguments="{}", result=result),
                chat(6, heard=[said("user", "And?")], answer="They cost 4711.5 EUR; 12 of 83 are gone."),
            ]
        )
        send(line, body, headers={"x-blamespan-token": TOKEN})
        time.sleep(20)
        return f"{len(gzip.compress(body))} bytes: sent"

    return attack


ATTACKS: Final[Mapping[str, Attack]] = {
    "a result of empty lines": _trace("page" + "\n" * 19_900 + "1000 EUR"),
    "a result of dotted letters": _trace("a." * 9_700 + " 1000 EUR"),
    "1 MB of indexed headers": _headers(lambda: indexed(1_000_000)),
    "15 MB of indexed headers": _headers(lambda: indexed(15_000_000)),
    "15 MB of written headers": _headers(lambda: literal(15_000_000)),
    **{f"upload: {name}": _upload(body) for name, body in HOSTILE.items()},
    "a run while a model is imported": _run_at_once,
}


def measure(name: str, tree: Path) -> str:
    """Attack a service of its own, and return a row of the table."""
    settings = {"token": TOKEN, "PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1", "OPENAI_API_KEY": "none"}
    settings |= {"model": "openai/none"} if "model" in name else {"method": "signals"}
    with tempfile.TemporaryDirectory(prefix="blamespan-doors-") as folder, starting(Path(folder)) as start:
        line = start(**settings)
        cpu_s, memory = line.cpu_s(), line.peak()
        with line.probed() as waits:
            said = ATTACKS[name](line)
        spent_s, grown = line.cpu_s() - cpu_s, line.peak() - memory
    return f"{name} | {max(waits):.2f} | {spent_s:.2f} | {grown // _MIB} | {said}"


def main() -> int:
    """Print a row for each attack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tree", type=Path, default=Path(__file__).parents[2], help="checkout to attack")
    parser.add_argument("--only", action="append", choices=list(ATTACKS))
    given = parser.parse_args()
    print("attack | longest /healthz, s | CPU, s | memory, MiB | answer")
    for name in given.only or ATTACKS:
        print(measure(name, given.tree.resolve()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
