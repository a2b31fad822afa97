"""The compose files conform to the specification's schema and avoid mistakes that it permits."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from collector_processor.settings import load_settings
from tests.backends.fixtures import REQUIRE

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
FILES: Final = sorted((DEPLOY / "compose").glob("*.yaml"))
SCHEMA: Final = "github.com/compose-spec/compose-go/v2@v2.16.2"
"""The Go module with which Docker reads compose files; it contains the schema."""


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    command = ["go", "mod", "download", "-json", SCHEMA]
    folder = tmp_path_factory.mktemp("module")
    if shutil.which("go") is None:
        told = "the compose specification's schema comes as a Go module, and there is no go"
        pytest.fail(told) if os.environ.get(REQUIRE) == "true" else pytest.skip(told)
    environ = os.environ | {"GOFLAGS": "-mod=mod", "GOWORK": "off"}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(
        (Path(json.loads(done.stdout)["Dir"]) / "schema/compose-spec.json").read_text()
    )
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_compose_file_is_what_the_specification_allows(path: Path, schema: dict[str, Any]) -> None:
    jsonschema.validate(read(path), schema)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_images_are_pinned(path: Path) -> None:
    images = [service["image"] for service in read(path)["services"].values()]
    assert [image for image in images if ":" not in image or image.endswith(":latest")] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_whatever_is_mounted_from_here_is_here(path: Path) -> None:
    for service in read(path)["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (path.parent / source).exists(), source


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_ports_are_open_to_this_machine_only(path: Path) -> None:
    ports = [port for service in read(path)["services"].values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_blamespan_runs_without_rights_and_asks_for_a_token(path: Path) -> None:
    service = read(path)["services"]["blamespan"]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert ":?" in service["environment"]["BLAMESPAN_TOKEN"]


VARIABLE: Final = re.compile(r"(?<!\$)\$\{([A-Z_]+)(:[-?][^}]*)?\}")


def test_the_example_of_env_has_every_variable_with_its_default() -> None:
    lines = (DEPLOY / "compose" / ".env.example").read_text(encoding="utf-8").splitlines()
    given = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    asked = {found for path in FILES for found in VARIABLE.findall(path.read_text(encoding="utf-8"))}
    assert {name for name, _ in asked} == set(given)
    defaults = {(name, default[2:]) for name, default in asked if default.startswith(":-")}
    differing = {(name, default) for name, default in defaults if given[name] != default}
    assert differing == set(), "a copy that is filled in changes nothing else"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_agents_send_to_the_ports_of_opentelemetry(path: Path) -> None:
    services = read(path)["services"]
    assert services["collector"]["ports"] == [
        "127.0.0.1:${OTLP_GRPC_PORT:-4317}:4317",
        "127.0.0.1:${OTLP_HTTP_PORT:-4318}:4318",
    ]
    environ = services["collector"]["environment"]
    assert (environ["COLLECTOR_GRPC_PORT"], environ["COLLECTOR_HTTP_PORT"]) == (4317, 4318)


def test_processors_behind_kafka_find_topics_store_and_limits_that_fit() -> None:
    services = read(DEPLOY / "compose" / "kafka.yaml")["services"]
    given = {name: str(value) for name, value in services["blamespan"]["environment"].items()}
    settings = load_settings(
        {name: VARIABLE.sub("x" * 16, value) for name, value in given.items() if "OTEL" not in name}
        | {"BLAMESPAN_WEB_URL": "", "BLAMESPAN_NOTIFY_URL": ""}
    )
    access = settings.kafka
    assert access is not None
    (script,) = services["topics"]["command"]
    (topics,) = re.findall(r"for topic in (.+); do", script)
    assert topics.split() == list(access.topics.values())
    assert settings.store_url == f"postgresql://blamespan:{'x' * 16}@postgres/blamespan"
    exporter = yaml.safe_load((DEPLOY / "collector" / "kafka.yaml").read_text())["exporters"]["kafka"]
    broker = services["kafka"]["environment"]["KAFKA_MESSAGE_MAX_BYTES"]
    assert access.max_record_bytes == exporter["producer"]["max_message_bytes"] < broker
    assert services["pages"]["environment"] == services["blamespan"]["environment"]
    assert "volumes" not in services["blamespan"], "processors cannot share a data directory"


def test_the_image_runs_as_a_user_without_rights_from_a_pinned_base() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    bases = [line.split()[1] for line in lines if line.startswith("FROM")]
    assert bases == ["${BASE}"] * 2, "an argument, so that it can come from one's own registry"
    (base,) = (line.removeprefix("ARG BASE=") for line in lines if line.startswith("ARG BASE="))
    assert base.rpartition(":")[2].count(".") == 2
    last_stage = lines[max(n for n, line in enumerate(lines) if line.startswith("FROM")) :]
    assert "USER 10001:10001" in last_stage
    assert any("--require-hashes" in line for line in lines)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_logs_and_metrics_go_somewhere_or_are_turned_off(path: Path) -> None:
    environ = read(path)["services"]["blamespan"]["environment"]
    for signal in ("LOGS", "METRICS"):  # the backends of both take traces only
        name = f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"
        assert environ[name] == f"${{{name}:-none}}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_alert_rules_are_loaded_once(path: Path) -> None:
    mounted = [
        (path.parent / volume.split(":")[0]).resolve()
        for service in read(path)["services"].values()
        for volume in service.get("volumes", ())
        if volume.startswith(".")
    ]
    files = [file for place in mounted if place.is_dir() for file in place.rglob("*.yaml")]
    with_rules = [file for file in files if "BlamespanDown" in file.read_text(encoding="utf-8")]
    assert len(with_rules) == ("prometheus" in read(path)["services"])


def test_alertmanager_reaches_its_receivers_from_its_container() -> None:
    services = read(DEPLOY / "compose" / "tempo.yaml")["services"]
    extra = {host.partition(":")[0] for host in services["alertmanager"]["extra_hosts"]}
    receivers = read(DEPLOY / "alertmanager" / "alertmanager.yml")["receivers"]
    hosts = {urlsplit(hook["url"]).hostname for one in receivers for hook in one["webhook_configs"]}
    assert hosts <= extra | set(services), "127.0.0.1 is the container itself"
