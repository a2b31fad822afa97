"""The shipped Collector configurations: a real Collector accepts each, and the tiers are run.

A configuration runs as shipped, except for ports and waiting times.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.request import ProxyHandler, Request, build_opener

import pytest
import yaml
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.hostile.collector_kill import (
    Tier,
    agent,
    agent_before,
    gateway,
    gateway_before,
    kill_under_load,
    own_ports,
)
from semconv.attributes import FAILURE_AGENT_NAME, FAILURE_DECISIVE
from tests.backends import install
from tests.backends.endpoint_slices import EndpointSlices, kubeconfig, serve
from tests.backends.fixtures import insist_on
from tests.backends.jaeger_query import JaegerTrace, tags_of
from tests.backends.processes import RunningJaeger
from tests.backends.supervise import HOST, Server, free_ports, listens, running, wait_until
from tests.deploy.shifts import work
from tests.e2e.backend import Request as Received
from tests.e2e.backend import grpc_backend
from tests.e2e.line import Line, StartLine, starting
from tests.e2e.spans import placed
from tests.e2e.traffic import Doors, Played, play_demo, request, send, span_id
from tests.otlp_requests import numbers_in, span
from tests.otlp_requests import request as plain

FOLDER: Final = Path(__file__).parents[2] / "deploy" / "collector"
SHIPPED: Final = sorted(FOLDER.glob("*.yaml"))
TOKEN: Final = "gateway-token"
PATIENCE_S: Final = 240.0
QUIET: Final = "service::telemetry::metrics::level=none"
RUNS: Final = 40
"""The chance that a sampler of one in ten passes all of them is 10^-40."""
SHARED: Final = 32
"""Runs for two processors. Trace ids and ports are random: the chance that all go to one of them is 10^-8."""
TRIALS: Final = 5
"""A Collector killed right after it sent a batch loses nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A Collector that runs one of our configurations."""

    server: Server
    doors: Doors


StartTier: TypeAlias = Callable[..., Running]


@pytest.fixture
def collector() -> Path:
    return insist_on("collector", install.collector_binary())


@pytest.fixture
def start_tier(collector: Path, tmp_path: Path) -> Iterator[StartTier]:
    """Yield a function that runs a configuration with changed values; Collectors end with the test."""
    with ExitStack() as stack:

        def start(file: Path, values: dict[str, str] | None = None, **environ: str) -> Running:
            (port,) = free_ports(1)
            chosen = {"receivers::otlp::protocols::grpc::endpoint": f"{HOST}:{port}", **(values or {})}
            settings = [f"--set={name}={value}" for name, value in chosen.items()]
            command = [str(collector), "--config", str(file), f"--set={QUIET}", *settings]
            queue = {"COLLECTOR_QUEUE": str(tmp_path / f"{file.stem}-queue")}
            log, all_of_it = (
                tmp_path / f"{file.stem}.log",
                os.environ | own_ports(free_ports(3)) | queue | environ,
            )
            server = stack.enter_context(
                running(file.stem, command, log=log, is_ready=lambda: listens(port), environ=all_of_it)
            )
            return Running(server=server, doors=Doors(grpc=f"http://{HOST}:{port}", http=""))

        yield start


def test_there_are_configurations_to_check() -> None:
    assert "gateway" in [file.stem for file in SHIPPED]


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_the_collector_takes_the_configuration(collector: Path, tmp_path: Path, file: Path) -> None:
    done = validate(collector, file, tmp_path)
    assert done.returncode == 0, done.stderr


def validate(collector: Path, file: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Let the Collector check a file; this needs no cluster."""
    environ = os.environ | {"KUBECONFIG": str(kubeconfig(folder, f"http://{HOST}:1"))}
    command = [str(collector), "validate", "--config", str(file)]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_no_configuration_uses_a_deprecated_name(file: Path) -> None:
    config = yaml.safe_load(file.read_text())
    kinds = {name.partition("/")[0] for name in config["exporters"]}
    assert kinds.isdisjoint({"otlp", "otlphttp"}), "since Collector 0.144 these are otlp_grpc and otlp_http"


