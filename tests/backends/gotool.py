"""Runs the ``go`` command for builds and explains its failures.

Proxies, checksum database and caches come from the environment: no host is named here.

Proxies, checksum database and caches are the environment's business: nothing
here names a host.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

GO_MINIMUM: Final = (1, 25)  # the `go` line of the Collector's and Jaeger's modules
TOOLCHAIN_SWITCH: Final = (1, 21)  # from here on `go` can fetch a newer self
JOBS: Final = 2  # packages compiled at once: leaves a small machine usable
TAIL_LINES: Final = 30


class BuildError(Exception):
    """A backend cannot be built; the message gives the reason."""


def require_go() -> None:
    """Raise ``BuildError`` if ``go`` is missing or too old."""
    if shutil.which("go") is None:
        raise BuildError(f"`go` is not on the PATH; install Go {_dotted(GO_MINIMUM)} or newer")
    version, toolchain = _go_env("GOVERSION", "GOTOOLCHAIN")
    found = re.match(r"go(\d+)\.(\d+)", version)
    if found is None:
        return  # a development build of Go: let it try
    have = (int(found[1]), int(found[2]))
    may_switch = have >= TOOLCHAIN_SWITCH and toolchain != "local"
    if have < GO_MINIMUM and not may_switch:
        raise BuildError(f"{version} is too old; install Go {_dotted(GO_MINIMUM)} or newer")


def run(command: list[str], *, cwd: Path, log: Path, extra: dict[str, str] | None = None) -> None:
    """Run one step of a build, its output appended to ``log``.

    Raises:
        BuildError: it failed; the message ends with the tail of the log.
    """
    with log.open("ab") as out:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=_environment() | (extra or {}),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode != 0:
        told = " ".join(command)
        raise BuildError(f"`{told}` ended with {done.returncode}:\n{_tail(log)}\n(all of it: {log})")


def _environment() -> dict[str, str]:
    """Return our environment, made safe for builds in any folder."""
    flags = f"{os.environ.get('GOFLAGS', '')} -p={JOBS} -buildvcs=false".strip()
    return os.environ | {"GOFLAGS": flags, "CGO_ENABLED": "0", "GOWORK": "off"}


def _go_env(*names: str) -> list[str]:
    # In the root folder no go.mod or go.work can send `go` to another version.
    done = subprocess.run(["go", "env", *names], cwd="/", capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"`go env` failed: {done.stderr.strip()}")
    return done.stdout.splitlines()


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-TAIL_LINES:])
