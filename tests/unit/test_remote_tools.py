"""Tools over HTTP and MCP in a trial: only recorded results reach the workflow."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from analyzer.experiment.replay.gateway_options import GatewayOptions
from analyzer.experiment.replay.gateway_server import Gateway, serving
from analyzer.experiment.replay.open_trial import OpenTrial
from analyzer.experiment.replay.read_tape import undeclared_tool
from analyzer.experiment.replay.tape import Answer, RecordedTool, RemoteTools
from analyzer.experiment.replay.trial import Change
from analyzer.experiment.replay.trial_tools import ToolRules, plan, undeclared
from semconv.model import ToolCall
from semconv.record import replace
from tests.tapes import call, chat_body, tape, tool
from tests.web_application import served

BOOK = ToolCall(name="book", arguments='{"seats": 12}', call_id="c1")
ASKS = call(0, "Book 12 seats.", answer=Answer(calls=(BOOK,)))


def foreign(index: int, name: str, result: str, /, **arguments: Any) -> RecordedTool:
    """A tool recorded by a framework, not by ``semconv.instrument``."""
    return replace(tool(index, name, result, **arguments), is_ours=False)


@dataclass
class Server:
    """An MCP server that records its requests."""

    url: str = ""
    asked: list[tuple[str, str]] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read() or b"{}")
        self.asked.append((request.method, str(body.get("method"))))
        if body.get("method") != "tools/list":
            headers = {"Mcp-Session-Id": "s1"}
            return web.json_response({"jsonrpc": "2.0", "id": body.get("id"), "result": {}}, headers=headers)
        listed = {"name": "book", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object"}}
        message = {"jsonrpc": "2.0", "id": body["id"], "result": {"tools": [listed]}}
        event = f"event: message\r\ndata: {json.dumps(message)}\r\n\r\n"
        return web.Response(text=event, content_type="text/event-stream")


@asynccontextmanager
async def mcp_server() -> AsyncIterator[Server]:
    server, app = Server(), web.Application()
    app.router.add_route("*", "/mcp", server.answer)
    async with served(app) as address:
        server.url = f"{address}/mcp"
        yield server


@asynccontextmanager
async def trial(
    tools: Sequence[RecordedTool], *remotes: RemoteTools, change: Change | None = None, **options: Any
) -> AsyncIterator[tuple[Gateway, OpenTrial, dict[str, str]]]:
    async with serving(GatewayOptions(remotes=remotes, **options)) as gateway:
        opened = gateway.open(tape(ASKS, tools=tools), change, lifetime_s=60)
        yield gateway, opened, dict(gateway.environment(opened))


def over_http(*tools: str) -> RemoteTools:
    return RemoteTools(variable="API", tools=frozenset(tools))


def over_mcp(server: Server, *tools: str) -> RemoteTools:
    return RemoteTools(variable="MCP", tools=frozenset(tools), mcp_server=server.url)


async def asked(method: str, url: str, body: Any = None) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.request(method, url, json=body) as answer:
        return answer.status, await answer.text()


async def said(url: str, method: str, **params: Any) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    found: dict[str, Any] = json.loads((await asked("POST", url, message))[1])
    return found


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        pytest.param("POST", "", {"vessel": "Odile", "seats": 12}, id="body"),
        pytest.param("GET", "?vessel=Odile&seats=12", None, id="query"),
        pytest.param("PUT", "/vessels/Odile", {"seats": 12}, id="path and body"),
    ],
)
async def test_a_recorded_execution_is_answered_over_http_once(method: str, path: str, body: Any) -> None:
    done = foreign(0, "book", '{"ref": 7}', vessel="Odile", seats=12)
    async with trial([done], over_http("book")) as (gateway, opened, environment):
        assert await asked(method, environment["API"] + path, body) == (200, '{"ref": 7}')
        status, text = await asked(method, environment["API"] + path, body)
        report = gateway.report(opened.trial)
    assert (status, "`book`" in text) == (409, True)
    assert (report.tools_served, "`book`" in report.invalid) == (1, True)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        pytest.param("", {"seats": 13}, id="another value"),
        pytest.param("", {}, id="an argument is missing"),
        pytest.param("", {"seats": 12, "class": "first"}, id="an argument more"),
        pytest.param("/12", {"class": "first"}, id="an argument more beside the path"),
        pytest.param("", [12], id="no object"),
    ],
)
async def test_a_changed_request_over_http_is_refused_and_names_the_tool(path: str, body: Any) -> None:
    async with trial([foreign(0, "book", "ok", seats=12)], over_http("book")) as (gateway, opened, known):
        status, _ = await asked("POST", known["API"] + path, body)
        report = gateway.report(opened.trial)
    assert (status, report.tools_served, "book" in report.invalid) == (409, 0, True)


async def test_two_tools_at_one_address_are_told_apart_or_refused() -> None:
    done = [foreign(0, "book", "booked", id=5), foreign(1, "cancel", "gone", id=5, why="rain")]
    async with trial(done, over_http("book", "cancel")) as (_, _, known):
        assert await asked("POST", f"{known['API']}/cancel", {"id": 5, "why": "rain"}) == (200, "gone")
    done[1] = foreign(1, "cancel", "gone", id=5)
    async with trial(done, over_http("book", "cancel")) as (_, _, known):
        status, text = await asked("DELETE", f"{known['API']}/orders/5")
    assert (status, "`book`, `cancel`" in text) == (409, True)


async def test_a_recorded_failure_fails_over_http_and_over_mcp() -> None:
    failed = replace(foreign(0, "book", "no seats left", seats=12), failed=True)
    async with trial([failed], over_http("book")) as (_, _, known):
        assert await asked("POST", known["API"], {"seats": 12}) == (500, "no seats left")
    async with mcp_server() as server, trial([failed], over_mcp(server, "book")) as (_, _, known):
        found = await said(known["MCP"], "tools/call", name="book", arguments={"seats": 12})
    content = [{"type": "text", "text": "no seats left"}]
    assert found["result"] == {"resultType": "complete", "content": content, "isError": True}


def text_block(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


@pytest.mark.parametrize(
    ("recorded", "content"),
    [
        pytest.param("ref 7", [text_block("ref 7")], id="text"),
        pytest.param('{"ref": 7}', [text_block('{"ref": 7}')], id="object"),
        pytest.param('{"type": "text", "text": "ref 7"}', [text_block("ref 7")], id="block"),
        pytest.param('[{"type": "text", "text": "a"}]', [text_block("a")], id="blocks"),
        pytest.param('{"content": [{"type": "text", "text": "a"}]}', [text_block("a")], id="result"),
    ],
)
async def test_mcp_results_are_served_as_the_server_sent_them(recorded: str, content: list[Any]) -> None:
    done = foreign(0, "orders__book", recorded, seats=12)
    async with mcp_server() as server, trial([done], over_mcp(server, "orders__book")) as (_, _, known):
        found = await said(known["MCP"], "tools/call", name="book", arguments={"seats": 12})
        assert server.asked == []
    assert (found["id"], found["result"]["content"]) == (7, content)


async def test_harmless_mcp_requests_reach_the_server_and_calls_do_not() -> None:
    async with mcp_server() as server, trial([], over_mcp(server, "book")) as (gateway, opened, known):
        url = known["MCP"]
        assert (await said(url, "initialize"))["result"] == {}
        _, listed = await asked("POST", url, {"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
        await asked("GET", url)
        await asked("DELETE", url)
        assert gateway.report(opened.trial).invalid == ""
        refused = await said(url, "tools/call", name="book", arguments={"seats": 12})
        report = gateway.report(opened.trial)
    told = json.loads(listed.split("data:")[1])
    assert told["result"]["tools"] == [{"name": "book", "inputSchema": {"type": "object"}}]
    assert "`book`" in refused["error"]["message"]
    assert "`book`" in report.invalid
    passed_on = [("POST", "initialize"), ("POST", "tools/list"), ("GET", "None"), ("DELETE", "None")]
    assert server.asked == passed_on


RPC: dict[str, Any] = {"jsonrpc": "2.0", "id": 1}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(RPC | {"method": "tasks/cancel"}, id="unknown method"),
        pytest.param([RPC | {"method": "tools/call", "params": {"name": "book"}}], id="batch"),
        pytest.param(RPC | {"method": "tools/call", "params": [1]}, id="no params"),
        pytest.param(RPC | {"method": ["tools/call"]}, id="method of another type"),
    ],
)
async def test_other_messages_never_reach_the_mcp_server(body: Any) -> None:
    async with mcp_server() as server, trial([], over_mcp(server, "book")) as (gateway, opened, known):
        _, text = await asked("POST", known["MCP"], body)
        assert gateway.report(opened.trial).invalid
    assert "error" in json.loads(text)
    assert server.asked == []


async def test_an_mcp_server_that_is_away_makes_the_trial_invalid() -> None:
    async with mcp_server() as ended:
        pass
    async with trial([], over_mcp(ended, "book")) as (gateway, opened, known):
        status, text = await asked("POST", known["MCP"], {"jsonrpc": "2.0", "id": 1, "method": "initialize"})
        report = gateway.report(opened.trial)
    assert (status, "the MCP server of MCP did not answer" in text) == (502, True)
    assert "the MCP server of MCP did not answer" in report.invalid


async def test_a_read_only_mcp_tool_runs_where_nothing_is_recorded() -> None:
    allowed = frozenset({"find"})
    async with mcp_server() as server:
        remote = over_mcp(server, "book")
        async with trial([], remote, allow_tools=allowed) as (_, _, known):
            await said(known["MCP"], "tools/call", name="find", arguments={})
        assert server.asked == [("POST", "tools/call")]


async def test_no_answer_calls_an_mcp_tool_before_the_workflow_connected_through_the_gateway() -> None:
    done = foreign(0, "book", "ok", seats=12)
    async with mcp_server() as server, trial([done], over_mcp(server, "book")) as (gateway, opened, _):
        status, _ = await asked("POST", f"{opened.base_url}/chat/completions", chat_body(ASKS.messages))
        report = gateway.report(opened.trial)
    assert (status, report.served) == (409, 0)
    assert "`book` would really run" in report.invalid
    assert "MCP" in report.invalid
    async with mcp_server() as server, trial([done], over_mcp(server, "book")) as (_, opened, known):
        await said(known["MCP"], "initialize")
        status, _ = await asked("POST", f"{opened.base_url}/chat/completions", chat_body(ASKS.messages))
    assert status == 200


async def test_an_address_reaches_the_tools_of_one_trial_only() -> None:
    done = foreign(0, "book", "ok", seats=12)
    async with trial([done], over_http("book")) as (gateway, opened, known):
        assert (await asked("POST", known["API"].replace("API", "OTHER"), {"seats": 12}))[0] == 404
        assert (await asked("POST", known["API"].replace(opened.trial, "x" * 22), {"seats": 12}))[0] == 404
        gateway.close(opened.trial)
        assert (await asked("POST", known["API"], {"seats": 12}))[0] == 404


async def test_an_execution_that_was_never_asked_for_is_missed_unless_another_held_it() -> None:
    outer = replace(foreign(0, "book", "ok", seats=12), start_ns=1, end_ns=9)
    inner = replace(foreign(1, "pay", "ok"), start_ns=2, end_ns=3)
    async with trial([outer, inner], over_http("book", "pay")) as (gateway, opened, known):
        assert gateway.report(opened.trial).tools_missing == ("book",)
        await asked("POST", known["API"], {"seats": 12})
        assert gateway.report(opened.trial).tools_missing == ()


@pytest.mark.parametrize(
    ("rules", "named"),
    [
        pytest.param(ToolRules(), ["book"], id="nothing is declared"),
        pytest.param(ToolRules(allowed=frozenset({"book"})), [], id="read-only"),
        pytest.param(ToolRules(remotes=[over_http("book")]), [], id="over HTTP"),
    ],
)
def test_a_tool_that_a_model_called_needs_no_span_to_be_named(rules: ToolRules, named: list[str]) -> None:
    assert [each.name for each in undeclared(tape(ASKS), rules)] == named
    transfer = ToolCall(name="transfer_to_savings", arguments='{"amount": 5}', call_id="c1")
    wired = call(0, "Wire it.", answer=Answer(calls=(transfer,)))
    assert undeclared(tape(wired), ToolRules())


def test_all_tools_to_declare_are_named_at_once_with_what_each_did() -> None:
    looked_up = [foreign(0, "look_up", "ok"), foreign(1, "look_up", "other")]
    executed = [*looked_up, foreign(2, "pay\x1b[2J", "x" * 999)]
    found = undeclared_tool(tape(ASKS, tools=executed), ToolRules())
    assert found is not None
    assert "`look_up` would really run in a trial (recorded 2 times" in found.reason
    assert "which gave ok" in found.reason
    assert "`book` would really run in a trial (recorded once" in found.reason
    assert found.mend[0].startswith("--allow-tool look_up --allow-tool 'pay")
    assert "\x1b" not in found.reason + "".join(found.mend), "a name of the trace must not steer the terminal"
    assert len(found.reason) < 600


def test_the_plan_says_for_each_tool_whether_it_really_runs() -> None:
    recorded = [foreign(n, name, "ok") for n, name in enumerate(("book", "pay", "look_up", "hand_over"))]
    over_mcp = RemoteTools(variable="MCP", tools=frozenset({"pay"}), mcp_server="http://pay.example/mcp")
    rules = ToolRules(allowed=frozenset({"look_up"}), remotes=[over_http("book"), over_mcp])
    planned = plan(tape(ASKS, tools=[*recorded, tool(4, "add")]), rules)
    assert [(each.tool, each.fate.partition(";")[0], each.is_certain) for each in planned] == [
        ("add", "gets recorded results by @tool", False),
        ("book", "gets recorded results over HTTP (address in API)", False),
        ("hand_over", "hands over to an agent", True),
        ("look_up", "really runs in every trial (--allow-tool)", True),
        ("pay", "gets recorded results over MCP (address in MCP)", True),
    ]
