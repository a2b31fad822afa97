"""Our own listener is recognised as our backend under any of its names."""

from __future__ import annotations

import pytest

from collector_processor.otlp import Address
from collector_processor.otlp.destination import own_listener

LOOPBACK = Address(host="127.0.0.1", port=4317)
EVERYWHERE = Address(host="0.0.0.0", port=4317)


@pytest.mark.parametrize("listener", [LOOPBACK, EVERYWHERE], ids=str)
@pytest.mark.parametrize(
    "endpoint",
    ["http://127.0.0.1:4317", "http://localhost:4317/", "http://LOCALHOST:4317", "http://127.0.0.2:4317"],
)
def test_names_of_this_machine_with_our_port_are_ours(endpoint: str, listener: Address) -> None:
    assert own_listener(endpoint, [listener]) == listener


@pytest.mark.parametrize(
    "endpoint", ["http://127.0.0.1:4318", "http://jaeger:4317", "https://localhost", "http://10.0.0.1:4317"]
)
def test_other_ports_and_machines_are_not(endpoint: str) -> None:
    assert own_listener(endpoint, [LOOPBACK]) is None


def test_a_scheme_without_a_port_means_its_own() -> None:
    assert own_listener("http://localhost", [Address(host="127.0.0.1", port=80)]) is not None
