"""Replay gateway: an HTTP server in place of a provider, which plays tapes back to trials.

::

    async with serving(GatewayOptions(...)) as gateway:
        opened = gateway.open(tape, change, lifetime_s=600)
        ...  # run the workflow with gateway.environment(opened)
        report = gateway.close(opened.trial)

The trial's id is in the base URL, so that no framework needs a header. It is a capability of 128 random bits
that expires; without a valid id a request learns nothing, and no id gives access to another trial's tape. The
destination of live calls is fixed when the gateway starts.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web

from analyzer.experiment.replay.gateway_options import GatewayOptions, LiveCall, LiveUsage
from analyzer.experiment.replay.matching import TapeIndex
from analyzer.experiment.replay.open_trial import OpenTrial, RunningTrial, StandIns
from analyzer.experiment.replay.read_request import ReadCall, beside, read_body, read_call, read_tool_call
from analyzer.experiment.replay.remote_tools import over_http, over_mcp
from analyzer.experiment.replay.tape import Answer, RecordedTool, Tape
from analyzer.experiment.replay.trial import (
    CLIENT_GONE,
    Change,
    Edit,
    Live,
    Refuse,
    Request,
    Serve,
    Trial,
    TrialReport,
)
from analyzer.experiment.replay.trial_tools import RunTool
from analyzer.experiment.replay.upstream import (
    NO_ANSWER_STATUS,
    TIMEOUT,
    NoAnswer,
    Sending,
    Upstream,
    forwarded_headers,
)
from analyzer.experiment.replay.wire import WIRES, Asked, UnreadableRequest, Wire
from analyzer.experiment.replay.wire.responses import input_items, output_items, response_id
from collector_processor.core.headers import WRONG_TOKEN_S, names_this_machine
from collector_processor.core.http_server import ProtocolLogger, limit_connections
from collector_processor.otlp import TOKEN_HEADER, Address
from semconv.emit.tool_playback import TRIAL_VARIABLE
from semconv.record import replace

logger = logging.getLogger(__name__)

_RETRY_COUNT: Final = "x-stainless-retry-count"
_NO_RETRY: Final = {"x-should-retry": "false"}
"""Header obeyed by OpenAI's and Anthropic's clients, which otherwise retry after most errors."""
_REFUSED: Final = 409
_SHUTDOWN_S: Final = 2.0
_IDLE_S: Final = 120.0
"""Seconds between requests, and for a request's head; longer than Go's client keeps connections (90 s)."""
MOST_CONNECTIONS: Final = 800
_MOST_TRIALS: Final = 10_000
_MOST_REMEMBERED: Final = 10_000
"""Served responses of one trial that later requests may continue."""


class Gateway:
    """A running gateway. Call its methods in its event loop."""

    def __init__(self, options: GatewayOptions, upstream: Upstream) -> None:
        self._options: Final = options
        self._upstream: Final = upstream
        self._trials: Final[dict[str, RunningTrial]] = {}
        self._port = options.port
        self._indexed: tuple[Tape, TapeIndex] | None = None
        """The tape of the latest trial, with its index; all trials of an experiment have the same tape."""

    @property
    def url(self) -> str:
        """Its address, ``http://HOST:PORT``; if it listens on all of this machine's, one of those."""
        return f"http://{Address(host=reachable(self._options.host), port=self._port)}"

    def bound(self, port: int) -> None:
        """Set the port it listens on."""
        self._port = port

    def open(
        self,
        tape: Tape,
        change: Change | None = None,
        *,
        lifetime_s: float,
        trial: str = "",
        must_announce: bool = False,
    ) -> OpenTrial:
        """Open a trial; without a change it is the fidelity trial.

        Args:
            tape: the recorded run.
            change: where the tape ends.
            lifetime_s: seconds after which the trial's requests are refused.
            trial: an id to use instead of a random one.
            must_announce: whether the workflow runs in a service, which must enter ``rerun`` before its model
            calls if its tools ask for their results.

        Raises:
            ValueError: the id is in use, or too many trials are open.
            OSError: the stand-ins of tools over stdio cannot be written.
        """
        self._expire()
        name = trial or secrets.token_urlsafe(16)
        if name in self._trials or len(self._trials) >= _MOST_TRIALS:
            raise ValueError(
                f"this trial is open already, or {_MOST_TRIALS} trials are open: close one first"
            )
        rules = self._options.rules(must_announce=must_announce)
        decider = Trial(tape, change, rules, self._index_of(tape))
        key = f"/k/{self._options.token}" if self._options.token else ""
        opened = OpenTrial(trial=name, root_url=f"{self.url}{key}/t/{name}")
        stand_ins = StandIns(self._options.remotes, opened.root_url)
        self._trials[name] = RunningTrial(decider, lifetime_s, stand_ins)
        return opened

    def _index_of(self, tape: Tape) -> TapeIndex:
        if self._indexed is None or self._indexed[0] is not tape:
            self._indexed = (tape, TapeIndex(tape.calls, tape.matching))
        return self._indexed[1]

    def environment(self, opened: OpenTrial) -> Mapping[str, str]:
        """Return the environment variables that direct a workflow here."""
        return {
            "OPENAI_BASE_URL": opened.base_url,
            "OPENAI_API_BASE": opened.base_url,
            "ANTHROPIC_BASE_URL": opened.root_url,
            TRIAL_VARIABLE: opened.root_url,
            **{
                remote.variable: f"{opened.root_url}/at/{remote.variable}"
                for remote in self._options.remotes
                if not remote.command
            },
            **self._trials[opened.trial].stand_ins.environment,
        }

    def report(self, trial: str) -> TrialReport:
        """Return the report of a trial so far.

        Raises:
            KeyError: there is no such trial, or it has expired.
        """
        return self._trials[trial].trial.report()

    def close(self, trial: str) -> TrialReport:
        """Close a trial, so that its requests end and further ones are refused, and return its report.

        Raises:
            KeyError: there is no such trial.
        """
        return self._trials.pop(trial).end()

    def close_all(self) -> None:
        """Close every trial."""
        for name in list(self._trials):
            self.close(name)

    def _expire(self) -> None:
        now = time.monotonic()
        for name in [name for name, trial in self._trials.items() if trial.expires_s <= now]:
            self.close(name)

    async def _find(self, request: web.Request) -> RunningTrial:
        if self._options.token:
            given = request.match_info.get("token", "") or request.headers.get(TOKEN_HEADER, "")
            if not secrets.compare_digest(given.encode(errors="replace"), self._options.token.encode()):
                await asyncio.sleep(WRONG_TOKEN_S)
                raise web.HTTPUnauthorized(
                    text=f"expected the gateway's token in {TOKEN_HEADER} or the path\n"
                )
        elif not names_this_machine(request.headers.get("Host", ""), self._options.allowed_hosts):
            raise web.HTTPForbidden(text="expected a Host header that names this machine\n")
        trial = self._trials.get(request.match_info["trial"])
        if trial is None or trial.expires_s <= time.monotonic():
            raise web.HTTPNotFound(text="no such trial, or it has expired\n")
        return trial

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request from a workflow."""
        opened = await self._find(request)
        path = _path(request)
        wire = WIRES.get(path)
        if wire is None or request.method != "POST":
            return _unknown(opened.trial, request.method, path)
        try:
            raw = await read_body(request)
            call = await read_call(wire, raw, opened.served, opened.trial.matches, opened.trial.omissions)
        except UnreadableRequest as error:
            return _refused(opened.trial, wire, str(error))
        asked = call.asked
        decision = opened.trial.ask(
            Request(
                messages=asked.messages,
                kind=asked.kind,
                model=asked.model,
                retry=_retry_count(request),
                tools=asked.tools,
                transfers=asked.transfers,
                provider_tools=asked.provider_tools,
                spoken=call.spoken,
            )
        )
        match decision:
            case Refuse():
                await asyncio.to_thread(opened.trial.compare)
                return _refused(opened.trial, wire, decision.reason)
            case Serve():
                _remember(opened.served, call.body, decision)
                return await _served(opened.trial, wire, asked, decision, request)
            case Live():
                sent = await beside(len(raw), lambda: _sent(raw, call, wire, decision.edit))
                return await self._live(opened, wire, asked, decision, request, sent)

    async def _live(  # noqa: PLR0917 - one request and its context
        self,
        opened: RunningTrial,
        wire: Wire,
        asked: Asked,
        decision: Live,
        request: web.Request,
        sent: bytes,
    ) -> web.StreamResponse:
        trial = opened.trial
        call = LiveCall(
            trial=request.match_info["trial"], model=decision.edit.model or asked.model, body=sent
        )
        if reason := await self._options.reserve(call):
            trial.failed(decision.serial, "over_budget")
            return _refused(trial, wire, reason)
        usage = LiveUsage(failure=CLIENT_GONE)  # the client of this request disconnected meanwhile
        url = f"{self._options.upstream(wire.provider)}/v1/{_path(request)}"
        if request.query_string:
            url = f"{url}?{request.query_string}"
        sending = Sending(url=url, headers=forwarded_headers(request.headers), body=sent)
        opened.live[decision.serial] = began_s = time.monotonic()
        try:
            response, usage = await self._upstream.pass_on(
                sending, request, opened.until_its_end, lambda: trial.answering(decision.serial)
            )
        except NoAnswer as error:
            usage = LiveUsage(failure=error.failure)
            message = f"blamespan: the upstream did not answer ({error.failure})"
            return web.json_response(wire.error(message), status=NO_ANSWER_STATUS[error.failure])
        finally:
            if usage.failure == CLIENT_GONE and opened.is_hanging(began_s):
                usage = replace(usage, failure=TIMEOUT)
            if opened.live.pop(decision.serial, None) is not None and usage.failure:
                trial.failed(decision.serial, usage.failure)
            await asyncio.shield(self._options.settle(call, usage))
        return response

    async def tool(self, request: web.Request) -> web.Response:
        """Answer ``@tool`` of ``semconv.instrument``: a recorded result, permission to run, or a refusal."""
        trial = (await self._find(request)).trial
        try:
            raw = await read_body(request)
            asked, arguments = await beside(len(raw), lambda: read_tool_call(raw))
        except UnreadableRequest as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from None
        if asked.get("rerun") is True:
            trial.announce()
            return web.json_response({"rerun": True})
        found = trial.use_tool(str(asked.get("name")), arguments, may_play=not asked.get("is_block"))
        match found:
            case RecordedTool():
                return web.json_response({"result": found.result, "failed": found.failed})
            case RunTool():
                return web.json_response({"run": True})
            case Refuse():
                return web.json_response({"refused": found.reason})

    async def remote_tool(self, request: web.Request) -> web.StreamResponse:
        """Answer a tool call to an address in the workflow's environment."""
        opened = await self._find(request)
        variable = request.match_info["variable"]
        tools = next((remote for remote in self._options.remotes if remote.variable == variable), None)
        if tools is None:
            raise web.HTTPNotFound(text="no tool is declared at this address\n")
        if tools.is_mcp:
            return await over_mcp(opened.trial, tools, request, self._upstream, opened.until_its_end)
        return await over_http(opened.trial, tools, request)


