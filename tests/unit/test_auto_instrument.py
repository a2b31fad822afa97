"""Auto-instrumentation: only for Python programs whose files set up no telemetry."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from analyzer.programs.auto_instrument import Installed, advice, instrumenting, own_source, python_of
from semconv.record import replace

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
