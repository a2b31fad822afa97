"""Reader of runs that platforms and frameworks keep in shapes of their own. Pure.

``shapes`` says what a shape is, ``agent_events`` has those that are streams. Source: letta
``LettaMessage``; Dify ``GET /messages``, ``/workflow-runs/ID/node-executions`` and the events of a stream;
OpenAI's Agents SDK ``RunResult`` and ``RunState``; Flowise ``IReactFlowObject`` and ``/chatmessage``; DSPy
``ReAct``; agno ``RunOutput.to_dict``; n8n ``IRunExecutionData``; OpenAI's API reference, threads; A2A 0.3 and
1.0; Mistral's API reference, conversations; langchain4j ``ChatMessage``; Spring AI ``Message`` (2026).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from operator import itemgetter
from typing import Any, Final

from analyzer.recordings.agent_events import EVENT_SHAPES
from analyzer.recordings.dialogue import AGENT, SPEAKERS, SYSTEM, TOOL, USER, Message
from analyzer.recordings.fields import (
    Object,
    all_have,
    in_order,
    json_text,
    nanoseconds,
    object_at,
    objects,
    text_at,
    unwrapped,
)
from analyzer.recordings.message_parts import error_text, nested_call, text_of
from analyzer.recordings.recording import Records
from analyzer.recordings.shapes import Shape, answering, asking, each_alone, in_shapes, saying, sole
from semconv.dialects.reading.values import structured
from semconv.record import replace

# --- Letta ---


def _letta_entries(records: Records) -> Records:
    kinds = (text_at(record, "message_type") for record in records)
    is_known = all(kind.endswith("_message") or kind in _LETTA_ENDS for kind in kinds)
    return records if is_known and any(one["message_type"] not in _LETTA_ENDS for one in records) else ()


_LETTA_ENDS: Final = frozenset({"stop_reason", "usage_statistics", "ping"})
"""What a stream has beside messages."""


def _letta(entries: Records) -> Iterator[Message]:
    speakers = {"user_message": USER, "assistant_message": AGENT, "system_message": SYSTEM}
    for one in in_order(objects(entries), "date"):
        kind, time = json_text(one["message_type"]), one.get("date")
        if kind in {"tool_call_message", "approval_request_message"}:
            call = object_at(one, "tool_call")
            name, agent = call.get("name"), text_at(one, "name")
            yield asking(name, call.get("arguments"), call.get("tool_call_id"), agent, time)
        elif kind == "tool_return_message":
            failed = one.get("status") == "error"
            yield answering(one.get("tool_return"), one.get("tool_call_id"), failed=failed, time=time)
        elif kind in speakers:
            yield from saying(speakers[kind], one.get("content"), time=time)


# --- Dify and Flowise ---


def _dify_entries(records: Records) -> Records:
    held = unwrapped(records, "data")
    is_page = all_have(held, "id", "query", "answer", "conversation_id")
    return held if is_page and any("agent_thoughts" in one or "inputs" in one for one in held) else ()


def _dify(entries: Records) -> Iterator[Message]:
    for one in in_order(objects(entries), "created_at"):
        yield from saying(USER, one["query"])
        for place, thought in enumerate(objects(one.get("agent_thoughts"))):
            yield from _dify_calls(thought, f"{one.get('id')} {place}")
        error = json_text(one.get("error"))
        if error:
            yield Message(speaker=AGENT, text=error, failed=True)
        else:
            yield from saying(AGENT, one["answer"])


def _dify_calls(thought: Object, thought_id: str) -> Iterator[Message]:
    """Yield the calls of a thought, whose tools are listed as ``one;two``, each with its result."""
    for name in filter(None, text_at(thought, "tool").split(";")):
        call_id = f"{thought_id} {name}"
        yield asking(name, _of_tool(thought.get("tool_input"), name), call_id)
        result = json_text(_of_tool(thought.get("observation"), name))
        yield answering(result, call_id, failed=result.startswith(("tool invoke error", "Error")))


def _of_tool(held: Any, name: str) -> Any:
    """Return a tool's own part of what Dify lists for each tool of a thought."""
    found = structured(held)
    return found[name] if isinstance(found, dict) and name in found else found


