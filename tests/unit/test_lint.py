"""What a trace lacks, on which spans, and the line that adds it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from analyzer.cli.main import run as command
from collector_processor.lint import RULES, Finding, Severity, lint
from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.stages import rebuild
from semconv.model import Attributes, Resource, Span
from tests.factories import agent, chat, openinference, said, span, tool, workflow
from tests.renderings.own import OWN
from tests.renderings.play import Asked, ModelCall, Play, ToolUse, Turn
from tests.renderings.staging import Stage

ASKED = Asked(tool="search", arguments="{}", call_id="c1")
ACTS = (ModelCall(asks=(ASKED,)), ToolUse(asked=ASKED, result="found"), ModelCall(text="done"))
PLAY = Play(name="p", task="t", stages=(Turn(agent="a", instructions="", acts=ACTS),))
QUESTION = [said("user", "q")]


def found(*spans: Span) -> dict[str, Finding]:
    (run,) = rebuild([encode(spans)])
    return {finding.rule: finding for finding in lint(run)}


def spoken(number: int, **more: Any) -> Span:
    return chat(number, heard=QUESTION, answer="x", **more)


def test_a_run_of_our_own_instrumentation_lacks_nothing() -> None:
    (run,) = rebuild([encode(OWN.spans(Stage(PLAY)))])
    assert lint(run) == ()


def ended(outcome: str) -> Span:
    whole = workflow(task="q")
    return replace(whole, attributes={**whole.attributes, "blamespan.task.outcome": outcome})


class Lack(NamedTuple):
    rule: str
    severity: Severity
    times: int
    of: int
    spans: Sequence[Span]
    mend: str


INFERRED: Attributes = {"acme.input_tokens": 3, "acme.output_tokens": 4, "acme.model": "m", "acme.mood": "x"}
TASK = workflow(task="q")
OLD_HANDOFF = span(2, parent=1, attributes={"gen_ai.operation.name": "handoff"})
OUTER = openinference(1, "TOOL", parent=None, end=90, attributes={"tool.name": "s", "output.value": "r"})
TWO_TOOLS = [tool(n, "s", start=30, end=50, result="r") for n in (3, 4)]
HIDDEN = chat(2, heard=[said("user", "__REDACTED__")], agent_name="a")
CUT = spoken(2, agent_name="a", dropped_attributes=300)
EARLY = spoken(2, start=1, end=2, service="y")
SET_OUTCOME = 'root.set_attribute("blamespan.task.outcome", "failure")'
DISABLED = "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"
NAMELESS = span(2, name="clerk", parent=1, end=90)
BAD, WARN, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
CASES: list[tuple[str, Severity, int, int, Sequence[Span], str]] = [
    ("unknown-dialect", BAD, 1, 1, [span(1, scope="ag2-next", attributes={"ag2.x": 1})], "docs/"),
    ("unknown-dialect", BAD, 1, 2, [span(1), span(2, parent=1)], "docs/convention.md"),
    ("inferred", WARN, 1, 1, [span(1, attributes=INFERRED)], "blamespan map"),
    ("no-agent", BAD, 1, 2, [TASK, spoken(2), spoken(3, agent_name="a")], "agent.name"),
    ("agent-not-on-calls", INFO, 1, 1, [agent(1, "a", parent=None, end=99), spoken(2)], "agent.name"),
    ("no-task", BAD, 1, 1, [workflow(), chat(2, answer="x", agent_name="a")], "task.input"),
    ("content-off", BAD, 2, 3, [TASK, chat(2), chat(3), spoken(4)], "=SPAN_ONLY"),
    ("content-hidden", WARN, 1, 1, [TASK, HIDDEN], "=SPAN_ONLY"),
    ("attributes-dropped", WARN, 1, 2, [TASK, CUT], "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT=512"),
    ("no-root", WARN, 1, 2, [agent(n, "a", parent=None) for n in (1, 2)], "with run("),
    ("context-lost", BAD, 1, 2, [TASK, spoken(2, parent=9)], "carry("),
    ("no-call-id", INFO, 1, 1, [TASK, spoken(2), tool(3, "s", result="r")], "call.id"),
    ("no-call-id", WARN, 2, 2, [TASK, spoken(2), *TWO_TOOLS], "call.id"),
    ("unknown-outcome", WARN, 1, 1, [ended("banana"), spoken(2, agent_name="a")], SET_OUTCOME),
    ("no-handoff-target", WARN, 1, 1, [TASK, OLD_HANDOFF], "handoff.target"),
    ("doubled-instrumentation", WARN, 1, 2, [OUTER, tool(2, "s", parent=1, result="r")], DISABLED),
    ("agent-from-function", INFO, 1, 1, [TASK, NAMELESS, spoken(3, parent=2)], "agent.name"),
    ("clock-skew", INFO, 1, 2, [agent(1, "a", parent=None, end=90, service="x"), EARLY], "chronyc"),
]


LACKS = [Lack(*case) for case in CASES]


@pytest.mark.parametrize("lack", LACKS, ids=lambda lack: f"{lack.rule}, {lack.severity}")
def test_each_gap_is_found_counted_and_can_be_fixed(lack: Lack) -> None:
    finding = found(*lack.spans)[lack.rule]
    assert (finding.severity, len(finding.spans), finding.of) == (lack.severity, lack.times, lack.of)
    assert lack.mend in "\n".join(finding.mend)


def test_an_outcome_in_plain_words_lacks_nothing() -> None:
    assert "unknown-outcome" not in found(ended("FAILED"), spoken(2, agent_name="a"))


def test_every_rule_has_a_case() -> None:
    of_several_runs = {"may-be-one-run"}  # in test_possible_joins.py
    assert {lack.rule for lack in LACKS} | of_several_runs == {rule.name for rule in RULES}


@pytest.mark.parametrize(
    ("scope", "line"),
    [
        ("openinference.instrumentation.langchain", "OPENINFERENCE_HIDE_INPUTS=false"),
        ("pydantic-ai", "Agent.instrument_all(InstrumentationSettings(include_content=True))"),
        ("opentelemetry.instrumentation.x", "OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental"),
        ("blamespan.instrument", "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY"),
    ],
)
def test_content_is_turned_on_in_the_way_of_the_framework_seen(scope: str, line: str) -> None:
    finding = found(workflow(task="q"), chat(2, agent_name="a", scope=scope))["content-off"]
    assert finding.framework == scope
    assert line in finding.mend


PYTHONS = ("import", "with ", "propagate", "set_attribute", "OTEL_PYTHON", "OTEL_SEMCONV")


@pytest.mark.parametrize("language", ["java", "nodejs", "go", "dotnet", "rust"])
@pytest.mark.parametrize("lack", LACKS, ids=lambda lack: lack.rule)
def test_no_line_of_python_is_suggested_to_another_language(lack: Lack, language: str) -> None:
    told = {"telemetry.sdk.language": language}
    spans = [
        replace(each, resource=Resource(attributes={**each.resource.attributes, **told}))
        for each in lack.spans
    ]
    mend = "\n".join(found(*spans)[lack.rule].mend)
    assert mend
    assert not any(line in mend for line in PYTHONS), mend


def test_spring_gets_its_own_properties() -> None:
    call = chat(2, agent_name="a", scope="org.springframework.boot")
    java = replace(call, resource=Resource(attributes={"telemetry.sdk.language": "java"}))
    mend = found(TASK, java)["content-off"].mend
    assert "spring.ai.chat.observations.log-prompt=true" in mend


def test_a_dialect_without_a_scope_of_its_own_names_its_setting() -> None:
    haystack = span(2, name="haystack.agent.step.llm", parent=1, scope="ferry")
    (line,) = found(span(1, name="haystack.agent.run", end=90), haystack)["content-off"].mend
    assert line == "HAYSTACK_CONTENT_TRACING_ENABLED=true"


def test_each_instrumentation_gets_a_finding_and_a_line_of_its_own() -> None:
    (run,) = rebuild([encode([workflow(task="q"), chat(2, scope="pydantic-ai"), chat(3, scope="other")])])
    scopes = [finding.framework for finding in lint(run) if finding.rule == "content-off"]
    assert scopes == ["pydantic-ai", "other"]


def test_the_worst_comes_first() -> None:
    (run,) = rebuild([encode([workflow(), chat(2, dropped_attributes=9)])])
    severities = [list(Severity).index(finding.severity) for finding in lint(run)]
    assert severities == sorted(severities)
    assert len(severities) > 2


def test_the_command_prints_one_object_a_finding_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "trace.pb"
    file.write_bytes(encode([workflow(task="q"), chat(2, scope="evil\x1b[2J")]))
    assert command(["lint", str(file), "--format", "json"]) == 1
    documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"no-agent", "content-off"} == {document["rule"] for document in documents}
    assert documents[0]["span_id"] == "0000000000000002"
    assert command(["lint", str(file)]) == 1
    table = capsys.readouterr().out
    assert "content-off  1 of 1" in table
    assert "\x1b[2J" not in table


def test_the_command_succeeds_without_findings_or_with_info_only(tmp_path: Path) -> None:
    file = tmp_path / "trace.pb"
    file.write_bytes(encode(OWN.spans(Stage(PLAY))))
    assert command(["lint", str(file)]) == 0
    mild = [replace(each, attributes=_without_agent(each)) for each in OWN.spans(Stage(PLAY))]
    file.write_bytes(encode(mild))
    assert command(["lint", str(file)]) == 0
    assert command(["lint", str(file), "--strict"]) == 1


def _without_agent(each: Span) -> dict[str, Any]:
    is_call = each.attributes.get("gen_ai.operation.name") in {"chat", "execute_tool"}
    return {key: value for key, value in each.attributes.items() if not (is_call and "agent" in key)}


def test_a_conversation_log_has_no_spans_to_look_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "log.json"
    file.write_text(json.dumps({"history": [{"role": "assistant", "name": "a", "content": "x"}]}))
    assert command(["lint", str(file)]) == 1
    assert "no spans" in capsys.readouterr().err
