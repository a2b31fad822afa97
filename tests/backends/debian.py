"""Looks up Debian's Prometheus, Alertmanager and their tools on the path.

``apt-get install prometheus prometheus-alertmanager`` puts them there; nothing
here installs. Without them tests skip, or fail where backends must be.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

import pytest

from tests.backends.fixtures import REQUIRE

DebianName: TypeAlias = Literal["prometheus", "promtool", "alertmanager", "amtool"]
NAMES: Final[tuple[DebianName, ...]] = get_args(DebianName)
INSTALL: Final = "apt-get install -y --no-install-recommends prometheus prometheus-alertmanager"
_ALSO: Final = {"alertmanager": "prometheus-alertmanager"}
"""Debian's name of the binary, by upstream's name."""


def debian_binary(name: DebianName) -> Path | None:
    """Return the binary if it is on the path, by upstream's name or Debian's."""
    found = shutil.which(name) or shutil.which(_ALSO.get(name, name))
    return Path(found) if found else None


def insist_on_debian(name: DebianName) -> Path:
    """Return the binary; if it is missing, skip the test, or fail it where backends are required."""
    binary = debian_binary(name)
    if binary is not None:
        return binary
    told = f"no real {name} here; `{INSTALL}` brings it"
    if os.environ.get(REQUIRE) == "true":
        pytest.fail(told)
    pytest.skip(told)