@pytest.mark.parametrize("file", [FOLDER / "agent.yaml", FOLDER / "gateway.yaml"], ids=lambda file: file.stem)
def test_a_tier_acknowledges_nothing_from_memory(file: Path) -> None:
    config = yaml.safe_load(file.read_text())
    pipelines = config["service"]["pipelines"]
    assert set(config["processors"]) == {"memory_limiter"}
    for name, pipeline in pipelines.items():
        (exporter,) = (config["exporters"][exporter] for exporter in pipeline["exporters"])
        if name.endswith("/in"):
            assert exporter["sending_queue"] == {"enabled": False}
        else:
            assert exporter["sending_queue"]["storage"] == "file_storage"
            sharing = [one for one, other in pipelines.items() if other["receivers"] == pipeline["receivers"]]
            assert sharing == [name], "a shared receiver serves before all queues are loaded"


def test_a_configuration_that_is_wrong_is_not_taken(collector: Path, tmp_path: Path) -> None:
    config = yaml.safe_load((FOLDER / "gateway.yaml").read_text())
    config["exporters"]["loadbalancing"]["resolver"]["k8s"]["ports"] = ["otlp"]
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(yaml.safe_dump(config))
    done = validate(collector, wrong, tmp_path)
    assert (done.returncode, "ports[0]' expected type 'int32'" in done.stderr) == (1, True), done.stderr


@pytest.mark.parametrize(("now", "before"), [(agent, agent_before), (gateway, gateway_before)])
def test_a_killed_collector_loses_nothing_it_acknowledged_as_it_did_with_a_batch_processor(
    collector: Path, tmp_path: Path, now: Tier, before: Tier
) -> None:
    folders = [tmp_path / str(trial) for trial in range(1 + TRIALS)]
    for folder in folders:
        folder.mkdir()
    lost = kill_under_load(collector, now, folders[0], runs=60, kills=2, arrival_s=PATIENCE_S)
    assert (lost.spans, lost.spans_lost) == (600, 0)
    trials = (kill_under_load(collector, before, folder, runs=60, kills=2) for folder in folders[1:])
    assert any(trial.spans_lost for trial in trials), "else this test could not see a loss"


def test_the_gateway_brings_all_parts_of_a_trace_to_the_same_of_two_processors(
    start_tier: StartTier, tmp_path: Path
) -> None:
    folders = tmp_path / "one", tmp_path / "other"
    for folder in folders:
        folder.mkdir()
    with starting(folders[0]) as start_one, starting(folders[1]) as start_other:
        lines = [start(token=TOKEN, root_grace=1000) for start in (start_one, start_other)]
        config = yaml.safe_load((FOLDER / "gateway.yaml").read_text())
        hosts = [line.grpc.removeprefix("http://") for line in lines]
        config["exporters"]["loadbalancing"]["resolver"] = {"static": {"hostnames": hosts}}
        file = tmp_path / "gateway-to-two.yaml"
        file.write_text(yaml.safe_dump(config))
        gateway = start_tier(file, _http_port(), BLAMESPAN_TOKEN=TOKEN)

        played = []
        for _ in range(6):  # trace ids are random: 1 in 100 rounds of eight goes to one processor alone
            played += [play_demo() for _ in range(8)]
            latest = played[-8:]
            for place in range(max(len(one.spans) for one in latest)):  # each span in a request of its own
                for one in latest:
                    send(gateway.doors, request(one.spans[place : place + 1]))
            wait_until(
                partial(_are_judged, lines, tuple(played)),
                what=f"a verdict on each run; the gateway says {gateway.server.tail()}",
                timeout_s=PATIENCE_S,
            )
            if all(_runs(line) for line in lines):
                break
        assert all(_runs(line) for line in lines), "both processors have had some"


