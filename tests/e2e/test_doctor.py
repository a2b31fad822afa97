"""``blamespan doctor`` beside the processes it looks at: what it says, and its exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.backends.supervise import HOST, free_ports
from tests.e2e.line import StartLine, environment
from tests.e2e.test_halves import StartAnalyzer, start_analyzer

__all__ = ["start_analyzer"]


def consult(folder: Path, **settings: str | int) -> tuple[int, dict[str, dict[str, Any]]]:
    """Return the exit code, and the findings by their names."""
    command = [sys.executable, "-m", "analyzer", "doctor", "--format", "json"]
    chosen = environment(**{"data_dir": str(folder / "data"), **settings})
    done = subprocess.run(command, env=chosen, cwd=folder, capture_output=True, text=True, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return done.returncode, {finding["check"]: finding for finding in found}


def test_all_is_well_beside_a_service_and_an_analyzer(
    start_line: StartLine, start_analyzer: StartAnalyzer, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    analyzer, web = f"http://{start_analyzer().address}", f"{HOST}:{port}"
    start_line(half="collector", analyzer_endpoint=analyzer, web_listen=web)
    code, found = consult(tmp_path, analyzer_endpoint=analyzer, web_listen=web)
    assert code == 0, found
    assert {name: found[name]["status"] for name in ("service", "analyzer", "labels", "issues", "clock")} == (
        dict.fromkeys(("service", "analyzer", "labels", "issues", "clock"), "ok")
    )
    assert found["clock"]["detail"].startswith("agrees with analyzer")


def test_neighbours_that_are_away_fail_with_what_mends_it(tmp_path: Path) -> None:
    away = f"http://{HOST}:{free_ports(1)[0]}"
    code, found = consult(tmp_path, analyzer_endpoint=away, notify_slack=f"{away}/secret")
    assert code == 1
    assert {found[name]["status"] for name in ("analyzer", "notifier slack")} == {"failed"}
    assert found["links"]["status"] == "warning"
    assert "BLAMESPAN_ANALYZER_ENDPOINT" in found["analyzer"]["mend"]
    assert "secret" not in json.dumps(found)


def test_warnings_alone_are_no_failure(tmp_path: Path) -> None:
    code, found = consult(tmp_path)
    assert (code, found["backend"]["status"]) == (0, "warning")
    assert "BLAMESPAN_FORWARD_ENDPOINT" in found["backend"]["mend"]
    assert found["clock"]["status"] == "skipped"
    assert {finding["status"] for finding in found.values()} == {"ok", "warning", "skipped"}
    assert not (tmp_path / "data").exists(), "nothing is made"


def test_a_kind_of_queue_or_store_that_there_is_not_is_refused_in_words(tmp_path: Path) -> None:
    for settings, words in (
        ({"queue": "kafka://broker:9092"}, ("BLAMESPAN_QUEUE", "sqlite")),
        ({"store_url": "postgresql://db/blame"}, ("BLAMESPAN_STORE_URL", "must be unset")),
    ):
        code, found = consult(tmp_path, **settings)
        assert (code, list(found)) == (1, ["settings"])
        assert [word for word in words if word not in found["settings"]["detail"]] == []


def test_a_misspelled_variable_is_warned_of(tmp_path: Path) -> None:
    code, found = consult(tmp_path, rootgrace=5)
    assert (code, found["settings"]["status"]) == (0, "warning")
    assert found["settings"]["mend"] == "did you mean BLAMESPAN_ROOT_GRACE?"
