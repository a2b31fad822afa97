"""A command whose extra is not installed names it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from analyzer.cli.experiment_options import require_prices
from analyzer.cli.output import WrongUsage


def test_without_the_extra_a_command_names_it(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['pyarrow'] = None; from analyzer.cli.main import run;"
        " sys.exit(run(['runs', 'export', '--parquet', 'x']))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr.strip().endswith("it is in the extra history: pip install '.[server,history]'")


def test_trials_without_litellm_need_a_number_of_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    require_prices([], 5.0, None, ["gpt-4o"])
    monkeypatch.setitem(sys.modules, "litellm", None)
    require_prices([], 5.0, 20, ["gpt-4o"])
    with pytest.raises(WrongUsage, match=r"or litellm, which lists prices \(pip install '.\[models\]'"):
        require_prices([], 5.0, None, ["gpt-4o"])
