"""Tempo's shipped configurations, checked without a Tempo, which no module registry offers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from semconv.attributes import CARRIER

FOLDER: Final = Path(__file__).parents[2] / "deploy" / "tempo"
FILES: Final = sorted(FOLDER.glob("*.yaml"))
REMOVED_IN_3: Final = {"ingester", "ingester_client", "compactor", "metrics_generator_client"}
"""Keys with which Tempo 3 does not start ("field ingester not found"), according to its migration guide."""
SLACK: Final = "2h"
"""Longer than 1.25 times max_age (75 min) plus the longest analysis."""


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


def test_there_is_a_file_for_each_version() -> None:
    assert [path.stem for path in FILES] == ["tempo-2", "tempo-3"]


def test_the_file_for_tempo_3_has_nothing_that_was_removed() -> None:
    config = read(FOLDER / "tempo-3.yaml")
    assert REMOVED_IN_3.isdisjoint(config)
    assert "local_blocks" not in config["metrics_generator"]["processor"]
    assert "local-blocks" not in config["overrides"]["defaults"]["metrics_generator"]["processors"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_carriers_are_kept_out_of_the_metrics_generator(path: Path) -> None:
    (policy,) = read(path)["metrics_generator"]["processor"]["span_metrics"]["filter_policies"]
    assert policy["exclude"]["attributes"] == [{"key": f"span.{CARRIER}", "value": True}]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_late_carriers_are_searched_and_counted(path: Path) -> None:
    config = read(path)
    assert config["metrics_generator"]["metrics_ingestion_time_range_slack"] == SLACK
    logs = [config["storage"]["trace"]["wal"]]
    logs += [config["live_store"]["wal"]] if "live_store" in config else []
    assert {log["ingestion_time_range_slack"] for log in logs} == {SLACK}
