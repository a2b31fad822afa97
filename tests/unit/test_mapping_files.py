"""Mapping files are read as written, and mistakes are refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from analyzer.cli.main import run as command
from collector_processor.lint import lint
from collector_processor.mapping_files import (
    MappingFileError,
    contributed,
    mapping_in,
    open_reader,
    read_file,
    written,
)
from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.stages import rebuild
from collector_processor.trajectory.acts import read_acts
from semconv.dialects.generic.infer import propose
from semconv.model import Attributes, Scope, Span
from semconv.record import replace
from tests.factories import span
from tests.unit.dialects.test_generic import EXPECTED, stated, steps

MAPPING = """\
mapping: acme
scopes: [acme]
kind:
  attribute: acme.what
  values: {think: llm, do: tool, somebody: agent}
  names: {"hand over*": handoff, job: workflow}
fields:
  acme.who: agent
  acme.heard: input
  acme.said: output
  acme.whom: target
  acme.wrong: error
"""


def odd() -> list[Span]:
    """Spans that show no step without a mapping."""

    def acme(number: int, name: str, start: int, **said: str) -> Span:
        attributes: Attributes = {f"acme.{key}": value for key, value in said.items()}
        parent = 1 if number > 1 else None
        made = span(number, parent=parent, name=name, start=start, end=start + 5, attributes=attributes)
        return replace(made, scope=Scope(name="acme"))

    return [
        acme(1, "job", 0),
        acme(2, "x", 1, what="think", who="lead", heard="How much?", said="Ask the analyst."),
        acme(3, "hand over now", 10, who="lead", whom="analyst"),
        acme(4, "x", 20, what="do", who="analyst", heard='{"pump": "P1"}', wrong="no such pump"),
        acme(5, "x", 30, what="think", who="analyst", said="6,900 W"),
        acme(6, "y", 40, what="unheard of", who="Mallory"),
    ]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "acme.yaml"
    path.write_text(MAPPING)
    return path


def test_spans_are_read_as_the_mapping_says(file: Path) -> None:
    (run,) = rebuild([encode(odd())], reader=open_reader(str(file)))
    assert steps(run.trajectory) == [
        ("llm", "lead", None),
        ("handoff", "lead", "analyst"),
        ("tool", "analyst", "x"),
        ("llm", "analyst", None),
    ]
    assert run.trajectory.dialects == ("mapping:acme",)
    assert run.trajectory.warnings == ()
    assert run.trajectory.steps[2].error == "no such pump"


def test_without_a_mapping_the_spans_are_not_steps() -> None:
    assert not any(run.trajectory.steps for run in rebuild([encode(odd())], reader=open_reader()))


def test_spans_of_another_scope_are_left_alone(file: Path) -> None:
    others = [span(n, attributes={"acme.what": "think", "acme.said": "hi"}, scope="other") for n in (1, 2)]
    assert not any(run.trajectory.steps for run in rebuild([encode(others)], reader=open_reader(str(file))))


def test_contributed_mappings_are_valid_and_written_as_they_are_read() -> None:
    assert contributed()
    for mapping in contributed():
        assert mapping_in(written(mapping)) == mapping


WRONG = [
    ("mapping: [", "line 1: expected YAML"),
    ("- a", "line 1: the mapping: expected an object with mapping, scopes, kind, fields"),
    (MAPPING.replace("think: llm", "think: lm"), "line 5: kind.values.think: expected one of llm, tool"),
    (MAPPING.replace("input", "inputt"), "line 9: fields.acme.heard: expected one of agent, input"),
    (MAPPING.replace("fields:", "field:"), "line 7: field: expected one of mapping, scopes, kind, fields"),
    (MAPPING.replace("  attribute: acme.what\n", ""), "line 3: kind.attribute: expected the attribute"),
    ("mapping: a\nkind: {}\nfields: {}", "line 2: kind: expected `attribute` with `values`, or `names`"),
    ("mapping: &a x\nkind: *a", "line 1: expected YAML: no aliases and no tags"),
    ("mapping: !!python/object x", "line 1: expected YAML: no aliases and no tags"),
    ("? [a]\n: b", "line 1: expected YAML: a text as key"),
    ("mapping: " + "[" * 5000, "line 1: expected YAML: at most 8 levels of nesting"),
    ("- " * 9 + "a", "line 1: expected YAML: at most 8 levels of nesting"),
    ("".join(f"{' ' * n}a:\n" for n in range(12)), "line 9: expected YAML: at most 8 levels of nesting"),
    ("a: {" * 9, "line 1: expected YAML: at most 8 levels of nesting"),
    (
        MAPPING.partition("fields:")[0] + "fields:\n",
        "fields: expected what each attribute holds, as `attribute: field`",
    ),
    (MAPPING.partition("fields:")[0], "fields: expected what each attribute holds, as `attribute: field`"),
    ("", "line 1: the mapping: expected an object"),
    ("x: 1\n" * 300_000, "expected 1048576 characters at most"),
]


@pytest.mark.parametrize(("content", "told"), WRONG, ids=[told[:40] for _, told in WRONG])
def test_a_wrong_file_is_refused_in_one_line(content: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(content)
    with pytest.raises(MappingFileError) as error:
        read_file(path)
    assert told in str(error.value)
    assert "m.yaml" in str(error.value)
    assert "\n" not in str(error.value)


def test_deep_nesting_is_refused_before_it_is_scanned() -> None:
    """Scanning 8,000 levels takes seconds: their number of tokens is bounded instead of the time."""
    scanned = 0
    usual = yaml.SafeLoader.fetch_more_tokens

    class Counting(yaml.SafeLoader):
        def fetch_more_tokens(self) -> None:
            nonlocal scanned
            scanned += 1
            usual(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("collector_processor.mapping_files.yaml.SafeLoader", Counting)
        with pytest.raises(MappingFileError, match="at most 8 levels of nesting"):
            mapping_in("".join(f"{' ' * depth}a:\n" for depth in range(800)))
    assert 0 < scanned < 100


def test_a_missing_file_is_named() -> None:
    with pytest.raises(MappingFileError, match=r"nowhere\.yaml: No such file"):
        open_reader("nowhere.yaml")


def test_a_proposal_reads_what_was_inferred() -> None:
    ordering = read_acts(stated())
    assert ordering.inferred is not None
    mapping = propose(ordering.inferred, ordering.spans, "acme")
    assert mapping.kind_attribute == "acme.spanType"
    assert mapping.fields["acme.agentName"] == "agent"
    assert mapping.fields["acme.functionName"] == "tool"
    assert mapping_in(written(mapping)) == mapping


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BLAMESPAN_MAPPINGS", raising=False)
    path = tmp_path / "trace.pb"
    path.write_bytes(encode(stated()))
    return path


def test_map_writes_a_mapping_that_the_other_commands_read(
    trace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["map", str(trace), "--yes"]) == 0
    monkeypatch.setenv("BLAMESPAN_MAPPINGS", "blamespan.mapping.yaml")
    assert command(["steps", str(trace), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["dialects"] == ["mapping:test"]
    assert [(step["kind"], step["agent"], step["target"]) for step in document["steps"]] == EXPECTED


def test_map_lists_the_attributes_that_it_did_not_read(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = stated()[0]
    odd_one = span(1, start=0, end=90, name="job", attributes={**first.attributes, "acme.mood": "blue"})
    trace.write_bytes(encode([odd_one, *stated()[1:]]))
    assert command(["map", str(trace), "--yes"]) == 0
    assert "attributes not understood (1): acme.mood" in capsys.readouterr().err
    assert "# acme.mood\n" in Path("blamespan.mapping.yaml").read_text()
    assert command(["map", str(trace), "--yes", "--force", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["not_understood"] == ["acme.mood"]


def test_map_overwrites_nothing_unless_asked_to(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.yaml").write_text("corrected by hand")
    assert command(["map", str(trace), "--yes", "--out", "mine.yaml"]) == 2
    assert "exists already" in capsys.readouterr().err
    assert Path("mine.yaml").read_text() == "corrected by hand"
    assert command(["map", str(trace), "--yes", "--out", "mine.yaml", "--force"]) == 0
    assert read_file(Path("mine.yaml")).kind_attribute == "acme.spanType"


def test_map_says_why_there_is_nothing_to_map(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace.write_bytes(encode([span(1, attributes={"gen_ai.operation.name": "chat"})]))
    assert command(["map", str(trace), "--yes"]) == 1
    assert "nothing to map: a dialect reads it (otel_genai)" in capsys.readouterr().err
    trace.write_bytes(encode([span(1, name="GET /")]))
    assert command(["map", str(trace), "--yes"]) == 1
    assert "nothing to map: no span shows a model call" in capsys.readouterr().err


def test_lint_names_unread_spans_and_writes_a_proposal(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = stated()[0]
    odd_one = span(1, start=0, end=90, name="job", attributes={**first.attributes, "acme.mood": "blue"})
    trace.write_bytes(encode([odd_one, *stated()[1:]]))
    assert command(["lint", str(trace), "--mapping", "m.yaml", "--format", "json"]) == 1
    rules = {line["rule"]: line for line in map(json.loads, capsys.readouterr().out.splitlines())}
    assert "not understood: acme.mood" in rules["inferred"]["what"]
    assert "BLAMESPAN_MAPPINGS=blamespan.mapping.yaml" in rules["inferred"]["mend"]
    assert read_file(Path("m.yaml")).fields["acme.agentName"] == "agent"


def test_lint_says_nothing_of_a_run_that_a_mapping_reads(file: Path) -> None:
    reader = open_reader(str(file))
    (run,) = rebuild([encode(odd())], reader=reader)
    assert "inferred" not in {finding.rule for finding in lint(run, reader)}