def test_a_processor_that_restarts_with_another_address_gets_its_traces_again(
    start_tier: StartTier, tmp_path: Path
) -> None:
    # A pod is called <pod>.<service>.<namespace>: 127.0 of service 0 in namespace 1 is 127.0.0.1.
    (port,) = free_ports(1)
    slices = EndpointSlices("0", "1")
    first, second, third = (f"10.0.0.{number}" for number in (1, 2, 3))
    slices.become(**{"127_0": first, "127_1": second})
    values = {
        **_http_port(),
        "exporters::loadbalancing::resolver::k8s::service": "'0.1'",
        "exporters::loadbalancing::resolver::k8s::ports": f"[{port}]",
    }
    with (
        serve(slices, tmp_path) as config,
        grpc_backend(at=f"127.0.0.1:{port}") as one,
        grpc_backend(at=f"127.1.0.1:{port}") as other,
    ):
        gateway = start_tier(FOLDER / "gateway.yaml", values, KUBECONFIG=str(config))
        played = [play_demo() for _ in range(SHARED)]

        def who_gets(place: int) -> list[str]:
            seen = len(one.requests), len(other.requests)
            for run in played:
                send(gateway.doors, request(run.spans[place : place + 1]))

            def arrived() -> list[str] | None:
                new = {
                    **_spans_of("one", one.requests[seen[0] :]),
                    **_spans_of("other", other.requests[seen[1] :]),
                }
                ids = [span_id(run.spans[place]) for run in played]
                return [new[one_id] for one_id in ids] if set(ids) <= set(new) else None

            return wait_until(arrived, what="the spans")

        before = who_gets(0)
        assert set(before) == {"one", "other"}
        slices.become(**{"127_1": second})
        wait_until(lambda: set(who_gets(1)) == {"other"}, what="the gateway to see that a pod is gone")
        slices.become(**{"127_0": third, "127_1": second})
        wait_until(lambda: who_gets(2) == before, what="the gateway to see that it is back")
        assert who_gets(3) == before


