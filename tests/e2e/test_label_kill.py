"""A label that was given survives the end of its process."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from analyzer.issues.labels.label_store import LabelStore
from collector_processor.otlp import NO_TENANT
from tests.unit.test_label_store import LABEL


def test_a_label_survives_a_kill(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path\n"
        "from analyzer.issues.labels.label_store import LabelStore\n"
        "from tests.unit.test_label_store import LABEL, packed\n"
        "store = LabelStore(Path(sys.argv[1]))\n"
        "store.keep([packed('run-1')], 1); store.add(LABEL)\n"
        "store._db.execute('BEGIN IMMEDIATE'); store._db.execute('DELETE FROM label')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = tmp_path / "killed.sqlite"
    died = subprocess.run([sys.executable, "-c", program, path], cwd=Path(__file__).parents[2], check=False)
    assert died.returncode == -signal.SIGKILL
    store = LabelStore(path)
    (found,) = store.labelled(NO_TENANT)
    assert (found.label, found.packed) == (LABEL, b"x" * 10)
    store.close()