def _dify_nodes(records: Records) -> Records:
    """Return what the nodes of a workflow did: listed by the API, or in the events of its stream."""
    held = unwrapped(records, "data")
    if all_have(held, "event"):
        held = [_dify_node(one) for one in held if text_at(one, "event") in _DIFY_EVENTS]
    is_known = all_have(held, "node_id", "node_type", "title", "status")
    return held if is_known and any(text_at(one, "node_type") in _DIFY_AGENTS for one in held) else ()


def _dify_node(event: Object) -> Object:
    """Return what a node did, or the workflow's input as what its first node did."""
    begun = {"node_id": "", "node_type": "start", "title": "", "status": "", "index": 0}
    return {**(begun if event["event"] == "workflow_started" else {}), **object_at(event, "data")}


_DIFY_EVENTS: Final = frozenset({"workflow_started", "node_finished"})
_DIFY_AGENTS: Final = frozenset({"llm", "agent"})


def _dify_run(entries: Records) -> Iterator[Message]:
    """Yield what was asked, and what each node that is an agent, a model or a tool did."""
    for one in in_order(objects(entries), "index"):
        kind, given, got = text_at(one, "node_type"), object_at(one, "inputs"), object_at(one, "outputs")
        time, error = one.get("created_at"), json_text(one.get("error"))
        if kind == "start":
            yield from saying(USER, given.get("sys.query", next(iter(given.values()), "")), time=time)
        elif kind in _DIFY_AGENTS:
            text = error or text_of(got.get("text", got.get("answer")))
            agent, failed = json_text(one["title"]), bool(error)
            yield Message(speaker=AGENT, text=text, agent=agent, failed=failed, time_ns=nanoseconds(time))
        elif kind in {"tool", "http-request", "code", "knowledge-retrieval"}:
            call_id = f"{one['node_id']} {one.get('index')}"
            yield asking(one["title"], given, call_id, time=time)
            yield answering(got.get("text", got), call_id, error=error or None, time=time)


_FLOWISE: Final = {"userMessage": USER, "apiMessage": AGENT}


def _flowise_entries(records: Records) -> Records:
    return records if all(map(_is_of_flowise, records)) else ()


def _is_of_flowise(one: Any) -> bool:
    return isinstance(one, dict) and _flowise_role(one) in _FLOWISE and "content" in one


def _flowise_role(one: Object) -> str:
    return text_at(one, "role") or text_at(one, "type")


def _flowise(entries: Records) -> Iterator[Message]:
    for one in in_order(objects(entries), "createdDate"):
        turns = objects(structured(one.get("agentReasoning"))) or [one]
        for turn in turns:
            agent = text_at(turn, "agentName")
            for place, used in enumerate(objects(structured(turn.get("usedTools")))):
                call_id = f"{one.get('id')} {agent} {place}"
                yield asking(used.get("tool"), used.get("toolInput"), call_id, agent)
                yield answering(used.get("toolOutput"), call_id, error=used.get("error"))
        agent = text_at(turns[-1], "agentName")
        yield from saying(_FLOWISE[_flowise_role(one)], one["content"], agent)


# --- DSPy's ReAct ---


def _react_entries(records: Records) -> Records:
    return records if text_at(object_at(sole(records), "trajectory"), "tool_name_0") else ()


def _react(entries: Records) -> Iterator[Message]:
    one, held = entries[0], entries[0]["trajectory"]
    asked = next((value for key, value in one.items() if key != "trajectory" and isinstance(value, str)), "")
    yield from saying(USER, one.get("question", asked))
    place = 0
    while (name := held.get(f"tool_name_{place}")) and name != "finish":
        yield from saying(AGENT, held.get(f"thought_{place}"))
        yield asking(name, held.get(f"tool_args_{place}"), f"step {place}")
        result = json_text(held.get(f"observation_{place}"))
        yield answering(result, f"step {place}", failed=result.startswith("Execution error in "))
        place += 1
    last = next((value for key, value in reversed(one.items()) if key != "trajectory"), None)
    yield from saying(AGENT, one.get("answer", last))


