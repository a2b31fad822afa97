"""What commands and the package import: users wait for every import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import analyzer
import analyzer.cli.commands

HEAVY = (
    *("grpc", "aiohttp", "google.protobuf", "pydantic", "prometheus_client", "uvloop", "litellm"),
    *("sqlalchemy", "alembic", "psycopg"),
)
NOT_FOR_HELP = (*HEAVY, "semconv.dialects", "analyzer.inquiry.present", "rich.progress")


NEEDLESS = {
    "sklearn",
    "analyzer.service.all_in_one",
    "collector_processor.rebuild.decode",
    "analyzer.cli.commands.attribute",
}


PROGRAM = """
import json, sys
from analyzer.cli.main import run
run(sys.argv[1:])
sys.stdout.write("\\n" + json.dumps(sorted(sys.modules)))
"""


def imported(*arguments: str) -> frozenset[str]:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, check=True, text=True, timeout=300
    )
    return frozenset(json.loads(ended.stdout.splitlines()[-1]))


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], []])
def test_the_help_needs_no_library(arguments: list[str]) -> None:
    assert imported(*arguments).isdisjoint(NOT_FOR_HELP)


def test_a_benchmark_needs_neither_service_nor_traces_nor_training() -> None:
    found = imported("bench", "--help")
    assert "analyzer.lab.evaluation.benchmark" in found
    assert found.isdisjoint(set(HEAVY) - {"pydantic"})
    assert found.isdisjoint(NEEDLESS)


JUDGING = (
    "analyzer.lineage",
    "analyzer.signals.suspicion",
    "analyzer.signals.registry",
    "analyzer.methods.judge",
    "analyzer.methods.without_model",
    "analyzer.lab",
    "analyzer.analyses.prepare",
    "analyzer.analyses.analyst",
)
PAGES = ("analyzer.web.pages", "analyzer.records", "markdown_it", "jinja2")
READERS = ("analyzer.recordings.read_files", "analyzer.recordings.otlp_file")


@pytest.mark.parametrize(
    ("module", "needless"),
    [
        pytest.param(
            "analyzer.cli.commands.serve", (*JUDGING, *PAGES, *READERS), id="the process that takes spans"
        ),
        pytest.param(
            "analyzer.service.pages_alone",
            (*JUDGING, *READERS, "analyzer.service.start_lanes", "collector_processor.journal", "grpc"),
            id="the pages",
        ),
        pytest.param(
            "analyzer.analyses.worker",
            ("aiohttp", "grpc", "analyzer.methods.judge", "analyzer.methods.verify", "analyzer.lab"),
            id="a worker",
        ),
    ],
)
def test_each_process_of_the_service_imports_what_its_usual_work_needs(
    module: str, needless: tuple[str, ...]
) -> None:
    code = f"import {module}, json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = frozenset(json.loads(done.stdout))
    assert {name for name in found if f"{name}.".startswith(tuple(f"{one}." for one in needless))} == set()


def test_opening_a_store_in_a_file_needs_no_sqlalchemy(tmp_path: Path) -> None:
    """A third of a second, at each start of the service and of its pages."""
    code = (
        "import sys; from pathlib import Path\n"
        "from collector_processor.store.database.connection import open_database\n"
        "for _ in range(2): open_database(Path(sys.argv[1])).connect().close()\n"
        "print(sorted({'sqlalchemy', 'alembic'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "store")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import analyzer, sys; print([name for name in sys.modules if name.startswith('analyzer.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert set(analyzer.__all__) <= set(dir(analyzer))
    with pytest.raises(AttributeError, match="nothing"):
        _ = analyzer.nothing  # type: ignore[attr-defined]
