"""The scripted model and the ship register as one HTTP server, which logs what really happened.

OpenAI's chat completions and responses, whole or streamed, ``/v1/models``, and
``/tools/<name>``, where the scenario's tool asks. The log of both is what a
recording's steps are held against: it knows nothing of spans.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from tests.frameworks.asked import Asked, Call, read_chat, read_responses
from tests.frameworks.kit.story import MODEL, SEATS, TOOL, VESSEL
from tests.frameworks.said import chat, chat_stream, response, response_stream
from tests.frameworks.script import UNAVAILABLE, Broken, Reply, reply, speaker

HOST: Final = "127.0.0.1"
PARALLEL_DELAY_S: Final = 0.15
"""In ``parallel`` everything takes so long that what runs side by side overlaps for certain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One thing that happened: a model call or a tool execution."""

    kind: str
    """``llm`` or ``tool``."""
    agent: str
    began: int
    ended: int
    """Numbers of the run's own order; what overlaps ran side by side."""
    ok: bool = True
    calls: tuple[str, ...] = ()
    """Tools that the model asked for."""
    target: str | None = None
    """The agent that one of these reaches."""
    tool: str = ""
    text: str = ""
    """What the model or the tool said."""


@dataclass(slots=True, kw_only=True)
class Office:
    """The state of one run."""

    variant: str
    url: str = ""
    """The base URL for a client of OpenAI, without a slash at the end."""
    log: list[Happening] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    """Bodies as they came, for whoever writes a new run."""
    _count: int = 0
    _failures: int = 0
    _pending: list[tuple[Call, str]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, asked: Asked) -> tuple[Reply | None, int]:
        """Return what the model says, or ``None`` where it breaks, and the call's number."""
        number = self._tick()
        self._linger()
        who = speaker(asked)
        try:
            said = reply(asked, self.variant)
        except Broken:
            self._keep(Happening(kind="llm", agent=who, began=number, ended=self._tick(), ok=False))
            return None, number
        calls = tuple(replace(call, id=f"call_{number:04}_{index}") for index, call in enumerate(said.calls))
        with self._lock:
            self._pending += [(call, who) for call in calls]
        self._keep(
            Happening(
                kind="llm",
                agent=who,
                began=number,
                ended=self._tick(),
                calls=tuple(call.name for call in calls),
                target=said.target,
                text=said.text,
            )
        )
        return replace(said, calls=calls), number

    def look_up(self, name: str) -> str | None:
        """Return what the register says; ``None`` where it does not answer."""
        began = self._tick()
        self._linger()
        with self._lock:
            fails = name == VESSEL and (self._failures == 0 or self.variant == "max_turns")
            self._failures += fails
        seats = SEATS.get(name)
        text = f"The {name} has {seats} seats." if seats else f"There is no vessel {name}."
        happened = Happening(
            kind="tool",
            agent=self._caller(name),
            began=began,
            ended=self._tick(),
            ok=not fails,
            tool=TOOL,
            text=UNAVAILABLE if fails else text,
        )
        self._keep(happened)
        return None if fails else text

    def _caller(self, argument: str) -> str:
        with self._lock:
            for call, who in self._pending:
                if call.name == TOOL and argument in call.arguments:
                    self._pending.remove((call, who))
                    return who
        # A model that writes code, say, in place of tool calls: whoever spoke last.
        return next((each.agent for each in reversed(self.log) if each.kind == "llm"), "")

    def _keep(self, happened: Happening) -> None:
        with self._lock:
            self.log.append(happened)

    def _linger(self) -> None:
        if self.variant == "parallel":
            time.sleep(PARALLEL_DELAY_S)

    def _tick(self) -> int:
        with self._lock:
            self._count += 1
            return self._count


@contextmanager
def serving(variant: str) -> Iterator[Office]:
    """Run a server on a free port of loopback until the block ends."""
    office = Office(variant=variant)

    class Handler(_Handler):
        ours = office

    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        office.url = f"http://{HOST}:{server.server_port}/v1"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield office
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    ours: Office

    def do_GET(self) -> None:
        if self.path.rstrip("/") == "/v1/models":
            model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "tests"}
            self._json(200, {"object": "list", "data": [model]})
        else:
            self._json(404, {"error": {"message": f"no {self.path}", "type": "not_found"}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path = self.path.rstrip("/")
        if path == f"/tools/{TOOL}":
            found = self.ours.look_up(body["name"])
            self._send(503 if found is None else 200, (found or UNAVAILABLE).encode(), "text/plain")
        elif path == "/v1/chat/completions":
            self._model(body, read_chat(body), chat, chat_stream)
        elif path == "/v1/responses":
            self._model(body, read_responses(body), response, response_stream)
        else:
            self._json(404, {"error": {"message": f"no {self.path}", "type": "not_found"}})

    def _model(
        self,
        body: dict[str, Any],
        asked: Asked,
        whole: Callable[[Asked, Reply, int], dict[str, Any]],
        stream: Callable[[Asked, Reply, int], Iterable[bytes]],
    ) -> None:
        self.ours.requests.append(body)
        said, number = self.ours.answer(asked)
        if said is None:
            error = {"message": "the scripted model is out of order", "type": "server_error"}
            self._json(500, {"error": error})
        elif asked.stream:
            self._send(200, b"".join(stream(asked, said, number)), "text/event-stream")
        else:
            self._json(200, whole(asked, said, number))

    def _json(self, status: int, document: dict[str, Any]) -> None:
        self._send(status, json.dumps(document).encode(), "application/json")

    def _send(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        if status >= 400:
            self.send_header("x-should-retry", "false")  # OpenAI's own client asks again otherwise
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""
