"""Programs: which are instrumented, what of their spans is forwarded, which traces are one run."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from analyzer.programs.auto_instrument import Installed, advice, instrumenting, own_source, python_of
from analyzer.programs.call_spans import joined_with
from analyzer.programs.collecting import Collected
from analyzer.programs.model_call import PassedCall
from analyzer.programs.program_runs import gathered, is_bare, runs_of_program
from collector_processor.core.runs import Run
from collector_processor.exporters import MemoryExporter
from collector_processor.otlp import Arrival, Rejected, SendOutcome, Signal, Tenant, TryLater
from semconv.dialects import USUAL
from semconv.model import UNKNOWN_AGENT, StepKind, Trace, TraceId
from semconv.record import replace
from tests.factories import at
from tests.unit.test_call_spans import ASKED, CHAT, FOUND, TOLD, call, ids, own, steps

FIGURES = "January 1,200 units, February 1,450 units and March 980."
TOTAL = "In the first quarter we sold 3,630 units in all."


def agent(second: int, name: str, asked: str, said: str, **root: Any) -> Run:
    """A trace that begins at a second: an agent, and its one model call."""
    heard = json.dumps([{"role": "user", "parts": [{"type": "text", "content": asked}]}])
    told = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": said}]}])
    named: Any = {"gen_ai__operation__name": "invoke_agent", "gen_ai__agent__name": name}
    texts: Any = {"gen_ai__input__messages": heard, "gen_ai__output__messages": told}
    spans = (own(1, second, second + 0.9, **named, **root), own(2, second, second + 0.8, 1, **CHAT, **texts))
    trace = Trace(spans=tuple(replace(one, trace_id=TraceId(f"{second:032x}")) for one in spans))
    return Run(trace=trace, trajectory=steps(trace.spans))


def shown(*traces: Run) -> list[list[str]]:
    """The agents of each run that these traces are."""
    runs = runs_of_program(traces, (), "report", USUAL, ids())
    return [[step.agent for step in run.trajectory.steps] for run in runs]


def test_agents_that_a_program_calls_in_turn_are_one_run_with_its_task_and_answer() -> None:
    traces = (
        agent(1, "researcher", "How many in the north?", FIGURES),
        agent(2, "analyst", f"How many in the north? {FIGURES}", "3,630."),
        agent(3, "writer", "Say 3,630.", TOTAL),
    )
    (run,) = runs_of_program(traces, (), "report", USUAL, ids())
    assert [step.agent for step in run.trajectory.steps] == ["researcher", "analyst", "writer"]
    assert (run.trajectory.task, run.trajectory.output) == ("How many in the north?", TOTAL)
    assert len({span.trace_id for span in run.trace.spans}) == 1


def test_an_agent_that_begins_anew_begins_another_run() -> None:
    loop = [
        agent(second, name, asked, said)
        for second, name, asked, said in (
            (1, "researcher", "How many in the north?", "980."),
            (2, "analyst", "980", "We sold 980."),
            (3, "researcher", "How many in the south?", "1,450."),
            (4, "analyst", "1,450", "We sold 1,450."),
        )
    ]
    assert shown(*loop) == [["researcher", "analyst"], ["researcher", "analyst"]]


def test_answers_of_agents_side_by_side_that_one_agent_reads_make_one_run() -> None:
    other = "In the south it was 500 units, 600 units and 700 units."
    traces = (
        agent(1, "researcher", "How many in the north?", FIGURES),
        agent(2, "researcher", "How many in the south?", other),
        agent(3, "writer", f"{FIGURES}\n{other}", TOTAL),
    )
    assert shown(*traces) == [["researcher", "researcher", "writer"]]


def test_workflows_that_a_program_declares_stay_apart_unless_one_reads_the_others_answer() -> None:
    first = agent(1, "researcher", "How many in the north?", FIGURES, gen_ai__workflow__name="north")
    second = agent(2, "clerk", "Book the hall.", TOTAL, gen_ai__workflow__name="booking")
    reader = agent(2, "clerk", f"Add up: {FIGURES}", TOTAL, gen_ai__workflow__name="sums")
    assert shown(first, second) == [["researcher"], ["clerk"]]
    assert shown(first, reader) == [["researcher", "clerk"]]


def test_a_question_that_has_nothing_to_do_with_the_last_run_begins_another() -> None:
    """One run of both would hold the second answer against the first question."""
    poet = agent(1, "poet", "Write a poem on rain in at most four words.", "Rain falls, rain ends.")
    cook = agent(2, "cook", "How long do I boil eggs?", "For seven minutes in salted water.")
    editor = agent(2, "editor", "Is this poem on rain too long?", "No.")
    unknown = agent(2, "cook", "", "For seven minutes.")
    assert shown(poet, cook) == [["poet"], ["cook"]]
    assert shown(poet, editor) == [["poet", "editor"]]
    assert shown(poet, unknown) == [["poet", "cook"]]


def test_a_model_call_that_two_instrumentations_record_is_one_step() -> None:
    once = agent(1, "writer", "Say 3,630.", TOTAL)
    twin = replace(once.trace.spans[1], trace_id=TraceId(f"{9:032x}"), parent_id=None, start_ns=at(1200))
    again, other = (
        Run(trace=Trace(spans=spans), trajectory=steps(spans))
        for spans in ((twin,), (replace(twin, start_ns=at(4000), end_ns=at(4500)),))
    )
    assert shown(once, again) == [["writer"]]
    assert shown(once, other) == [["writer"], [UNKNOWN_AGENT]]


def test_model_calls_that_each_begin_a_trace_are_one_run_of_the_program() -> None:
    """Instrumentation of a provider's client records texts, and neither agents nor what encloses a call."""
    question = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "?"}]}])
    spans = [
        replace(
            own(1, second - 0.1, second + 0.6, **CHAT, gen_ai__input__messages=question),
            trace_id=TraceId(f"{second:032x}"),
        )
        for second in (1, 3, 5)
    ]
    assert all(is_bare([span], USUAL) for span in spans)
    parts = gathered([[span] for span in spans], (ASKED, FOUND, TOLD), "report", ids())
    joined, left = joined_with(parts, (ASKED, FOUND, TOLD), USUAL, ids())
    assert left == ()
    found = steps(joined).steps
    assert [(step.kind, step.agent) for step in found] == [
        (StepKind.LLM, "researcher"),
        (StepKind.TOOL, "researcher"),
        (StepKind.LLM, "researcher"),
        (StepKind.LLM, UNKNOWN_AGENT),
    ]
    assert {step.group for step in found} == {None}  # the tool neither overlaps a call nor is inside one
    assert len({span.span_id for span in joined}) == len(joined)
    alone = [Run(trace=Trace(spans=(span,)), trajectory=steps((span,))) for span in spans]
    (run,) = runs_of_program(alone, (ASKED, FOUND, TOLD), "report", USUAL, ids())
    assert run.trajectory.steps[-1].agent == "agent 1", "as without instrumentation"


