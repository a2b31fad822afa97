"""Tools over HTTP and MCP in a trial: the gateway takes the place of the server that the workflow calls.

A recorded execution is answered with its result and never forwarded. MCP requests that change nothing are
forwarded to the real server, so that the model is offered the same tools. Everything else is refused, and the
trial becomes invalid.

Source of the JSON-RPC: modelcontextprotocol.io, specifications 2025-06-18 and 2026-07-28, "Streamable HTTP",
"Tools".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

from aiohttp import web

from analyzer.experiment.replay.canonical import canonical_value
from analyzer.experiment.replay.read_request import beside, read_body
from analyzer.experiment.replay.stdio_server import without_output_schemas
from analyzer.experiment.replay.tape import RecordedTool, RemoteTools
from analyzer.experiment.replay.trial import Refuse, Trial
from analyzer.experiment.replay.upstream import (
    NO_ANSWER_STATUS,
    NoAnswer,
    Sending,
    Upstream,
    Within,
    forwarded_headers,
)
from analyzer.experiment.replay.wire import UnreadableRequest
from analyzer.experiment.replay.wire.format import is_one_of
from semconv.json_text import read_json
from semconv.record import record

_CALL: Final = "tools/call"
_LIST: Final = "tools/list"
_READING: Final = frozenset(
    {"initialize", "server/discover", "ping", _LIST, "prompts/list", "prompts/get", "resources/list"}
    | {"resources/templates/list", "resources/read", "resources/subscribe", "resources/unsubscribe"}
    | {"subscriptions/listen", "completion/complete", "logging/setLevel"}
)
"""Methods that change nothing; all others except notifications are refused."""
_NOTIFICATION: Final = "notifications/"
_BLOCKS: Final = frozenset({"text", "image", "audio", "resource", "resource_link"})
_COMPLETE: Final = {"resultType": "complete"}
"""Required since 2026-07-28; older clients ignore it."""
_RPC_REFUSED: Final = -32_000
"""JSON-RPC code for an error defined by the implementation."""
_REFUSED: Final = 409
_FAILED: Final = 500
_FOR_THE_SERVER: Final = 204
"""Answer to a stand-in over stdio: pass the message to the real server, which is its child."""
_SEPARATOR: Final = "__"
"""Separator of a server's name and a tool's, in frameworks that record both."""


@record
class HttpCall:
    """Content of a request over plain HTTP."""

    given: Mapping[str, Any]
    """Arguments: its JSON object, with the parameters of its query."""
    segments: Sequence[str] = ()
    """Parts of its path, below the address that the workflow was given."""

    def asks_for(self, tool: RecordedTool) -> bool:
        """Return whether an execution had these arguments; those missing here must be in the path."""
        try:
            recorded = read_json(tool.arguments or "{}")
        except (ValueError, RecursionError):
            return False
        if not isinstance(recorded, dict) or not self.given.keys() <= recorded.keys():
            return False
        same = all(_equal(value, recorded[name]) for name, value in self.given.items())
        absent = [value for name, value in recorded.items() if name not in self.given]
        return same and all(_text(value) in self.segments for value in absent)


def _equal(given: Any, recorded: Any) -> bool:
    return given == recorded or (isinstance(given, str) and given == _text(recorded))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


async def over_http(trial: Trial, tools: RemoteTools, request: web.Request) -> web.Response:
    """Answer a tool's request over plain HTTP with its recorded result."""
    http_call = await _http_call(request, f"/at/{tools.variable}/")
    found = trial.use_http_tool(tools.tools, http_call.asks_for) if http_call else _unreadable(trial, tools)
    if isinstance(found, Refuse):
        return web.json_response({"error": f"blamespan: {found.reason}"}, status=_REFUSED)
    return web.Response(
        text=found.result,
        status=_FAILED if found.failed else 200,
        content_type="application/json" if _is_json(found.result) else "text/plain",
    )


async def _http_call(request: web.Request, address: str) -> HttpCall | None:
    """Read a request below the address that was given; ``None`` if its body is not a JSON object."""
    try:
        raw = await read_body(request)
        body = await beside(len(raw), lambda: read_json(raw.decode()) if raw.strip() else {})
    except (ValueError, RecursionError, UnreadableRequest):
        return None
    if not isinstance(body, dict):
        return None
    query = dict(parse_qsl(request.query_string, keep_blank_values=True))
    segments = request.raw_path.partition("?")[0].partition(address)[2].split("/")
    return HttpCall(given={**query, **body}, segments=[unquote(segment) for segment in segments])


def _unreadable(trial: Trial, tools: RemoteTools) -> Refuse:
    names = ", ".join(sorted(tools.tools))
    reason = f"a request for one of the tools {names} over HTTP has no JSON object as its body"
    trial.invalidate(reason)
    return Refuse(reason=reason)