def reachable(host: str) -> str:
    """Return an address at which a workflow on another machine reaches a server that listens on ``host``."""
    if host not in _ALL_ADDRESSES:
        return host
    family, anywhere = (socket.AF_INET6, "2001:db8::1") if ":" in host else (socket.AF_INET, "192.0.2.1")
    with socket.socket(family, socket.SOCK_DGRAM) as probe:  # sends nothing: the kernel picks the address
        try:
            probe.connect((anywhere, 9))
        except OSError:  # no network
            return "::1" if ":" in host else "127.0.0.1"
        return str(probe.getsockname()[0])


_ALL_ADDRESSES: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - it is recognised, not bound


def _sent(raw: bytes, call: ReadCall, wire: Wire, edit: Edit) -> bytes:
    """Return the request for the live model; re-encoding an equal document could change its bytes."""
    changed = call.body if edit == Edit() else wire.edited(call.body, edit)
    return raw if changed is call.given else json.dumps(changed, ensure_ascii=False).encode()


def _path(request: web.Request) -> str:
    """Return the path below ``/v1/``; clients add ``/v1`` to a base URL that has it already."""
    path = request.match_info["tail"].strip("/")
    while path.startswith("v1/"):
        path = path.removeprefix("v1/")
    return path


def _retry_count(request: web.Request) -> int:
    given = request.headers.get(_RETRY_COUNT, "0")
    return int(given) if given.isdecimal() and len(given) < 4 else 0