def test_a_trace_that_an_agent_or_a_server_begins_is_a_run_by_itself() -> None:
    chat = own(2, 1, 2, 1, **CHAT)
    assert not is_bare([own(1, 0, 9, gen_ai__operation__name="invoke_agent"), chat], USUAL)
    assert not is_bare([own(1, 0, 9, http__request__method="POST"), chat], USUAL)


def told(*calls: PassedCall) -> list[list[str]]:
    """The agents of each run that model calls without spans are."""
    runs = runs_of_program((), calls, "report", USUAL, ids())
    return [[step.agent for step in run.trajectory.steps if step.kind is StepKind.LLM] for run in runs]


def asked(second: int, name: str, question: str, said: str) -> PassedCall:
    return call(second, f"You are the {name}.", {"role": "user", "content": question}, said={"content": said})


def test_a_loop_over_questions_without_spans_gives_a_run_for_each() -> None:
    def loop(region: str, units: str, second: int) -> tuple[PassedCall, ...]:
        question = f"How many did we sell in the {region}?"
        return (
            asked(second, "researcher", question, f"We sold {units} there."),
            asked(second + 1, "writer", f"{question}\nWe sold {units} there.", f"{units} units."),
        )

    assert told(*loop("north", "4,711", 1), *loop("south", "1,450", 5)) == [["researcher", "writer"]] * 2


@pytest.mark.parametrize(
    ("answers", "used"),
    [
        (("We sold 4,711 there.", "Just 1,450."), "The north sold 4711, the south 1450."),
        (("Lyon", "Paris."), "Which of Lyon and Paris is nearer?"),
    ],
    ids=["figures", "names"],
)
def test_answers_that_a_later_question_uses_are_of_the_same_run(answers: tuple[str, str], used: str) -> None:
    """The program reads the answers, and puts what it found into another sentence."""
    first = asked(1, "researcher", "What of the north?", answers[0])
    second = asked(2, "researcher", "What of the south?", answers[1])
    assert told(first, second, asked(3, "analyst", used, "Done.")) == [
        ["researcher", "researcher", "analyst"]
    ]
    assert told(first, second, asked(3, "analyst", f"What of the south? {answers[1]}", "Done.")) == [
        ["researcher"],
        ["researcher", "analyst"],
    ]


