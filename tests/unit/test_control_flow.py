"""A run that waits, was cancelled or hands over by an exception has not failed; its look-alikes have."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from analyzer.analyses.analyst import RunAnalyst
from analyzer.analyses.models.scripted import ScriptedModel
from analyzer.inquiry.verdict import analysis_of
from analyzer.issues.counting import noted_run
from analyzer.issues.labels.kept_run import pack, unpack
from analyzer.methods.attribution import Attributor
from collector_processor.otlp import NO_TENANT
from semconv.dialects.reading.control_flow import Raised, raised_by
from semconv.model import Attribution, Blame, Event, Outcome, Span, Status, StepKind, Stop, Trajectory
from semconv.record import replace
from tests.factories import agent, chat, openinference, ordered, said, span, tool, workflow

PAUSE = "langgraph.errors.GraphInterrupt"
INTERRUPT = "(Interrupt(value={'lift': 7}, id='a1'),)"
CANCEL = "asyncio.exceptions.CancelledError"
GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "team.py", line 9, in run
  |     async with asyncio.TaskGroup() as group:
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "team.py", line 5, in ask
    |     raise GraphInterrupt(value)
    | {member}: what it says
    +------------------------------------
"""


def threw(kind: str, message: str = "", trace: str = "") -> Event:
    said = {"exception.type": kind, "exception.message": message, "exception.stacktrace": trace}
    return Event(name="exception", attributes={key: value for key, value in said.items() if value})


def raising(kind: str, message: str = "", *, status: str | None = None, trace: str = "") -> dict[str, Any]:
    return {"error": message or kind if status is None else status, "events": (threw(kind, message, trace),)}


def judged(trajectory: Trajectory) -> Attribution:
    analysis = RunAnalyst(attributor=Attributor()).unasked(trajectory)
    assert analysis is not None
    return analysis.attribution


def asking(number: int, name: str, **more: Any) -> Span:
    return chat(number, calls=[(name, '{"lift": 7}', f"c{number}")], **more)


def lift(*, top: dict[str, Any], middle: dict[str, Any], call: dict[str, Any]) -> Sequence[Span]:
    """A workflow, its agent, and the tool call at which the run ends; each may raise something."""
    return (
        workflow(1, task="Take lift 7 out of service.", end=100, **top),
        agent(2, "warden", parent=1, end=90, **middle),
        asking(3, "stop_lift", parent=2),
        tool(5, "stop_lift", parent=2, call_id="c3", arguments='{"lift": 7}', end=80, **call),
    )


def everywhere(kind: str, message: str = "") -> Sequence[Span]:
    return lift(**each(raising(kind, message)))