def _remember(served: dict[str, list[Any]], body: Mapping[str, Any], decision: Serve) -> None:
    if "input" in body and len(served) < _MOST_REMEMBERED:
        said = output_items(decision.answer, decision.serial)
        served[response_id(decision.serial)] = [*input_items(body), *said]


def _unknown(trial: Trial, method: str, path: str) -> web.Response:
    """Answer a request that is not a model call: models are an empty list, anything else ends the trial."""
    if method == "GET" and path == "models":
        return web.json_response({"object": "list", "data": []})
    reason = f"{method} /v1/{path} cannot be replayed: expected POST to {', '.join(sorted(WIRES))}"
    return _refused(trial, WIRES["messages" if path.startswith("messages") else "chat/completions"], reason)


def _refused(trial: Trial, wire: Wire, reason: str) -> web.Response:
    trial.invalidate(reason)
    return web.json_response(wire.error(f"blamespan: {reason}"), status=_REFUSED, headers=_NO_RETRY)


async def _served(
    trial: Trial, wire: Wire, asked: Asked, decision: Serve, request: web.Request
) -> web.StreamResponse:
    answer, serial = decision.answer, decision.serial
    is_stream = asked.wants_stream and not answer.error
    size = len(answer.text) + sum(len(call.arguments) for call in answer.calls)
    body = await beside(size, lambda: _answer_body(wire, asked, answer, serial, is_stream=is_stream))
    status = answer.error_status if answer.error else 200
    response = web.StreamResponse(status=status, headers=_NO_RETRY if answer.error else None)
    response.content_type = "text/event-stream" if is_stream else "application/json"
    response.content_length = len(body)
    if not answer.error:
        trial.answering(serial)
    try:
        await response.prepare(request)
        await response.write(body)
        await response.write_eof()
    except (ConnectionResetError, asyncio.CancelledError):
        trial.failed(serial, CLIENT_GONE)
        raise
    return response


