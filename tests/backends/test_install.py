"""Lookup never builds, a backend is built once, and errors name the obstacle."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from tests.backends import cache, fixtures, gotool, install


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return cache.cache_root()


def make_tool(folder: Path) -> None:
    (folder / "tool").write_text("#!/bin/sh\n")
    (folder / "tool").chmod(0o755)


def test_a_lookup_finds_nothing_and_builds_nothing(empty_cache: Path) -> None:
    assert install.collector_binary() is None
    assert install.jaeger_binary() is None
    assert not empty_cache.exists()


def test_without_go_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(gotool.BuildError, match="`go` is not on the PATH"):
        install.build("jaeger")


def test_a_failed_step_ends_with_the_tail_of_its_output(tmp_path: Path) -> None:
    step = ["sh", "-c", "seq 100; echo no such module; exit 2"]
    with pytest.raises(gotool.BuildError, match=r"ended with 2(.|\n)*no such module") as told:
        gotool.run(step, cwd=tmp_path, log=tmp_path / "log")
    assert "\n50\n" not in str(told.value)


def test_two_builds_at_once_are_one_build() -> None:
    made: list[Path] = []

    def make(folder: Path) -> None:
        made.append(folder)
        make_tool(folder)

    threads = [threading.Thread(target=cache.keep, args=("tool", "tool-1", "tool", make)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(made) == 1
    assert cache.kept("tool-1", "tool") is not None


def test_a_failed_build_leaves_nothing_behind(empty_cache: Path) -> None:
    def fail(folder: Path) -> None:
        make_tool(folder)
        raise gotool.BuildError("half way")

    with pytest.raises(gotool.BuildError, match="half way"):
        cache.keep("tool", "tool-1", "tool", fail)

    assert cache.kept("tool-1", "tool") is None
    assert [path.name for path in empty_cache.iterdir()] == ["tool.lock"]


def test_what_a_killed_build_left_is_swept(empty_cache: Path) -> None:
    (empty_cache / ".building-tool").mkdir(parents=True)
    (empty_cache / ".building-tool" / "half").touch()

    binary = cache.keep("tool", "tool-1", "tool", make_tool)

    assert [path.name for path in binary.parent.iterdir()] == ["tool"]


def test_other_pins_are_another_folder() -> None:
    assert cache.key_of(["a", "b"]) != cache.key_of(["ab"])


def test_a_missing_backend_skips_and_where_it_must_be_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(fixtures.REQUIRE, raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"tests\.backends\.install jaeger"):
        fixtures.insist_on("jaeger", None)
    monkeypatch.setenv(fixtures.REQUIRE, "true")
    with pytest.raises(pytest.fail.Exception, match=r"tests\.backends\.install jaeger"):
        fixtures.insist_on("jaeger", None)


def test_the_collector_has_the_modules_of_its_components() -> None:
    required = (install.COLLECTOR_MODULE / "go.mod").read_text().split("\n")
    wanted = [
        component["gomod"]
        for part in json.loads(install.builder_config()).values()
        if isinstance(part, list)
        for component in part
    ]
    assert len(wanted) > len(install.PROVIDERS)
    assert [module for module in wanted if f"\t{module}" not in required] == []