# --- n8n ---


def _n8n_entries(records: Records) -> Records:
    only = sole(records)
    return records if object_at(object_at(object_at(only, "data"), "resultData"), "runData") else ()


def _n8n(entries: Records) -> Iterator[Message]:
    """Yield what the nodes did in the order of their starts: triggers ask, tools answer, agents say."""
    one = entries[0]
    kinds = {
        text_at(node, "name"): text_at(node, "type")
        for node in objects(object_at(one, "workflowData").get("nodes"))
    }
    agents = [node for node, kind in kinds.items() if "agent" in kind.rpartition(".")[2].lower()]
    runs = [
        {**run, "node": node}
        for node, listed in object_at(object_at(one["data"], "resultData"), "runData").items()
        for run in objects(listed)
    ]
    for place, run in enumerate(sorted(runs, key=_n8n_place)):
        node, data, time = run["node"], object_at(run, "data"), run.get("startTime")
        error = object_at(run, "error")
        if "ai_tool" in data or "ai_tool" in object_at(run, "inputOverride"):
            given = _item(object_at(run, "inputOverride").get("ai_tool"))
            yield asking(node, given.get("query", given), f"run {place}", _n8n_caller(run, agents), time)
            got = _item(data.get("ai_tool"))
            yield answering(got.get("response", got), f"run {place}", error=error or None, time=time)
        elif node in agents:
            said = _item(data.get("main"))
            text = json_text(error.get("message") or said.get("output", said))
            yield Message(speaker=AGENT, text=text, agent=node, failed=bool(error), time_ns=nanoseconds(time))
        elif asked := _item(data.get("main")).get("chatInput"):
            yield from saying(USER, asked, time=time)


def _n8n_place(run: Object) -> tuple[int, int]:
    return run.get("startTime") or 0, run.get("executionIndex") or 0


def _n8n_caller(run: Object, agents: list[str]) -> str:
    """Return the agent that a tool ran for: the node before it, or the only one."""
    before = [text_at(one, "previousNode") for one in objects(run.get("source"))]
    return next((one for one in before if one in agents), agents[0] if len(agents) == 1 else "")


def _item(outputs: Any) -> Object:
    """Return the JSON of the first item that a node put out."""
    items = outputs[0] if isinstance(outputs, list) and outputs else None
    return object_at(next(iter(objects(items)), None), "json")


# --- Agno ---


def _agno_entries(records: Records) -> Records:
    only = sole(records)
    is_run = "run_id" in only and ("agent_name" in only or "team_name" in only)
    return records if is_run and all(map(_is_of_agno, objects(only.get("messages")) or [{}])) else ()


def _is_of_agno(one: Object) -> bool:
    """Tell whether it may be a message of one agent; those of a chat of several bear their names."""
    speaker = SPEAKERS.get(text_at(one, "role"))
    return speaker is not None and not (speaker is AGENT and text_at(one, "name"))


def _agno(entries: Records) -> Iterator[Message]:
    """Yield a run's messages; those of a team's members inside the calls that delegated to them, in order."""
    open_runs = [_agno_run(entries[0], "")]
    while open_runs:
        messages, members = open_runs[-1]
        message = next(messages, None)
        if message is None:
            open_runs.pop()
            continue
        yield message
        for call in message.calls:
            if members and call.name.startswith(_AGNO_DELEGATES):
                open_runs.append(_agno_run(members.pop(0), call.call_id))
                break


def _agno_run(one: Object, inside: str) -> tuple[Iterator[Message], list[Object]]:
    return _agno_messages(one, inside), objects(one.get("member_responses"))


_AGNO_DELEGATES: Final = ("delegate_task", "transfer_task")


def _agno_messages(one: Object, inside: str) -> Iterator[Message]:
    agent = text_at(one, "agent_name") or text_at(one, "team_name")
    for each in objects(one["messages"]):
        speaker, text = SPEAKERS[each["role"]], text_of(each.get("content"))
        message = Message(
            speaker=speaker,
            text=text,
            inside=inside,
            call_id=json_text(each.get("tool_call_id")),
            tool=text_at(each, "tool_name"),
            failed=each.get("tool_call_error") is True,
            time_ns=nanoseconds(each.get("created_at")),
        )
        calls = tuple(map(nested_call, objects(each.get("tool_calls"))))
        yield replace(message, agent=agent, calls=calls) if speaker is AGENT else message


