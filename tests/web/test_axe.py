"""Only the pinned axe-core is unpacked."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from pathlib import Path

import pytest

from tools import axe


def test_another_package_than_the_pinned_one_is_refused(tmp_path: Path) -> None:
    package = tmp_path / "axe-core.tgz"
    package.write_bytes(b"something else")
    with pytest.raises(axe.AxeMissing, match="not the pinned package"):
        axe.unpack(package, tmp_path / "axe.min.js", axe.INTEGRITY)
    assert not (tmp_path / "axe.min.js").exists()
    assert b64encode(hashlib.sha512(b"something else").digest()).decode() != axe.INTEGRITY