def test_an_answer_that_a_model_gives_by_a_tool_is_used_as_a_text_is() -> None:
    """The three share their instructions, so that each begins anew."""
    texts = (FIGURES, "We sold many of them in this quarter.", TOTAL)
    calls = [
        {"id": "c1", "function": {"name": "final_answer", "arguments": json.dumps({"answer": text})}}
        for text in texts
    ]
    asks = ("Look the north up.", f"Say how many: {FIGURES}", f"Be brief: {texts[1]}")
    passed = (
        call(second, "Use tools.", {"role": "user", "content": ask}, said={"tool_calls": [one]})
        for second, (ask, one) in enumerate(zip(asks, calls, strict=True))
    )
    assert told(*passed) == [["agent 1"] * 3]


def test_each_conversation_is_compared_with_the_latest_alone() -> None:
    """A program of thousands of conversations is put together in linear time."""

    def joined(between: int) -> bool:
        first = asked(1, "researcher", "How many in the north?", "We sold 4,711 there.")
        other = (asked(at + 2, "poet", f"Verse no. {at}, please.", "Grey.") for at in range(between))
        last = asked(between + 5, "analyst", "Are 4711 enough?", "Yes.")
        return ["researcher", "analyst"] in told(first, *other, last)

    assert joined(10)
    assert not joined(250)


def test_a_conversation_that_goes_on_is_one_run_whatever_is_asked_meanwhile() -> None:
    first = {"role": "user", "content": "Write a poem on rain."}
    between = {"role": "assistant", "content": "Rain falls."}
    again = {"role": "user", "content": "Now one on eggs, in salted water."}
    calls = (
        call(1, "You are the poet.", first, said={"content": "Rain falls."}),
        call(3, "You are the poet.", first, between, again, said={"content": "Eggs boil."}),
    )
    assert told(*calls) == [["poet", "poet"]]
    assert (
        told(calls[0], call(3, "You are the poet.", again, said={"content": "Eggs boil."})) == [["poet"]] * 2
    )


def test_one_word_of_two_questions_is_chance_and_one_that_an_answer_added_is_not() -> None:
    poet = asked(1, "poet", "Write a poem on rain and its colours.", "Grey falls the weather.")
    cook = asked(2, "cook", "Which colours have boiled eggs in salted water?", "White.")
    critic = asked(2, "critic", "Which mood has such grey paint?", "A sad one.")
    dichter = asked(1, "dichter", "Schreibe eine Zeile über Regen.", "Es fällt.")
    koch = asked(2, "koch", "Welche Eier soll eine Köchin kaufen?", "Keine.")
    assert told(poet, cook) == [["poet"], ["cook"]]
    assert told(poet, critic) == [["poet", "critic"]]
    assert told(dichter, koch) == [["dichter"], ["koch"]]


READY = Installed(
    place="/site/auto",
    can_configure=True,
    exporters=("console", "otlp_proto_grpc", "otlp_proto_http"),
    instrumentors=("openai",),
    packages=frozenset({"opentelemetry-distro", "opentelemetry-exporter-otlp", "openai"}),
)
BARE = replace(READY, place="", can_configure=False, exporters=(), packages=frozenset({"openai"}))


@pytest.mark.parametrize(
    ("command", "python"),
    [
        (["python", "a.py"], "python"),
        (["/x/bin/python3.12", "-m", "a"], "/x/bin/python3.12"),
        (["uv", "run", "a.py"], None),
        (["opentelemetry-instrument", "python", "a.py"], None),
        (["pythonic"], None),
    ],
)
def test_the_python_that_a_command_starts_is_known_or_none(command: list[str], python: str | None) -> None:
    assert python_of(command) == python


PLAIN = "from openai import OpenAI\n"


@pytest.mark.parametrize(
    ("command", "files", "expected"),
    [
        pytest.param(["a.py"], {"a.py": PLAIN}, False, id="none"),
        pytest.param(["-u", "-W", "error", "a.py", "-m", "x"], {"a.py": PLAIN}, False, id="options"),
        pytest.param(["-m", "pkg.app"], {"pkg/app.py": PLAIN}, False, id="module"),
        pytest.param(["-m", "pkg"], {"pkg/__main__.py": PLAIN, "pkg/__init__.py": ""}, False, id="package"),
        pytest.param(
            ["a.py"], {"a.py": PLAIN, "tests/t.py": "import opentelemetry"}, False, id="not imported"
        ),
        pytest.param(["a.py"], {"a.py": "from opentelemetry import trace"}, True, id="in the script"),
        pytest.param(["a.py"], {"a.py": "import logfire"}, True, id="a product"),
        pytest.param(
            ["a.py"], {"a.py": "import b.c", "b/c.py": "TracerProvider"}, True, id="in an import of its own"
        ),
        pytest.param(
            ["sub/a.py"],
            {"sub/a.py": "from b import x", "sub/b/__init__.py": "from . import y", "sub/b/y.py": "openlit"},
            True,
            id="in a relative import",
        ),
        pytest.param(["a.py"], {"a.py": "import a"}, False, id="imports itself"),
        pytest.param(["a.py"], {}, True, id="no such file"),
        pytest.param(["-m", "elsewhere"], {}, True, id="an installed module"),
        pytest.param(["-c", "pass"], {}, True, id="no file"),
        pytest.param([], {}, True, id="no argument"),
        pytest.param(["a.py"], {"a.py": "def"}, True, id="no Python"),
        pytest.param(["a.py"], {"a.py": "(" * 5000 + ")" * 5000}, True, id="deep"),
        pytest.param(["a.py"], {"a.py": "#" * (2 << 20)}, True, id="large"),
        pytest.param(
            ["a.py"],
            {"a.py": "\n".join(f"import m{n}" for n in range(400)), **{f"m{n}.py": "" for n in range(400)}},
            True,
            id="many",
        ),
    ],
)
def test_a_program_that_names_telemetry_or_cannot_be_read_has_its_own(
    command: list[str], files: Mapping[str, str], expected: bool, tmp_path: Path
) -> None:
    for name, source in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source)
    assert (own_source(["python", *command], tmp_path) is None) is expected


