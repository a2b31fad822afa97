"""The registry is consistent, agrees with the convention, and all generated files are current."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from semconv import attributes
from semconv.model import Status
from tools import registry as generate
from tools.registry_definition import DefinitionError, Registry, load

OWN = "emitter", "processor", "analyzer"


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load(generate.FOLDER)


def test_generated_files_are_fresh(registry: Registry) -> None:
    if not (generate.ROOT / "docs").is_dir():
        pytest.skip("the reference page lies in the checkout; a built wheel holds only the packages")
    assert generate.stale(registry, generate.ROOT) == []


def test_the_site_has_the_schema_file_where_its_url_says(registry: Registry) -> None:
    docs = generate.ROOT / "docs"
    if not docs.is_dir():
        pytest.skip("the site's files lie in the checkout; a built wheel holds only the packages")
    schema = yaml.safe_load((docs / registry.schema_path).read_text(encoding="utf-8"))
    assert registry.schema_url.startswith("https://")
    assert registry.schema_url.endswith(f"/{registry.schema_path}")
    assert schema["schema_url"] == registry.schema_url
    assert registry.schema_path.name in schema["versions"]


def test_check_fails_on_a_stale_file_and_names_it(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for path, text in generate.outputs(registry).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    assert generate.main(["--check"]) == 0
    (tmp_path / "semconv/attributes.py").write_text("FAILURE_ID = 'something else'\n", encoding="utf-8")
    assert generate.main(["--check"]) == 1
    assert "semconv/attributes.py is stale" in capsys.readouterr().err
    assert generate.main([]) == 0
    assert generate.stale(registry, tmp_path) == []


def test_every_attribute_has_a_constant_of_its_own(registry: Registry) -> None:
    constants = {generate.constant(key): key for key in registry.attributes}
    assert len(constants) == len(registry.attributes)
    assert {name: getattr(attributes, name) for name in constants} == constants


def test_our_namespace_holds_exactly_our_definitions(registry: Registry) -> None:
    for attribute in registry.attributes.values():
        assert attribute.key.startswith("blamespan.") == (attribute.file in OWN), attribute.key


def test_the_convention_has_all_its_names(registry: Registry) -> None:
    handed_over = {f"blamespan.handoff.{name}" for name in ("source", "target", "mode")}
    task = {
        f"blamespan.task.{name}"
        for name in ("id", "input", "output", "reference", "outcome", "outcome.source")
    }
    run = {f"blamespan.run.{name}" for name in ("id", "step.count", "agents", "dialects", "complete")}
    run |= {"blamespan.run.url", "blamespan.run.root.trace_id"}
    step = {
        f"blamespan.step.{name}"
        for name in ("index", "kind", "agent.name", "agent.source", "group", "content.state")
    }
    failure = {
        f"blamespan.failure.{name}"
        for name in (
            *(
                "id",
                "status",
                "version",
                "supersedes",
                "accused",
                "decisive",
                "rank",
                "agent.name",
                "step.index",
            ),
            *("step.span_id", "mode", "confidence", "fix", "method", "model", "fallback", "explanation"),
            *(
                "step.trace_id",
                "probability",
                "rules",
                "withdrawn.agent.name",
                "withdrawn.version",
            ),
        )
    }
    failure |= {
        f"blamespan.failure.{name}"
        for name in ("value", "value.origin", "value.expected", "value.step.index")
    }
    failure |= {
        f"blamespan.failure.proof.{name}"
        for name in ("decision", "step.index", "effect", "interval.low", "interval.high", "trials", "change")
    }
    ours = {attribute.key for attribute in registry.attributes.values() if attribute.file in OWN}
    assert ours == handed_over | task | run | step | failure | {"blamespan.carrier", "blamespan.trial"}


def test_values_that_python_knows_already_are_those_of_the_registry(registry: Registry) -> None:
    known = [attribute for attribute in registry.attributes.values() if attribute.python]
    assert len(known) >= 5
    for attribute in known:
        module, _, name = attribute.python.rpartition(".")
        enumeration = getattr(importlib.import_module(module), name)
        assert [member.value for member in attribute.members] == list(enumeration), attribute.key


def test_failure_statuses_of_spans_are_those_of_verdicts_and_withdrawn() -> None:
    assert list(attributes.FailureStatus) == [*Status, "withdrawn"]


def test_other_enumerations_are_generated(registry: Registry) -> None:
    assert list(attributes.HandoffMode) == ["pass_control", "return_to_caller"]
    members = registry.attributes["gen_ai.operation.name"].members
    assert [member.value for member in members] == list(attributes.GenAiOperationName)


def test_every_attribute_of_ours_is_used_on_a_signal(registry: Registry) -> None:
    used = {use.key for signal in registry.signals for use in signal.uses}
    ours = {attribute.key for attribute in registry.attributes.values() if attribute.file in OWN}
    assert ours - used == set()


def test_the_reference_page_links_to_headings_that_exist(registry: Registry) -> None:
    page = generate.outputs(registry)[Path("docs/convention-reference.md")]
    for key in registry.attributes:
        assert f'<a id="{key.replace(".", "")}"></a>`{key}`' in page
    assert page.count("\n| ") > len(registry.attributes)


def test_the_schema_types_and_requires(registry: Registry) -> None:
    schema: dict[str, Any] = json.loads(
        generate.outputs(registry)[Path("semconv/registry/blamespan.schema.json")]
    )
    assert schema["properties"]["blamespan.failure.step.index"]["type"] == "integer"
    assert schema["properties"]["blamespan.run.agents"] == {
        "description": "The agents of the run, in order of first appearance.",
        "type": "array",
        "items": {"type": "string"},
        "examples": [["planner", "researcher", "writer"]],
    }
    assert "blamespan.failure.version" in schema["$defs"]["blamespan.carrier.root"]["required"]
    assert "blamespan.failure.agent.name" not in schema["$defs"]["blamespan.carrier.root"]["required"]


def test_nothing_generated_names_a_schema_that_nobody_can_fetch(registry: Registry) -> None:
    """Only the schema file itself, whose host is whoever serves the site."""
    for path, text in generate.outputs(registry).items():
        assert ".invalid" not in text or path == Path("docs") / registry.schema_path


def _broken(tmp_path: Path, change: tuple[str, str]) -> Path:
    """Copy the registry with one text replaced in the analyzer's file."""
    for file in generate.FOLDER.glob("*.yaml"):
        text = file.read_text(encoding="utf-8")
        if file.name == "analyzer.yaml":
            assert change[0] in text
            text = text.replace(*change, 1)
        (tmp_path / file.name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        pytest.param(("definition/2", "definition/1"), "file_format", id="another file format"),
        pytest.param(("spans:", "metrics:"), "unknown section", id="a section we do not know"),
        pytest.param(("type: int", "type: integer"), "unknown type", id="a type that is none"),
        pytest.param(
            ("stability: development", "stability: solid"), "unknown type or stability", id="stability"
        ),
        pytest.param(("examples: [1]", "example: [1]"), "unknown .'example'", id="a misspelt key"),
        pytest.param(("brief: Number of the analysis", "note: Number"), "missing .'brief'", id="no brief"),
        pytest.param(
            ("- key: blamespan.failure.version", "- key: blamespan.failure.id"), "twice", id="defined twice"
        ),
        pytest.param(
            ("- ref: blamespan.failure.rank", "- ref: blamespan.failure.rang"),
            "refers to undefined",
            id="a reference to nothing",
        ),
        pytest.param(
            ("- ref: blamespan.failure.rank", "- ref: blamespan.failure.id"),
            "an attribute twice",
            id="named twice",
        ),
        pytest.param(("ref_group: blamespan.step", "ref_group: steps"), "undefined group", id="no group"),
        pytest.param(("requirement_level: required", "requirement_level: must"), "level", id="no such level"),
        pytest.param(('examples: ["calculator"]', "note: none"), "need examples", id="a string unexampled"),
    ],
)
def test_a_registry_that_is_wrong_is_refused(tmp_path: Path, change: tuple[str, str], complaint: str) -> None:
    with pytest.raises(DefinitionError, match=complaint):
        load(_broken(tmp_path, change))
