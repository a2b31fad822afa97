"""Contents of the installed distribution, and what an agent's own process must load."""

from __future__ import annotations

import os
import pkgutil
import subprocess
import sys
from importlib import import_module
from importlib.metadata import packages_distributions, requires

import pytest

_RUN_BY_OTHERS = frozenset({"collector_processor.store.migrations.env"})
"""Run by alembic, with its own context."""


@pytest.mark.parametrize("package", ["semconv", "collector_processor", "analyzer"])
def test_each_package_belongs_to_us_alone(package: str) -> None:
    owners = packages_distributions().get(package)
    if not owners and os.environ.get("BLAMESPAN_WHEEL") != "true":
        pytest.skip("an editable install does not say whose packages are; .ci/run asks the wheel")
    assert owners is not None
    assert set(owners) == {"blamespan"}


def test_the_base_install_needs_the_api_and_nothing_else() -> None:
    needed = [line for line in requires("blamespan") or [] if "extra ==" not in line]
    assert [line.split(">")[0] for line in needed] == ["opentelemetry-api"]


def test_an_instrumented_agent_imports_neither_server_nor_model() -> None:
    code = (
        "import semconv.instrument, sys;"
        "heavy = {'grpc', 'litellm', 'aiohttp', 'google.protobuf', 'pydantic', 'rich', 'openai',"
        " 'opentelemetry.sdk', 'collector_processor', 'analyzer'};"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_command_without_the_server_part_says_what_to_install() -> None:
    code = "import sys; sys.modules['typer'] = None; from analyzer.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.strip() == (
        "blamespan: typer is not installed; it is in the extra server: pip install '.[server]'"
    )


@pytest.mark.parametrize("package", ["semconv", "collector_processor", "analyzer"])
def test_every_module_can_be_imported(package: str) -> None:
    found = pkgutil.walk_packages(import_module(package).__path__, prefix=f"{package}.")
    names = {module.name for module in found} - {"analyzer.__main__"}
    assert len(names) > 20
    for name in names - _RUN_BY_OTHERS:
        import_module(name)