def test_the_variables_are_those_of_opentelemetry_instrument_and_the_users_stay() -> None:
    assert instrumenting({}, READY) == {
        "PYTHONPATH": "/site/auto",
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_LOGS_EXPORTER": "otlp",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
    }
    own = {"PYTHONPATH": os.pathsep.join(("/mine", "/site/auto")), "OTEL_METRICS_EXPORTER": "otlp"}
    found = instrumenting(own, replace(READY, exporters=("otlp_proto_grpc",)))
    assert found["PYTHONPATH"] == os.pathsep.join(("/site/auto", "/mine"))
    assert found["OTEL_EXPORTER_OTLP_PROTOCOL"] == "grpc"
    assert "OTEL_METRICS_EXPORTER" not in found


def test_ready_is_what_can_send_spans() -> None:
    assert READY.is_ready
    for lacking in (
        replace(READY, place=""),
        replace(READY, can_configure=False),
        replace(READY, exporters=("console",)),
    ):
        assert not lacking.is_ready


GRAPH = "import os\nfrom langgraph.graph import StateGraph\nimport langchain"


def test_what_is_missing_for_the_frameworks_that_a_program_imports_is_named() -> None:
    assert advice(READY, GRAPH) == advice(BARE, GRAPH) == ""  # a client alone: the gateway sees all of it
    graph = frozenset({"openai", "langgraph", "langchain"})
    assert advice(replace(BARE, packages=graph), GRAPH) == (
        "more can be seen of langgraph, langchain: pip install opentelemetry-distro"
        " opentelemetry-exporter-otlp openinference-instrumentation-langchain in the program's environment,"
        " and run it again"
    )
    ready = replace(READY, packages=READY.packages | graph)
    assert "pip install openinference-instrumentation-langchain in" in advice(ready, GRAPH)
    whole = replace(ready, packages=ready.packages | {"openinference-instrumentation-langchain"})
    assert advice(whole, GRAPH) == ""
    native = replace(BARE, packages=frozenset({"google-adk"}))
    told = advice(native, "from google.adk.agents import Agent")
    assert "of google-adk: pip install opentelemetry-distro opentelemetry-exporter-otlp in" in told
    assert advice(native, "import google.genai") == ""
    assert advice(replace(BARE, packages=graph), "import langgraphs  # from langchain import hub") == ""


class Hanging(MemoryExporter):
    """Takes requests and never answers."""

    async def send(self, signal: Signal, body: bytes, tenant: Tenant, hops: tuple[str, ...]) -> SendOutcome:
        await super().send(signal, body, tenant, hops)
        await asyncio.Event().wait()
        raise AssertionError


@pytest.mark.parametrize(
    ("backend", "undelivered"),
    [
        (MemoryExporter(), 0),
        (MemoryExporter(otherwise=Rejected(reason="no such project")), 2),
        (MemoryExporter(otherwise=TryLater(reason="busy")), 2),
        (Hanging(), 2),
    ],
)
async def test_each_request_that_the_backend_did_not_take_is_counted(
    backend: MemoryExporter, undelivered: int
) -> None:
    collected = Collected(backend, last_s=0.05)
    passing = asyncio.create_task(collected.pass_on())
    for body in (b"one", b"two"):
        await collected.accept(Arrival(signal=Signal.TRACES, body=body))
    await collected.drain()
    passing.cancel()
    with suppress(asyncio.CancelledError):
        await passing
    assert collected.undelivered == undelivered
    assert bool(collected.why) is (undelivered > 0)
    assert collected.bodies(Signal.TRACES) == (b"one", b"two")