def _answer_body(wire: Wire, asked: Asked, answer: Answer, serial: int, *, is_stream: bool) -> bytes:
    if answer.error:
        return json.dumps(wire.error(answer.error)).encode()
    if is_stream:
        return b"".join(wire.stream(asked, answer, serial))
    return json.dumps(wire.whole(asked, answer, serial), ensure_ascii=False).encode()


@asynccontextmanager
async def serving(options: GatewayOptions) -> AsyncIterator[Gateway]:
    """Run a gateway until the block ends.

    Raises:
        ValueError: it would listen beyond loopback without a token.
        OSError: the address cannot be bound.
    """
    address = Address(host=options.host, port=options.port)
    if not address.is_loopback and not options.token:
        raise ValueError(f"expected a token to listen on {address}, which is beyond loopback")
    upstream = Upstream(options.upstream_timeout_s)
    gateway = Gateway(options, upstream)
    app = web.Application(client_max_size=options.max_request_bytes)
    for prefix in ("", "/k/{token}"):
        app.router.add_post(f"{prefix}/t/{{trial}}/tools", gateway.tool)
        for tail in ("", "/{tail:.*}"):
            app.router.add_route("*", f"{prefix}/t/{{trial}}/at/{{variable}}{tail}", gateway.remote_tool)
        app.router.add_route("*", f"{prefix}/t/{{trial}}/{{tail:.*}}", gateway.answer)
    # MCP servers' streams never end, and no trial is open any more.
    runner = web.AppRunner(
        app,
        access_log=None,
        logger=ProtocolLogger(f"{__name__}.protocol"),
        keepalive_timeout=_IDLE_S,
        handler_cancellation=True,
        shutdown_timeout=_SHUTDOWN_S,
    )
    await runner.setup()
    assert runner.server is not None
    listener = None
    try:
        connect = limit_connections(runner.server, MOST_CONNECTIONS)
        listener = await asyncio.get_running_loop().create_server(connect, options.host, options.port)
        gateway.bound(listener.sockets[0].getsockname()[1])
        logger.info("replay gateway is listening", extra={"address": str(address)})
        yield gateway
    finally:
        if listener is not None:
            listener.close()
        await runner.cleanup()
        await upstream.close()
        gateway.close_all()