# --- OpenAI's Assistants ---


def _thread_entries(records: Records) -> Records:
    """Return the messages, runs and steps of threads; none without runs or steps."""
    found: list[Object] = []
    for record in records:  # most files are of another format: the first record tells
        held = _thread_objects(record)
        if not held:
            return ()
        found += held
    last = {text_at(one, "id") or str(place): one for place, one in enumerate(found)}  # of a stream
    is_run = not {"thread.run", "thread.run.step"}.isdisjoint(one["object"] for one in last.values())
    return [one for one in last.values() if not one["object"].endswith(".delta")] if is_run else ()


_THREAD_OBJECTS: Final = frozenset(
    {"thread", "thread.message", "thread.run", "thread.run.step", "assistant"}
    | {"thread.message.delta", "thread.run.step.delta"}
)


def _thread_objects(one: Any) -> list[Object]:
    """Return the API's objects: the record, those of a page, or those that a document holds in lists."""
    if not isinstance(one, dict):
        return []
    held = [one, *one.values()]
    pages = [each.get("data") if isinstance(each, dict) else each for each in held]
    listed = [each for page in pages if isinstance(page, list) for each in page]
    return [each for each in objects([*held, *listed]) if text_at(each, "object") in _THREAD_OBJECTS]


def _threads(entries: Records) -> list[Records]:
    """Return the objects of each thread, with the assistants, which are of all."""
    shared = [entry for entry in entries if entry["object"] == "assistant"]
    threads: defaultdict[str, list[Object]] = defaultdict(list)
    for one in entries:
        if one["object"].startswith("thread."):
            threads[text_at(one, "thread_id")].append(one)
    if len(threads.keys() - {""}) <= 1:  # what names no thread is of the only one
        return [entries]
    return [[*shared, *found] for found in threads.values()]


def _thread(entries: Records) -> Iterator[Message]:
    names = {entry.get("id"): text_at(entry, "name") for entry in entries if entry["object"] == "assistant"}
    for _, one in sorted(_thread_places(entries), key=itemgetter(0)):
        agent = names.get(one.get("assistant_id")) or text_at(one, "assistant_id")
        time, error = one.get("created_at"), error_text(one.get("last_error"))
        if one["object"] == "thread.message":
            speaker = SPEAKERS.get(text_at(one, "role"), USER)
            yield from saying(speaker, one.get("content"), agent if speaker is AGENT else "", time)
        elif one["object"] == "thread.run" and error:
            yield Message(speaker=AGENT, text=error, agent=agent, failed=True)
        for call in objects(object_at(one, "step_details").get("tool_calls")):
            yield from _thread_call(call, agent, time, error)


def _thread_places(entries: Records) -> Iterator[tuple[tuple[int, int], Object]]:
    """Yield objects with their order: by the second a question, steps, their answer, a run's end."""
    for rank, kind in enumerate(("thread.run.step", "thread.message", "thread.run")):
        for one in in_order([entry for entry in entries if entry["object"] == kind], "created_at"):
            time = one.get("failed_at") or one.get("completed_at") if rank else None
            place = rank if one.get("role") != "user" else -1
            yield (nanoseconds(time or one.get("created_at")), place), one


def _thread_call(call: Object, agent: str, time: Any, error: str) -> Iterator[Message]:
    """Yield a call with its result; the error of its step is the result of one without output."""
    kind = text_at(call, "type")
    held, call_id = object_at(call, kind), call.get("id")
    yield asking(held.get("name") or kind, held.get("arguments", held.get("input")), call_id, agent, time)
    result = held.get("output", held.get("outputs", held.get("results")))
    logs = "\n".join(filter(None, (text_at(one, "logs") for one in objects(result))))
    if result or error:
        yield answering(logs or result, call_id, error="" if result else error, time=time)