def each(raised: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Have all three spans raise the same."""
    return {"top": raised, "middle": raised, "call": raised}


QUIET: dict[str, Any] = {}


def at_tool(call: dict[str, Any]) -> Sequence[Span]:
    """Have the tool alone raise."""
    return lift(top=QUIET, middle=QUIET, call=call)


PAUSED = raising(PAUSE, INTERRUPT)
CANCELLED = raising(CANCEL)
LATE = raising("TimeoutError")
CRASHED = raising("ValueError", "no such lift")
AFTER = (
    tool(10, "stop_lift", parent=2, arguments='{"lift": 7}', result="stopped"),
    chat(12, parent=2, answer="Stopped."),
)
FAILS_AFTER = (tool(10, "post_notice", parent=2, start=95, end=98, **raising("OSError", "no paper")),)


def group(member: str) -> Sequence[Span]:
    said = "unhandled errors in a TaskGroup (1 sub-exception)"
    wrapped = raising("ExceptionGroup", said, trace=GROUP.replace("{member}", member))
    return lift(top=wrapped, middle=wrapped, call=wrapped)


def guarded(*, crashed: bool) -> Sequence[Span]:
    named: dict[str, Any] = {"gen_ai.operation.name": "guardrail_check"}
    named["gen_ai.guardrail.name"] = "no_secrets"
    scope = "opentelemetry.instrumentation.openai_agents"
    trips = raising("KeyError", "'rules'") if crashed else {"error": "Guardrail tripwire triggered"}
    more: dict[str, Any] = {} if crashed else {"gen_ai.guardrail.triggered": True}
    return (
        agent(2, "porter", parent=None, end=90, error=trips["error"]),
        span(3, name="guardrail_check", parent=2, scope=scope, attributes=named | more, **trips),
    )


def tripped(**raised: Any) -> Sequence[Span]:
    """An agent that a guardrail without a span of its own stopped; its workflow says nothing of it."""
    return (
        workflow(1, task="Write to the tenant.", end=100),
        agent(2, "porter", parent=1, end=90, **raised),
        chat(3, parent=2, end=80, answer="The code of the door is 4711."),
    )


def silent_top(*, then: Sequence[Span] = ()) -> Sequence[Span]:
    """An agent whose spans do not record that its tool was cancelled."""
    return (*at_tool(CANCELLED), *then)


def crash_beside(*, crash: dict[str, Any], top: dict[str, Any]) -> Sequence[Span]:
    return (
        workflow(1, task="Count the bikes of both yards.", end=100, **top),
        agent(2, "north", parent=1, start=5, end=50, **crash),
        chat(3, parent=2, start=6, end=49, **crash),
        agent(4, "south", parent=1, start=5, end=51, **CANCELLED),
        chat(5, parent=4, start=6, end=50.5, **CANCELLED),
    )


def two_attempts(second: dict[str, Any], answer: str = "") -> Sequence[Span]:
    """A run that waits, and its continuation as a second top span of the same run."""
    called = {"arguments": '{"lift": 7}', "result": "" if second else "stopped"}
    return (
        *lift(top=PAUSED, middle=PAUSED, call=PAUSED),
        workflow(20, task="Take lift 7 out of service.", start=7_000, end=7_100, answer=answer, **second),
        agent(21, "warden", parent=20, start=7_001, end=7_090, **second),
        tool(22, "stop_lift", parent=21, start=7_002, end=7_050, **called, **second),
        *(() if second else (chat(23, parent=21, start=7_060, end=7_080, answer=answer),)),
    )


WAITING = {
    "everywhere": everywhere(PAUSE, INTERRUPT),
    "below a quiet top": lift(top=QUIET, middle=PAUSED, call=PAUSED),
    "only the tool": at_tool(PAUSED),
    "bare class": everywhere("NodeInterrupt", INTERRUPT),
    "message alone": lift(**each({"error": f"GraphInterrupt{INTERRUPT}"})),
    "qualified in message": lift(**each({"error": f"{PAUSE}: lift 7"})),
    "repr of interrupt": at_tool({"error": INTERRUPT}),
    "wrapped": everywhere("Exception", f"GraphInterrupt({INTERRUPT})"),
    "group": group(PAUSE),
    "group without list": lift(top=raising("ExceptionGroup", "1 sub-exception"), middle=QUIET, call=PAUSED),
    "deferred": at_tool(raising("pydantic_ai.exceptions.CallDeferred")),
    "approval": at_tool(raising("pydantic_ai.exceptions.ApprovalRequired")),
    "strands": at_tool(raising("strands.types.interrupt.InterruptException")),
    "elicitation": lift(
        top=QUIET, middle=QUIET, call=raising("UrlElicitationRequiredError", "open the page")
    ),
    "error.type": lift(
        top=QUIET, middle=QUIET, call={"error": "", "attributes": {"error.type": "GraphInterrupt"}}
    ),
    "recorded as success": (
        workflow(1, end=100),
        tool(2, "stop_lift", end=50, events=(threw(PAUSE, INTERRUPT),)),
    ),
    "second approval": two_attempts(PAUSED),
    "application's approval": everywhere("ApprovalRequired", "an editor has to agree"),
    "approval named in words": everywhere("shop.errors.ToolApprovalRequiredError", "lift 7"),
    "pending confirmation": at_tool(raising("ConfirmationPending", "lift 7")),
    "calls for the caller": everywhere("requires_action", "submit the outputs of two calls"),
    "input of a person": everywhere("HumanInputRequired", "ausstehend: Freigabe durch die Leitung"),
    "review by hand": everywhere("clinic.ManualReviewNeededException", "dose above the limit"),
    "paused for a person": everywhere("PausedForReviewer", "論文7"),
    "interrupt for a person": everywhere("HumanInterrupt", "lift 7"),
}


@pytest.mark.parametrize("name", WAITING)
def test_a_run_that_waits_blames_nobody(name: str) -> None:
    found = judged(ordered(*WAITING[name]))
    assert (found.status, isinstance(found.verdict, Blame)) == (Status.WAITING, False)
    assert "waits for a person" in found.verdict.reason


CANCELS = {
    "everywhere": everywhere(CANCEL),
    "keyboard": everywhere("KeyboardInterrupt"),
    "consumer left": everywhere("GeneratorExit"),
    "abort": everywhere("AbortError", "This operation was aborted"),
    "abort without class": lift(**each({"error": "This operation was aborted"})),
    "java": everywhere("java.util.concurrent.CancellationException"),
    "java wrapped": everywhere(
        "java.util.concurrent.ExecutionException", "java.util.concurrent.CancellationException: x"
    ),
    "dotnet": everywhere("System.Threading.Tasks.TaskCanceledException", "A task was canceled."),
    "go": lift(**each({"error": "context canceled"})),
    "go, wrapped": lift(**each({"error": 'Post "http://lifts/7": context canceled'})),
    "go, with the words as class": everywhere("context canceled", "context canceled"),
    "go, with its class": everywhere("*url.Error", 'Post "http://lifts/7": context canceled'),
    "deadline of the run": lift(top=LATE, middle=CANCELLED, call=CANCELLED),
    "deadline around a whole loop": (
        agent(1, "warden", parent=None, end=100, **LATE),
        span(2, name="turn", parent=1, end=90, **CANCELLED),
        asking(3, "stop_lift", parent=2),
        tool(5, "stop_lift", parent=2, end=80, **CANCELLED),
    ),
    "nothing said above": silent_top(),
    "client left, in words": lift(top={"error": "client disconnected"}, middle=QUIET, call=QUIET),
    "cancelled by the user": lift(
        top={"error": "Run cancelled by user: not needed"}, middle=QUIET, call=QUIET
    ),
    "socket of the browser closed": lift(
        top=raising("starlette.websockets.WebSocketDisconnect", "1001"), middle=QUIET, call=CANCELLED
    ),
    "application's word for it": everywhere("ClientDisconnectedError", "tab closed"),
    "gRPC's code": everywhere(
        "grpc.aio.AioRpcError", "<AioRpcError of RPC that terminated with:\n\tstatus = StatusCode.CANCELLED"
    ),
    "gRPC's code in Go": everywhere("*fmt.wrapError", "ask: rpc error: code = Canceled desc = closing"),
    "gRPC's code in Java": everywhere("io.grpc.StatusRuntimeException", "CANCELLED: call was cancelled"),
    "task that a scheduler revoked": everywhere("celery.exceptions.TaskRevokedError", "revoked"),
    "swift": everywhere("CancellationError", "CancellationError()"),
    "rust": everywhere("tokio::task::JoinError", "task 7 was cancelled"),
    "rust, with the variant as class": everywhere("JoinError::Cancelled", "task 7 was cancelled"),
    "ruby": everywhere("Interrupt", ""),
    "ruby, by its host": everywhere("SignalException", "SIGTERM"),
    "socket closed by an interrupt": everywhere("java.nio.channels.ClosedByInterruptException"),
    "program stopped by its host": everywhere("SystemExit", "143"),
    "message of an unknown class": everywhere("WorkflowStopped", "workflow was terminated by user"),
    "in brackets": lift(**each({"error": "[Request interrupted by user]"})),
    "client gone": (
        span(100, name="POST /ask", kind=2, start=0, end=110, attributes={"http.response.status_code": 499}),
        replace(workflow(1, end=100, **CANCELLED), parent_id=span(100).span_id),
        chat(3, parent=1, end=90, **CANCELLED),
    ),
    "pipe of the client": (
        span(100, name="POST /ask", kind=2, start=0, end=110, **raising("BrokenPipeError", "Broken pipe")),
        agent(2, "porter", parent=100, end=100, **raising("GeneratorExit")),
        chat(3, parent=2, end=90, **raising("GeneratorExit")),
    ),
    "while a tool failed and was handled": (
        workflow(1, end=100, **CANCELLED),
        agent(2, "warden", parent=1, end=99, **CANCELLED),
        tool(3, "find_lift", parent=2, **CRASHED),
        chat(5, parent=2, end=98, **CANCELLED),
    ),
}


@pytest.mark.parametrize("name", CANCELS)
def test_a_cancelled_run_blames_nobody(name: str) -> None:
    found = judged(ordered(*CANCELS[name]))
    assert (found.status, isinstance(found.verdict, Blame)) == (Status.CANCELLED, False)
    assert "cancelled by its caller" in found.verdict.reason


FAILURES = {
    "own timeout of the tool": (everywhere("TimeoutError"), "warden"),
    "deadline of one call": (lift(top=QUIET, middle=LATE, call=CANCELLED), "warden"),
    "http client's timeout": (
        everywhere(
            "System.Threading.Tasks.TaskCanceledException",
            "The request was canceled due to the configured HttpClient.Timeout of 100 seconds elapsing.",
        ),
        "warden",
    ),
    "class of the application": (everywhere("shop.errors.PaymentInterrupted", "card declined"), "warden"),
    "same name, other package": (everywhere("shop.errors.CancelledError", "order 5 is void"), "warden"),
    "gRPC's code for a call that took too long": (
        everywhere("AioRpcError", "<AioRpcError of RPC that terminated with:\n\tstatus = StatusCode.LATE"),
        "warden",
    ),
    "program that ended itself": (everywhere("SystemExit", "2"), "warden"),
    "rust's task that panicked": (
        everywhere("tokio::task::JoinError", 'task 7 panicked with message "no rope"'),
        "warden",
    ),
    "an application's task": (everywhere("TaskStateError", "task 7 was cancelled"), "warden"),
    "file that may not be read": (everywhere("PermissionDenied", "open lifts.db"), "warden"),
    "token that was revoked": (everywhere("shop.errors.TokenRevokedError", "token 5"), "warden"),
    "deed of a customer": (everywhere("shop.errors.OrderError", "cancelled by the customer"), "warden"),
    "user without rights": (everywhere("shop.errors.AccessError", "user lacks permission"), "warden"),
    "everyday word": (everywhere("Cancelled", "order 5 is void"), "warden"),
    "permission that is missing": (everywhere("PermissionRequired", "key is read-only"), "warden"),
    "connection that a server closed": (everywhere("ServerDisconnectedError", "closed"), "warden"),
    "approval that is not there": (
        everywhere("NoApprovalRequired", "the order is already approved"),
        "warden",
    ),
    "what a customer cancelled": (
        at_tool({"error": "cancelled by customer: order 5 cannot be changed"}),
        "warden",
    ),
    "waited in vain": (everywhere("HumanInputRequiredTimeout", "nobody answered in 3 days"), "warden"),
    "approval that timed out": (everywhere("ApprovalPendingTimeoutError", "after 60 s"), "warden"),
    "proof of a person": (everywhere("HumanVerificationRequired", "solve the captcha"), "warden"),
    "a user's rights": (everywhere("UserPermissionRequired", "key is read-only"), "warden"),
    "a user's input": (everywhere("UserInputInvalid", "lift: not a number"), "warden"),
    "a waiting list": (everywhere("QueueWaitingListFull", "no slot"), "warden"),
    "settings to confirm": (everywhere("ConfirmationError", "mail address is invalid"), "warden"),
    "name in the middle": (at_tool({"error": "could not raise GraphInterrupt: x"}), "warden"),
    "prose that begins with it": (at_tool({"error": "GraphInterrupt is not defined"}), "warden"),
    "message of another class": (everywhere("NameError", f"GraphInterrupt{INTERRUPT}"), "warden"),
    "group with a crash": (group("shop.errors.LiftStuck"), "warden"),
    "crash beside a cancellation": (
        crash_beside(crash=CRASHED, top=raising("ExceptionGroup", "1 sub-exception")),
        "north",
    ),
    "crash that had the run cancelled": (crash_beside(crash=CRASHED, top=CANCELLED), "north"),
    "resumed, then failed": (two_attempts(CRASHED), "warden"),
    "broken pipe of a call": (at_tool(raising("BrokenPipeError")), "warden"),
    "guardrail that crashed": (guarded(crashed=True), "porter"),
    "guardrail that crashed, without a span": (
        tripped(error="{'message': 'Error in agent run', 'data': {'error': 'Guardrail tripwire triggered'}}"),
        "porter",
    ),
    "guardrail that crashed, wrapped": (
        tripped(
            **raising(
                "dev.langchain4j.guardrail.InputGuardrailException",
                "The guardrail NoSecrets failed with this message: rules is null",
                trace="dev.langchain4j…: failed\n\tat Run.java\nCaused by: java.lang.NullPointerException: x",
            )
        ),
        "porter",
    ),
    "guardrail of that name elsewhere": (tripped(**raising("shop.PIIDetectionError", "no model")), "porter"),
    "filter of the provider": (
        (
            agent(1, "porter", parent=None, end=90, error="content_filter"),
            chat(2, end=80, **raising("openai.BadRequestError", "Error code: 400 - content_filter")),
        ),
        "porter",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_that_looks_alike_is_attributed_as_before(name: str) -> None:
    spans, blamed = FAILURES[name]
    found = judged(ordered(*spans))
    assert found.status is Status.ATTRIBUTED
    assert isinstance(found.verdict, Blame)
    assert found.verdict.agent == blamed


def test_a_deadline_of_one_call_stays_a_failure_if_the_agent_only_gives_up() -> None:
    told = (chat(85, parent=2, start=85, end=88, answer="Sorry, I could not stop the lift."),)
    trajectory = ordered(*silent_top(then=told))
    assert [step.is_failed for step in trajectory.steps] == [False, True, False]
    assert judged(trajectory).status is Status.ATTRIBUTED


def test_a_wait_that_was_resumed_is_no_evidence() -> None:
    trajectory = ordered(*two_attempts(QUIET, answer="Lift 7 is out of service."))
    assert trajectory.stop is None
    assert [step.stop for step in trajectory.steps] == [None, Stop.WAITING, None, None]
    assert judged(trajectory).status is Status.NO_FAILURE


def test_a_wait_that_was_resumed_in_the_same_span_is_no_evidence() -> None:
    spans = (*at_tool(PAUSED)[:3], tool(5, "stop_lift", parent=2, call_id="c3", **PAUSED), *AFTER)
    assert judged(ordered(*spans)).status is Status.NO_FAILURE


def test_a_run_that_waited_and_then_failed_elsewhere_is_attributed_there() -> None:
    spans = (*at_tool(PAUSED), *FAILS_AFTER)
    found = judged(ordered(*spans)).verdict
    assert isinstance(found, Blame)
    assert "post_notice" in found.reason


def test_a_turn_that_crashed_counts_although_the_last_one_waits() -> None:
    spans = (
        span(1, name="session", end=300),
        agent(2, "warden", end=50, **CRASHED),
        chat(3, parent=2, end=49, heard=[said("user", "Is lift 9 running?")], **CRASHED),
        agent(10, "warden", end=190, **PAUSED),
        chat(11, parent=10, end=120, heard=[said("user", "Stop lift 7.")], calls=[("stop_lift", "{}", "c")]),
        tool(13, "stop_lift", parent=10, call_id="c", end=180, **PAUSED),
    )
    found = judged(ordered(*spans))
    assert found.status is Status.ATTRIBUTED
    assert isinstance(found.verdict, Blame)
    assert found.verdict.step == 0


def test_a_result_that_lists_interrupts_says_that_the_run_waits() -> None:
    result = json.dumps({"__interrupt__": [{"value": "approve?"}], "messages": []})
    graph = {"output.value": result}
    spans = (
        openinference(1, "CHAIN", name="LangGraph", parent=None, end=100, attributes=graph),
        openinference(2, "LLM", name="model", attributes={"output.value": "Let me ask."}),
    )
    assert judged(ordered(*spans)).status is Status.WAITING


def test_deferred_requests_as_the_result_say_that_the_run_waits() -> None:
    result = json.dumps({"calls": [], "approvals": [{"tool_name": "stop_lift"}], "metadata": {}})
    spans = (
        agent(1, "warden", parent=None, end=100, attributes={"final_result": result}),
        asking(2, "stop_lift"),
    )
    assert judged(ordered(*spans)).status is Status.WAITING


@pytest.mark.parametrize(
    "result",
    [
        '{"calls": [], "approvals": []}',
        '{"status": "suspended", "account": 7}',
        '{"status": "paused", "subscription": "gold"}',
        '{"calls": [1], "approvals": [2], "visits": 3}',
        "GraphInterrupt(Interrupt(value=1))",
    ],
)
def test_a_result_in_the_users_own_words_says_nothing_of_the_kind(result: str) -> None:
    top = agent(1, "warden", parent=None, end=100, attributes={"final_result": result})
    assert judged(ordered(top, chat(2, answer=result))).status is Status.NO_FAILURE


@pytest.mark.parametrize("text", [f"GraphInterrupt{INTERRUPT}", "CancelledError", f"{PAUSE}: wait"])
def test_what_a_model_says_or_a_tool_returns_is_no_stop(text: str) -> None:
    spans = (
        workflow(1, answer=text, end=100),
        asking(2, "read_log"),
        tool(4, "read_log", result=text, call_id="c2"),
        chat(6, answer=text, heard=[said("user", text)]),
    )
    trajectory = ordered(*spans)
    assert trajectory.stop is None
    assert not any(step.stop for step in trajectory.steps)


def test_a_transfer_by_exception_is_a_handoff() -> None:
    command = raising("langgraph.errors.ParentCommand", "Command(graph='__parent__', goto='cashier')")
    spans = (
        workflow(1, task="What do I owe?", answer="You owe 12.40.", end=100),
        agent(2, "desk", end=30, **command),
        asking(3, "to_cashier", parent=2, start=21, end=22),
        tool(4, "to_cashier", parent=2, start=23, end=25, call_id="c3", **command),
        agent(5, "cashier", start=40, end=90),
        chat(6, parent=5, answer="You owe 12.40.", start=41, end=80),
    )
    trajectory = ordered(*spans)
    step = trajectory.steps[1]
    assert (step.kind, step.target, step.stop) == (StepKind.HANDOFF, "cashier", Stop.HANDED_OVER)
    assert judged(trajectory).status is Status.NO_FAILURE


def test_a_guardrail_that_did_its_job_blames_nobody() -> None:
    found = judged(ordered(*guarded(crashed=False)))
    assert found.status is Status.NO_FAILURE
    assert found.verdict.reason == "the check no_secrets stopped the run, as it is there to do"


TRIPS: dict[str, dict[str, Any]] = {
    "printed error": {
        "error": "{'message': 'Guardrail tripwire triggered', 'data': {'guardrail': 'no_secrets'}}",
        "attributes": {"error.type": "_OTHER"},
    },
    "error as JSON": {
        "error": '{"message":"Guardrail tripwire triggered","data":{"guardrail":"no_secrets"}}'
    },
    "langchain": raising("langchain.agents.middleware._redaction.PIIDetectionError", "Detected 1 email"),
    "langchain4j": raising(
        "dev.langchain4j.guardrail.OutputGuardrailException", "holds a code", trace="at X"
    ),
    "agent framework": raising("agent_framework._middleware.MiddlewareTermination", "blocked"),
    "pydantic-ai": raising("pydantic_ai_guardrails.exceptions.OutputGuardrailViolation", "holds a code"),
    "guardrails ai": raising("guardrails.errors.ValidationError", "Validation failed for field"),
}


@pytest.mark.parametrize("name", TRIPS)
def test_a_guardrail_without_a_span_of_its_own_did_its_job_too(name: str) -> None:
    trajectory = ordered(*tripped(**TRIPS[name]))
    assert trajectory.stop is Stop.GUARDED
    assert judged(trajectory).status is Status.NO_FAILURE


def test_the_reason_names_what_is_waited_for_and_what_was_running() -> None:
    waits, cancelled = judged(ordered(*WAITING["everywhere"])), judged(ordered(*CANCELS["everywhere"]))
    assert waits.verdict.reason == "the run waits for a person's approval of stop_lift (step 1)"
    ended = "the run was cancelled by its caller while step 1 of warden was running"
    assert cancelled.verdict.reason == ended


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ToolPermissionDenied", "User denied permission"),
        ("ToolPermissionDenied", "tool call was rejected by the user"),
        ("ToolCallRejected", "El operador no lo permite"),
    ],
)
def test_a_call_that_a_person_did_not_allow_fails_nobody(name: str, words: str) -> None:
    answer = "Understood, I leave lift 7 as it is."
    refused = raising(name, words)
    spans = (*at_tool(refused), chat(85, parent=2, start=85, end=88, answer=answer))
    assert judged(ordered(*spans)).status is Status.NO_FAILURE


def test_a_tool_that_pydantic_ai_put_off_waits_whatever_its_status() -> None:
    put_off = {"attributes": {"pydantic_ai.tool.deferral.name": "ApprovalRequired"}}
    assert judged(ordered(*at_tool(put_off))).status is Status.WAITING


def test_adks_own_answer_to_a_call_that_needs_a_confirmation_is_a_wait() -> None:
    answer = json.dumps({"error": "This tool call requires confirmation, please approve or reject."})
    other = json.dumps({"error": "This tool call requires confirmation by the bank."})

    def status(result: str) -> Status:
        scope = "gcp.vertex.agent"
        spans = (
            agent(2, "warden", parent=None, end=90, scope=scope),
            asking(3, "stop_lift", parent=2, scope=scope),
            tool(5, "stop_lift", parent=2, call_id="c3", result=result, scope=scope),
        )
        return judged(ordered(*spans)).status

    assert status(answer) is Status.WAITING
    assert status(other) is not Status.WAITING
    assert status(json.dumps({"id": 4, "error": {"code": 409}})) is not Status.WAITING


@pytest.mark.parametrize("name", ["everywhere", "below a quiet top"])
def test_a_kept_run_still_waits(name: str) -> None:
    trajectory = ordered(*WAITING[name])
    packed = pack(trajectory, lambda text: text)
    assert packed is not None
    kept = unpack(packed).trajectory
    assert (kept.stop, [step.stop for step in kept.steps]) == (Stop.WAITING, [None, Stop.WAITING])


@pytest.mark.parametrize("spans", [WAITING["everywhere"], CANCELS["everywhere"]])
def test_a_run_without_a_result_counts_for_no_agent(spans: Sequence[Span]) -> None:
    trajectory = ordered(*spans)
    noted = noted_run(NO_TENANT, trajectory, analysis_of(judged(trajectory), trajectory), lambda text: text)
    assert (noted.agents, noted.blamed, noted.mark) == ((), None, None)


@pytest.mark.parametrize("spans", [WAITING["everywhere"], CANCELS["everywhere"]])
async def test_no_model_is_asked(spans: Sequence[Span]) -> None:
    model = ScriptedModel(replies=("{}",))
    found = await RunAnalyst(attributor=Attributor(model=model)).analyse(ordered(*spans))
    assert found.attribution.status in {Status.WAITING, Status.CANCELLED}
    assert model.prompts == []


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_stated_outcome_wins(outcome: Outcome) -> None:
    trajectory = replace(ordered(*WAITING["everywhere"]), outcome=outcome)
    wanted = Status.ATTRIBUTED if outcome is Outcome.FAILURE else Status.NO_FAILURE
    assert judged(trajectory).status is wanted


@pytest.mark.parametrize(
    ("event", "means"),
    [
        (threw("langgraph.errors.ParentCommand"), Raised.TRANSFER),
        (threw("trio.Cancelled"), Raised.CANCELLATION),
        (threw("agno.exceptions.RunCancelledException"), Raised.ABANDONED),
        (threw("OutputGuardrailTripwireTriggered"), Raised.GUARDRAIL),
        (threw("httpx.ReadTimeout"), Raised.TIMEOUT),
        (threw("ExceptionGroup", "2 sub-exceptions"), Raised.GROUP),
        (threw("ValueError", "Interrupt(value=1)"), Raised.ERROR),
    ],
)
def test_an_exception_says_what_was_raised(event: Event, means: Raised) -> None:
    assert raised_by(span(1, error="it raised", events=(event,)), None) is means


def test_the_last_exception_decides() -> None:
    events = (threw(CANCEL), threw("ValueError", "no such lift"))
    assert raised_by(span(1, error="x", events=events), None) is Raised.ERROR
