"""The scripted model and the ship register as one HTTP server with a log of the true events.

It serves OpenAI's chat completions and responses and Anthropic's messages, whole or streamed, ``/v1/models``,
``/tools/<name>`` for the scenario's tool, and ``/checks/<name>`` for its guardrail. A recording's steps are
compared with this log, which knows nothing of spans.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, Final

from tests.e2e.backend import body_of
from tests.frameworks.kit.story import CHECK, MODEL, SEATS, TOOL, VESSEL
from tests.frameworks.messages_api import count_tokens, message, message_stream, read_messages
from tests.frameworks.model_request import Asked, Call, read_chat, read_responses
from tests.frameworks.openai_reply import chat, chat_stream, response, response_stream
from tests.frameworks.script import UNAVAILABLE, WRONG_ANSWER, Broken, Reply, is_look_up, reply, speaker

HOST: Final = "127.0.0.1"
NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
FAILURES: Final[Mapping[str, float]] = {"max_turns": math.inf, "given_up": math.inf, "misread": 0}
"""Look-ups of the first vessel that fail, by variant; in all others one does."""
REGISTERED: Final[Mapping[str, Mapping[str, int]]] = {"misread": {VESSEL: 850}}
"""Seats by variant, where they are others: a figure of two digits says little."""
REPORTED: Final = f"Error: {UNAVAILABLE}. Try again."
"""What the tool returns in ``reported``, as many tools do, in place of raising."""
PARALLEL_DELAY_S: Final = 0.15
"""Seconds that everything takes in ``parallel``, so that parallel events certainly overlap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One event: a model call, a tool execution or a check."""

    kind: str
    """``llm``, ``tool`` or ``other`` (a guardrail's check)."""
    agent: str
    began: int
    ended: int
    """Sequence numbers within the run; events that overlap were parallel."""
    ok: bool = True
    calls: tuple[str, ...] = ()
    """Tools that the model requested."""
    target: str | None = None
    """The agent that one of these calls reaches."""
    tool: str = ""
    text: str = ""
    """The output of the model or the tool."""


@dataclass(slots=True, kw_only=True)
class Office:
    """The state of one run."""

    variant: str
    url: str = ""
    """The base URL for OpenAI's client, without a final slash; for Anthropic's, without ``/v1``."""
    log: list[Happening] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    """Request bodies unchanged, for authors of new runs."""
    _count: int = 0
    _failures: int = 0
    _pending: list[tuple[Call, str]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, asked: Asked) -> tuple[Reply | None, int]:
        """Return the model's reply, or ``None`` if it fails, and the call's number."""
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
        """Return the register's answer; ``None`` if it does not answer."""
        began = self._tick()
        self._linger()
        with self._lock:
            fails = name == VESSEL and (self._failures < FAILURES.get(self.variant, 1))
            self._failures += fails
        seats = REGISTERED.get(self.variant, SEATS).get(name)
        text = f"The {name} has {seats} seats." if seats else f"There is no vessel {name}."
        call, agent = self._asked_by(name)
        happened = Happening(
            kind="tool",
            agent=agent,
            began=began,
            ended=self._tick(),
            ok=not fails,
            tool=call,
            text=UNAVAILABLE if fails else text,
        )
        self._keep(happened)
        if fails and self.variant == "reported":
            return REPORTED
        return None if fails else text

    def check(self, name: str, agent: str, text: str) -> bool:
        """Return whether a text passes the guardrail; the wrong amount does not."""
        began = self._tick()
        passes = WRONG_ANSWER not in text
        self._keep(
            Happening(kind="other", agent=agent, began=began, ended=self._tick(), ok=passes, tool=name)
        )
        return passes

    def _asked_by(self, argument: str) -> tuple[str, str]:
        """Return the tool's name as the model called it, and the calling agent."""
        with self._lock:
            for call, who in self._pending:
                if is_look_up(call.name) and argument in call.arguments:
                    self._pending.remove((call, who))
                    return call.name, who
        # A model that writes code, say, in place of tool calls: whoever spoke last.
        return TOOL, next((each.agent for each in reversed(self.log) if each.kind == "llm"), "")

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One model API: how its requests are read and its replies written."""

    read: Callable[[Mapping[str, Any]], Asked]
    whole: Callable[[Asked, Reply, int], dict[str, Any]]
    stream: Callable[[Asked, Reply, int], Iterable[bytes]]


APIS: Final[Mapping[str, Api]] = {
    "/v1/chat/completions": Api(read=read_chat, whole=chat, stream=chat_stream),
    "/v1/responses": Api(read=read_responses, whole=response, stream=response_stream),
    "/v1/messages": Api(read=read_messages, whole=message, stream=message_stream),
}
"""APIs by path."""


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
        body = json.loads(body_of(self))
        path = self.path.partition("?")[0].rstrip("/")
        if path == f"/tools/{TOOL}":
            found = self.ours.look_up(body["name"])
            self._send(503 if found is None else 200, (found or UNAVAILABLE).encode(), "text/plain")
        elif path == f"/checks/{CHECK}":
            passes = self.ours.check(CHECK, body["agent"], body["text"])
            self._send(200, b"pass" if passes else b"stop", "text/plain")
        elif api := APIS.get(path):
            self._model(body, api)
        elif path == "/v1/messages/count_tokens":
            self._json(200, count_tokens(read_messages(body)))
        else:
            self._json(404, {"error": {"message": f"no {self.path}", "type": "not_found"}})

    def _model(self, body: dict[str, Any], api: Api) -> None:
        self.ours.requests.append(body)
        asked = api.read(body)
        said, number = self.ours.answer(asked)
        named = {"request-id": f"req_{number:04}"}  # Anthropic's way; its clients log it
        if said is None:
            error = {"message": "the scripted model is out of order", "type": "server_error"}
            # OpenAI's clients look for the error alone, Anthropic's for its type beside it.
            self._json(500, {"type": "error", "error": error}, named)
        elif asked.stream:
            self._send(200, b"".join(api.stream(asked, said, number)), "text/event-stream", named)
        else:
            self._json(200, api.whole(asked, said, number), named)

    def _json(self, status: int, document: dict[str, Any], headers: Mapping[str, str] = NO_HEADERS) -> None:
        self._send(status, json.dumps(document).encode(), "application/json", headers)

    def _send(
        self, status: int, body: bytes, content_type: str, headers: Mapping[str, str] = NO_HEADERS
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        if status >= 400:
            self.send_header("x-should-retry", "false")  # both makers' clients ask again otherwise
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""