# --- results and states of OpenAI's Agents SDK ---

_MADE: Final = ("new_items", "generatedItems", "generated_items", "newItems")


def _made_entries(records: Records) -> Records:
    found = _made(sole(records))
    return records if found and all(_raw(one) for one in found) else ()


def _made(one: Object) -> list[Object]:
    return next((found for key in _MADE if (found := objects(one.get(key)))), [])


def _raw(one: Object) -> Object:
    return object_at(one, "raw_item") or object_at(one, "rawItem")


def _made_run(entries: Records) -> Iterator[Message]:
    """Yield the input and the items that a run made; each names its agent."""
    one = entries[0]
    given = one.get("input", one.get("originalInput", one.get("original_input")))
    for each in objects(given) or [{"role": "user", "content": given}]:
        yield from saying(USER, each.get("content")) if each.get("role") == "user" else ()
    for each in _made(one):
        raw, agent = _raw(each), text_at(object_at(each, "agent"), "name")
        kind, call_id = text_at(raw, "type"), raw.get("call_id", raw.get("callId"))
        if kind == "function_call":
            yield asking(raw.get("name"), raw.get("arguments"), call_id, agent)
        elif kind in {"function_call_output", "function_call_result"}:
            yield answering(raw.get("output"), call_id, failed=raw.get("status") == "incomplete")
        elif raw.get("role") == "assistant":
            yield from saying(AGENT, raw.get("content"), agent)


# --- tasks of A2A ---


def _a2a_entries(records: Records) -> Records:
    is_known = all(map(_is_task, map(_task, records)))
    return list(map(_task, records)) if is_known else ()


def _task(one: Any) -> Object:
    found = one if isinstance(one, dict) else {}
    return object_at(found, "result") or found


def _is_task(one: Object) -> bool:
    has_turns = all(_A2A_ROLES.get(text_at(each, "role")) for each in objects(one.get("history")))
    return "contextId" in one and text_at(object_at(one, "status"), "state") != "" and has_turns


_A2A_ROLES: Final = {"user": USER, "agent": AGENT, "ROLE_USER": USER, "ROLE_AGENT": AGENT}


def _a2a(entries: Records) -> Iterator[Message]:
    one = entries[0]
    status = object_at(one, "status")
    failed = text_at(status, "state").lower().removeprefix("task_state_") in {"failed", "rejected"}
    for each in objects(one.get("history")):
        yield from saying(_A2A_ROLES[each["role"]], _a2a_text(each))
    for each in objects(one.get("artifacts")):
        yield from saying(AGENT, _a2a_text(each))
    text = _a2a_text(object_at(status, "message"))
    if failed:
        yield Message(speaker=AGENT, text=text or "the task failed", failed=True)
    else:
        yield from saying(AGENT, text)


def _a2a_text(message: Object) -> str:
    parts = objects(message.get("parts"))
    return "\n".join(json_text(part.get("text", part.get("data"))) for part in parts)


# --- Mistral's conversations, LangChain4j's and Spring AI's messages ---


def _mistral_entries(records: Records) -> Records:
    found = unwrapped(records, "entries", "outputs")
    is_known = all(text_at(one, "type") in _MISTRAL for one in found)
    return found if is_known and any(one["type"].startswith("message.") for one in found) else ()


_MISTRAL: Final = frozenset(
    {"message.input", "message.output", "function.call", "function.result", "tool.execution", "agent.handoff"}
)


def _mistral(entries: Records) -> Iterator[Message]:
    agent = ""
    for entry in entries:
        kind, call_id, time = (
            entry["type"],
            entry.get("tool_call_id", entry.get("id")),
            entry.get("created_at"),
        )
        agent = text_at(entry, "next_agent_name") or agent
        if kind in {"function.call", "tool.execution"}:
            yield asking(entry.get("name"), entry.get("arguments"), call_id, agent, time)
        if kind == "function.result" or "info" in entry:
            ran = object_at(entry, "info")
            yield answering(entry.get("result", ran.get("code_output", ran)), call_id, time=time)
        if kind.startswith("message."):
            speaker = USER if kind == "message.input" and entry.get("role") != "assistant" else AGENT
            yield from saying(speaker, entry.get("content"), agent if speaker is AGENT else "", time)