def _is_json(text: str) -> bool:
    try:
        read_json(text)
    except (ValueError, RecursionError):
        return False
    return True


async def over_mcp(
    trial: Trial, tools: RemoteTools, request: web.Request, upstream: Upstream, within: Within
) -> web.StreamResponse:
    """Answer one request of an MCP client: executions from the tape, the rest by the real server."""
    trial.tools.connected(tools.variable)
    try:
        raw = await read_body(request) if request.method == "POST" else b"{}"
    except UnreadableRequest as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from None
    message, called = await beside(len(raw), lambda: _read(raw))
    if message is None or not (_is_harmless(message) or called):
        method = "a batch" if message is None else str(message.get("method"))
        reason = f"MCP's {method} cannot be replayed (the {tools.place})"
        trial.invalidate(reason)
        return _said(_refusal((message or {}).get("id"), reason))
    if called is not None:
        also = [name for name in tools.tools if name.rpartition(_SEPARATOR)[2] == called.name]
        found = trial.use_tool(called.name, called.arguments, also=also)
        if isinstance(found, RecordedTool):
            return _said(_answer(called, found))
        if isinstance(found, Refuse):
            return _said(_refusal(called.id, found.reason))
    if tools.command:
        return web.Response(status=_FOR_THE_SERVER)
    return await _passed_on(trial, tools, request, message, upstream, within)


def _read(raw: bytes) -> tuple[dict[str, Any] | None, _ToolCalled | None]:
    """Return an MCP message, and the execution that it requests."""
    try:
        found = read_json(raw.decode())
    except (ValueError, RecursionError, UnreadableRequest):
        return None, None
    return (found, _tool_called(found)) if isinstance(found, dict) else (None, None)


def _said(answer: Mapping[str, Any]) -> web.Response:
    return web.json_response(answer)


async def _passed_on(  # noqa: PLR0917 - one request and its context
    trial: Trial,
    tools: RemoteTools,
    request: web.Request,
    message: Mapping[str, Any],
    upstream: Upstream,
    within: Within,
) -> web.StreamResponse:
    raw = json.dumps(message).encode() if message else b""  # re-encoded: each key has one value
    sending = Sending(
        url=tools.mcp_server, headers=forwarded_headers(request.headers), body=raw, method=request.method
    )
    try:
        if message.get("method") == _LIST:
            return await upstream.rewritten(sending, within, without_output_schemas)
        response, _ = await upstream.pass_on(sending, request, within, lambda: None)
    except NoAnswer as error:
        reason = f"the MCP server of {tools.variable} did not answer ({error.failure})"
        trial.invalidate(reason)
        return web.Response(text=f"blamespan: {reason}\n", status=NO_ANSWER_STATUS[error.failure])
    return response


@record
class _ToolCalled:
    """A request to execute a tool."""

    id: Any
    name: str
    arguments: str
    """Arguments as ``canonical_value`` writes them."""


def _is_harmless(message: Mapping[str, Any]) -> bool:
    """Return whether a message may be forwarded; one without a method answers the server's own request."""
    method = message.get("method")
    return method is None or (
        isinstance(method, str) and (method in _READING or method.startswith(_NOTIFICATION))
    )


def _tool_called(message: Mapping[str, Any]) -> _ToolCalled | None:
    """Return the execution requested by a message; ``None`` for other messages."""
    if message.get("method") != _CALL:
        return None
    given = message.get("params")
    params = given if isinstance(given, dict) else {}
    arguments = params.get("arguments") or {}
    return _ToolCalled(
        id=message.get("id"), name=str(params.get("name")), arguments=canonical_value(arguments)
    )


def _answer(called: _ToolCalled, recorded: RecordedTool) -> Mapping[str, Any]:
    """Return a recorded result as the server's answer."""
    answer = {**_COMPLETE, **_result_of(recorded.result)}
    if recorded.failed:
        answer = {**answer, "isError": True}
    return {"jsonrpc": "2.0", "id": called.id, "result": answer}


def _refusal(message_id: Any, reason: str) -> Mapping[str, Any]:
    """Return the answer to a refused message."""
    error = {"code": _RPC_REFUSED, "message": f"blamespan: {reason}"}
    return {"jsonrpc": "2.0", "id": message_id, "error": error}


def _result_of(text: str) -> dict[str, Any]:
    """Return the original result of a recorded text: frameworks record results, blocks, or their text."""
    try:
        value = read_json(text)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict) and _are_blocks(value.get("content")):
        return value
    blocks = value if isinstance(value, list) else [value]
    if _are_blocks(blocks):
        return {"content": blocks, "isError": False}
    return {"content": [{"type": "text", "text": text}], "isError": False}


def _are_blocks(value: object) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(block, dict) and is_one_of(block.get("type"), _BLOCKS) for block in value)
    )
