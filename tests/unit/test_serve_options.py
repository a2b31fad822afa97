"""``blamespan serve PART``: options that a part does not use are refused, and ports keep their hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzer.cli.commands import serve as command
from analyzer.cli.main import run
from collector_processor.core.http_server import ListenError
from collector_processor.otlp import Address
from collector_processor.settings import Settings


@pytest.mark.parametrize(
    ("part", "option"),
    [
        ("collector", ["--model", "openai/m"]),
        ("analyzer", ["--forward", "http://127.0.0.1:9"]),
        ("analyzer", ["--grpc", "0"]),
        ("pages", ["--data-dir", "here"]),
        ("pages", ["--http", "0"]),
    ],
)
def test_an_option_that_a_part_does_not_use_is_refused(
    part: str, option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", part, *option]) == 2
    assert f"serve {part} has no use for {option[0]}" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["everything"], ["all", "--page", "65536"], ["--grpc", "x"]])
def test_an_unknown_part_or_port_is_refused(arguments: list[str]) -> None:
    assert run(["serve", *arguments]) == 2


def test_options_go_before_the_environment_and_ports_keep_their_hosts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started: list[Settings] = []

    def start(settings: Settings, _output: object) -> None:
        started.append(settings)

    monkeypatch.setattr(command, "serve_until_stopped", start)
    monkeypatch.setattr("uvloop.run", lambda _started: None)
    monkeypatch.setattr("os.umask", lambda _mask: None)
    monkeypatch.setenv("BLAMESPAN_WEB_LISTEN", "localhost:8500")
    monkeypatch.setenv("BLAMESPAN_MODEL", "openai/a")
    options = ["--page", "0", "--grpc", "4000", "--model", "openai/b", "--forward", "http://127.0.0.1:9"]
    assert run(["serve", "--data-dir", str(tmp_path), *options]) == 0
    (settings,) = started
    assert [str(one) for one in settings.listeners] == ["127.0.0.1:4000", "127.0.0.1:4318", "localhost:0"]
    assert (settings.model, settings.data_dir) == ("openai/b", tmp_path)
    assert {one.shown for one in settings.endpoints.values()} == {"http://127.0.0.1:9"}


@pytest.mark.parametrize(("place", "option"), [(0, "--grpc"), (1, "--http"), (2, "--page")])
def test_a_taken_port_names_the_option_that_chooses_another(
    place: int,
    option: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    addresses = [Address(host="127.0.0.1", port=4000 + number) for number in range(3)]

    def taken(_started: object) -> None:
        raise ListenError(addresses[place], "address already in use")

    monkeypatch.setattr(command, "serve_until_stopped", lambda _settings, _output: None)
    monkeypatch.setattr("uvloop.run", taken)
    monkeypatch.setattr("os.umask", lambda _mask: None)
    ports = ["--grpc", "4000", "--http", "4001", "--page", "4002"]
    assert run(["serve", "--data-dir", str(tmp_path), *ports]) == 1
    assert f"cannot listen on {addresses[place]}: address already in use; another port: {option} PORT" in (
        capsys.readouterr().err
    )