_JAVA: Final = {
    "USER": USER,
    "SYSTEM": SYSTEM,
    **dict.fromkeys(("AI", "ASSISTANT"), AGENT),
    **dict.fromkeys(("TOOL_EXECUTION_RESULT", "TOOL"), TOOL),
}
"""Speakers by LangChain4j's ``type`` and Spring AI's ``messageType``."""
_JAVA_KEYS: Final = frozenset({"contents", "toolExecutionRequests", "toolCalls", "media", "metadata"})


def _java_entries(records: Records) -> Records:
    """Return messages; records of other programs may have these types, but no message's own keys."""
    is_known = all(_java_kind(record) in _JAVA for record in records)
    is_its_own = is_known and any(not _JAVA_KEYS.isdisjoint(record) for record in records)
    return records if is_its_own and any(_JAVA[_java_kind(record)] is AGENT for record in records) else ()


def _java_kind(one: Any) -> str:
    return text_at(one, "messageType") or text_at(one, "type")


def _java(entries: Records) -> Iterator[Message]:
    for entry in entries:
        speaker, parts = _JAVA[_java_kind(entry)], objects(entry.get("contents"))
        text = entry.get("text") or "\n".join(filter(None, (text_at(part, "text") for part in parts)))
        if speaker is TOOL:
            for each in objects(entry.get("responses")) or [entry]:
                failed = each.get("isError") is True
                got = answering(each.get("responseData", each.get("text")), each.get("id"), failed=failed)
                yield replace(got, tool=text_at(each, "name") or text_at(each, "toolName"))
        else:
            calls = map(nested_call, objects(entry.get("toolExecutionRequests", entry.get("toolCalls"))))
            yield Message(speaker=speaker, text=json_text(text), calls=tuple(calls))


_SHAPES: Final = (
    Shape(name="agno", entries=_agno_entries, messages=_agno),
    Shape(name="letta", entries=_letta_entries, messages=_letta),
    Shape(name="dify", entries=_dify_entries, messages=_dify),
    Shape(name="dify", entries=_dify_nodes, messages=_dify_run),
    Shape(name="flowise", entries=_flowise_entries, messages=_flowise),
    Shape(name="dspy", entries=_react_entries, messages=_react),
    Shape(name="n8n", entries=_n8n_entries, messages=_n8n),
    Shape(name="assistants", entries=_thread_entries, messages=_thread, dialogues=_threads),
    Shape(name="openai-agents", entries=_made_entries, messages=_made_run),
    Shape(name="a2a", entries=_a2a_entries, messages=_a2a, dialogues=each_alone),
    Shape(name="mistral", entries=_mistral_entries, messages=_mistral),
    Shape(name="java", entries=_java_entries, messages=_java),
    *EVENT_SHAPES,
)

AGENT_RUNS: Final = in_shapes(
    _SHAPES,
    name="runs of OpenAI's Assistants, Bedrock's agents, AG2, Letta, Dify, Flowise, n8n, Agno, AG-UI, …",
    example="assistants-thread.json",
    source="the platforms' API references and the frameworks' sources, 2026",
    how=(
        "The messages, runs and run steps of a thread of OpenAI's Assistants, in one document or one a line;"
        " a run result or `state.toJSON()` of OpenAI's Agents SDK;"
        " the events of Bedrock's `invoke_agent` with `enableTrace=True`; `event.model_dump_json()` of AG2's"
        " `run(…).events`; Letta's and Dify's `GET …/messages`; the node executions or the"
        " stream of a Dify workflow; Flowise's `GET /chatmessage/ID`; n8n's"
        " `GET /executions/ID?includeData=true`; Agno's `json.dumps(run.to_dict())`; events of AG-UI or"
        " of a LlamaIndex workflow; DSPy's `ReAct` with its trajectory; tasks of A2A; Mistral's"
        " conversations; messages of LangChain4j and Spring AI"
    ),
)
