"""Scripted model of the programs in examples/programs: a sales report of three agents.

The researcher looks the monthly sales up, the analyst adds them up, the writer answers. The story says how it
goes: ``sound`` is right, in ``sum`` the analyst adds up wrongly, in ``misread`` the researcher swaps two
digits of a figure, and with a region that the tool does not know all three say so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

from tests.frameworks.model_request import Asked, Call, read_chat, read_responses
from tests.frameworks.openai_reply import chat, chat_stream, response, response_stream
from tests.frameworks.script import Reply
from tests.loopback import serve_http

STORIES: Final = ("sound", "sum", "misread")
_APIS: Final = {
    "/v1/chat/completions": (read_chat, chat, chat_stream),
    "/v1/responses": (read_responses, response, response_stream),
}
_ROLE: Final = re.compile(r"You are the (\w+)")
_UNKNOWN: Final = "there are no figures for this region"


def said(asked: Asked, story: str, number: int) -> Reply:
    """Return the model's reply to a request, the ``number``-th."""
    role = next(found[1] for each in asked.messages if (found := _ROLE.search(each.text)))
    if role == "researcher" and not asked.results:
        (region,) = re.findall(r"in the (\w+) in the", asked.conversation)
        return Reply(calls=(Call(name="sales", arguments=json.dumps({"region": region}), id=f"c{number}"),))
    if "no figures" in asked.conversation:
        return Reply(text=_refusals()[role])
    march = 890 if story == "misread" else 980
    total = 1200 + 1450 + march - 100 * (story == "sum")
    return Reply(
        text={
            "researcher": f"January: 1,200 units, February: 1,450 units, March: {march} units.",
            "analyst": f"1,200 + 1,450 + {march} = {total:,}. We sold {total:,} units.",
            "writer": f"In the first quarter we sold {total:,} units.",
        }[role]
    )


def _refusals() -> dict[str, str]:
    return {
        "researcher": f"I could not look the sales up: {_UNKNOWN}.",
        "analyst": f"I cannot add anything up: {_UNKNOWN}.",
        "writer": f"I am sorry, I cannot answer this: {_UNKNOWN}.",
    }


@contextmanager
def sales_model(story: str) -> Iterator[str]:
    """Serve the model until the block ends; yield the base URL for OpenAI's clients."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        asked = 0

        def do_POST(self) -> None:
            body: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            read, whole, stream = _APIS[self.path]
            type(self).asked += 1
            number = type(self).asked
            asked = read(body)
            reply = said(asked, story, number)
            if asked.stream:
                self._send("text/event-stream", b"".join(stream(asked, reply, number)))
            else:
                self._send("application/json", json.dumps(whole(asked, reply, number)).encode())

        def _send(self, kind: str, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    with serve_http(Handler) as address:
        yield f"{address}/v1"
