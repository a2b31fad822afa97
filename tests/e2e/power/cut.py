"""Simulates a power cut: the process is killed, and its folder is left in a state that a disk might have."""

from __future__ import annotations

import random
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.e2e.power.disk import Disk, contents, records

SOURCE: Final = Path(__file__).with_name("recorder.c")


@dataclass(slots=True, kw_only=True)
class PowerSupply:
    """A power supply for the processes that use one folder one after another."""

    folder: Path
    """The folder that is recorded; may contain folders."""
    scratch: Path
    """Folder for the recorder and its log."""
    _held: dict[str, bytes] = field(default_factory=dict)

    @property
    def _log(self) -> Path:
        return self.scratch / "power.log"

    def switch_on(self) -> dict[str, str]:
        """Return the environment in which the next process must run."""
        recorder = self.scratch / "recorder.so"
        if not recorder.exists():
            command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(recorder), str(SOURCE), "-ldl", "-lpthread"]
            subprocess.run(command, check=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._held = contents(self.folder)
        self._log.write_bytes(b"")
        return {"LD_PRELOAD": str(recorder), "POWER_ROOT": str(self.folder), "POWER_LOG": str(self._log)}

    def cut(self, chance: random.Random) -> int:
        """Leave the folder in a possible state once the process is dead; return the number of records."""
        disks = {path: Disk(path, self._of(path)) for path in self._folders()}
        count = 0
        for record in records(self._log.read_bytes()):
            count += 1
            owner = record.path if record.path in disks else str(Path(record.path).parent)
            disks[owner].follow(record)
        for path in contents(self.folder):
            Path(path).unlink()
        for shared_memory in self.folder.rglob("*-shm"):
            shared_memory.unlink()
        for disk in disks.values():
            for path, content in disk.after(chance).items():
                Path(path).write_bytes(content)
        return count

    def _folders(self) -> list[str]:
        return [str(path) for path in (self.folder, *self.folder.rglob("*")) if path.is_dir()]

    def _of(self, folder: str) -> dict[str, bytes]:
        return {path: content for path, content in self._held.items() if str(Path(path).parent) == folder}
