"""The composed Prometheus sends the token that blamespan asks for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.mark.parametrize(("own", "written"), [("", "t0ken"), ("operator", "operator")])
def test_the_composed_prometheus_sends_the_token_that_is_asked_for(
    tmp_path: Path, own: str, written: str
) -> None:
    services = yaml.safe_load((DEPLOY / "compose" / "tempo.yaml").read_text())["services"]
    assert services["blamespan"]["environment"]["BLAMESPAN_METRICS_TOKEN"] == "${BLAMESPAN_METRICS_TOKEN:-}"
    shell, flag, script = services["prometheus"]["entrypoint"]
    command = script.replace("$$", "$").replace("/tmp/token", str(tmp_path / "token"))
    environ = {"BLAMESPAN_TOKEN": "t0ken", "BLAMESPAN_METRICS_TOKEN": own, "PATH": "/usr/bin:/bin"}
    subprocess.run([shell, flag, command.partition("exec")[0]], check=True, env=environ)
    assert (tmp_path / "token").read_text() == written
    (scrape,) = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    assert scrape["authorization"]["credentials_file"] == "/tmp/token"