def test_what_a_processor_that_went_for_good_did_not_take_goes_to_another(
    start_tier: StartTier, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    slices = EndpointSlices("0", "1")
    slices.become(**{"127_0": "10.0.0.1", "127_1": "10.0.0.2"})
    values = {
        **_http_port(),
        "exporters::loadbalancing::resolver::k8s::service": "'0.1'",
        "exporters::loadbalancing::resolver::k8s::ports": f"[{port}]",
        "exporters::loadbalancing::protocol::otlp::retry_on_failure::initial_interval": "500ms",
        "exporters::loadbalancing::protocol::otlp::retry_on_failure::max_interval": "1s",
        "exporters::loadbalancing::protocol::otlp::retry_on_failure::max_elapsed_time": "2s",
    }
    # Nobody listens on 127.0.0.1: its pod is in the list and does not answer.
    with serve(slices, tmp_path) as config, grpc_backend(at=f"127.1.0.1:{port}") as other:
        gateway = start_tier(FOLDER / "gateway.yaml", values, KUBECONFIG=str(config))
        played = [play_demo() for _ in range(SHARED)]
        for run in played:
            send(gateway.doors, request(run.spans))
        wait_until(lambda: other.requests, what="what is the other's")
        wanted = {span_id(span) for run in played for span in run.spans}
        assert not wanted <= set(_spans_of("other", other.requests))
        slices.become(**{"127_1": "10.0.0.2"})
        wait_until(lambda: wanted <= set(_spans_of("other", other.requests)), what="the rest")


def _spans_of(name: str, requests: Sequence[Received]) -> dict[str, str]:
    return {span.id: name for span in placed(*(one.body for one in requests))}


def test_only_services_that_run_agents_go_to_blamespan_and_every_span_goes_somewhere(
    start_tier: StartTier,
) -> None:
    """A trace that runs through both kinds of services is cut between them, span by span."""
    with grpc_backend() as blamespan, grpc_backend() as backend:
        collector = start_tier(
            FOLDER / "routing.yaml",
            _http_port(),
            AGENT_SERVICES="planner|tools-.*",
            BLAMESPAN_ENDPOINT=blamespan.url.removeprefix("http://"),
            BACKEND_ENDPOINT=backend.url.removeprefix("http://"),
        )
        services = ("planner", "tools-web", "shop", "planner-ui", "")
        bodies = [plain(span(number), service=name) for number, name in enumerate(services, start=1)]
        send(collector.doors, b"".join(bodies))  # one request with all of them, one trace
        send(collector.doors, no_resource(span(6)))
    assert sorted(numbers_in(*(one.body for one in blamespan.requests))) == [1, 2]
    assert sorted(numbers_in(*(one.body for one in backend.requests))) == [3, 4, 5, 6]


def no_resource(one: Span) -> bytes:
    message = ExportTraceServiceRequest()
    message.resource_spans.add().scope_spans.add(spans=[one])
    return message.SerializeToString()


def test_behind_blamespan_a_tail_sampler_keeps_every_blamed_run_and_some_of_the_others(
    jaeger: RunningJaeger, start_tier: StartTier, start_line: StartLine
) -> None:
    values = {"processors::tail_sampling::decision_wait": "2s"}
    backend = jaeger.otlp_grpc_endpoint.removeprefix("http://")
    sampler = start_tier(FOLDER / "tail-sampler-behind.yaml", values, BACKEND_ENDPOINT=backend)
    line = start_line(forward_endpoint=sampler.doors.grpc, write_back="hold:30000")
    passing = [work(line, "planner", "calculator") for _ in range(RUNS)]
    broken = [work(line, "planner", "calculator", failing="calculator") for _ in range(5)]
    blamed = [_await_blame(jaeger, sampler, run_id) for run_id in broken]
    assert blamed == [["calculator"]] * len(broken)
    # The sampler decides in the order of arrival: when the last, the broken, are through, so are the others.
    kept = [run_id for run_id in passing if jaeger.query.trace(run_id) is not None]
    assert len(kept) < RUNS


def test_carriers_are_left_out_of_span_metrics_and_reach_the_backend(
    jaeger: RunningJaeger, start_tier: StartTier, start_line: StartLine
) -> None:
    (metrics,) = free_ports(1)
    backend = jaeger.otlp_grpc_endpoint.removeprefix("http://")
    values = {
        "exporters::prometheus::endpoint": f"{HOST}:{metrics}",
        "connectors::spanmetrics::metrics_flush_interval": "500ms",
    }
    tier = start_tier(FOLDER / "spanmetrics-without-carriers.yaml", values, BACKEND_ENDPOINT=backend)
    line = start_line(forward_endpoint=tier.doors.grpc)
    played = play_demo()
    send(line, request(played.spans))
    spans = len(played.spans)
    found = wait_until(
        lambda: _whole(jaeger.query.trace(played.trace_id), spans + 2),
        what="the run and its carriers in Jaeger",
        timeout_s=PATIENCE_S,
    )
    assert _blamed(found) == [played.expected.agent]
    later = play_demo(service="later")
    send(line, request(later.spans))
    wait_until(
        lambda: _calls(metrics, "later") >= spans, what="what came later, counted", timeout_s=PATIENCE_S
    )
    assert _calls(metrics, "solar-advisor") == spans


def _http_port() -> dict[str, str]:
    (port,) = free_ports(1)
    return {"receivers::otlp::protocols::http::endpoint": f"{HOST}:{port}"}


def _are_judged(lines: list[Line], played: Sequence[Played]) -> bool:
    """Return whether each run has one verdict, and the right one."""
    expected = [[one.expected.agent] for one in played]
    return _agents(lines, [one.trace_id for one in played]) == expected


def _agents(lines: list[Line], run_ids: list[str]) -> list[list[str]]:
    """Return, for each run, the agents blamed by the processors that have a verdict on it."""
    found = [_runs(line) for line in lines]
    return [[runs[run_id] for runs in found if run_id in runs] for run_id in run_ids]


def _runs(line: Line) -> dict[str, str]:
    asked = Request(f"{line.web}/api/runs", headers={"Authorization": f"Bearer {TOKEN}"})
    with build_opener(ProxyHandler({})).open(asked, timeout=300) as answer:
        return {run["run_id"]: run["agent"] for run in json.load(answer)["runs"]}


def _blamed(found: JaegerTrace | None) -> list[Any] | None:
    """Return the agents of a trace's decisive spans; ``None`` before there is one."""
    spans = [] if found is None else found["spans"]
    tags = [tags_of(span) for span in spans]
    return [one[FAILURE_AGENT_NAME] for one in tags if one.get(FAILURE_DECISIVE) is True] or None


def _await_blame(jaeger: RunningJaeger, sampler: Running, run_id: str) -> list[Any]:
    return wait_until(
        lambda: _blamed(jaeger.query.trace(run_id)),
        what=f"a blamed run in Jaeger; the sampler says {sampler.server.tail()}",
        timeout_s=PATIENCE_S,
    )


def _whole(found: JaegerTrace | None, spans: int) -> JaegerTrace | None:
    return found if found is not None and len(found["spans"]) >= spans else None


def _calls(port: int, service: str) -> float:
    with build_opener(ProxyHandler({})).open(f"http://{HOST}:{port}/metrics", timeout=300) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    samples = [sample for family in families for sample in family.samples]
    calls = [sample for sample in samples if sample.name.endswith("calls_total")]
    return sum(sample.value for sample in calls if sample.labels["service_name"] == service)
