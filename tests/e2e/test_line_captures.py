"""Runs recorded from frameworks, replayed as if live: Collector → blamespan → Jaeger."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from semconv.attributes import FAILURE_AGENT_NAME, FAILURE_DECISIVE
from tests.backends import install
from tests.backends.fixtures import insist_on
from tests.backends.forked import ran
from tests.backends.processes import Forwarding, RunningCollector, RunningJaeger, start_collector
from tests.e2e.in_jaeger import as_stored, look, references, tags, trace_ids
from tests.e2e.line import Line, environment, starting
from tests.e2e.spans import Placed, by_id, originals, placed_in_json

CAPTURES: Final = Path(__file__).parents[3] / "shared" / "captures"
WRONG_ANSWER: Final = r"\$450"
"""None of the recorded frameworks states an outcome: the user's rule defines failure."""
TEN_YEARS_S: Final = 10 * 365 * 86_400.0

pytestmark = pytest.mark.skipif(
    not CAPTURES.is_dir(), reason="the recorded runs are not beside the repository"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """Where recorded agents send to, and the backend behind it."""

    collector: RunningCollector
    line: Line


@pytest.fixture(scope="module")
def ends(jaeger: RunningJaeger, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ends]:
    binary = insist_on("collector", install.collector_binary())
    folder = tmp_path_factory.mktemp("captures")
    with starting(folder) as start_line:
        line = start_line(forward_endpoint=jaeger.otlp_grpc_endpoint, failure_pattern=WRONG_ANSWER)
        with start_collector(binary, folder, Forwarding(endpoint=line.grpc)) as collector:
            yield Ends(collector=collector, line=line)


def replay(file: Path, ends: Ends, protocol: str) -> dict[str, Any]:
    """Send a recorded run with the command that users have for it."""
    collector = ends.collector
    url = collector.otlp_grpc_endpoint if protocol == "grpc" else collector.otlp_http_endpoint
    options = ["--endpoint", url, "--protocol", protocol, "--format", "json", "--keep-times"]
    done = ran([sys.executable, "-m", "analyzer", "replay", str(file), *options], environ=environment())
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def recorded(file: Path) -> list[Placed]:
    return placed_in_json(json.loads(file.read_bytes()))


def services(spans: list[Placed]) -> set[str]:
    return {
        pair.value.string_value
        for one in spans
        for pair in one.resource.attributes
        if pair.key == "service.name"
    }


@pytest.mark.parametrize(
    ("name", "protocol"),
    [
        ("openai_agents-openinference", "grpc"),
        ("langgraph-openinference", "http/protobuf"),
        ("autogen-openinference", "http/json"),
        ("crewai-openinference", "grpc"),
        ("smolagents-openinference", "http/protobuf"),
        ("langgraph-genai_official", "http/json"),
        ("lg-crash", "grpc"),
        ("oa-crash", "http/protobuf"),
    ],
)
def test_the_blame_of_a_recorded_run_hangs_under_the_span_that_broke_it(
    ends: Ends, jaeger: RunningJaeger, name: str, protocol: str
) -> None:
    truth = json.loads((CAPTURES / "INDEX.json").read_bytes())[name]
    gold, file = truth["gold_span"], CAPTURES / f"{name}.json"
    sent = recorded(file)
    sent_here = [one for one in sent if one.span.trace_id.hex() == gold["trace_id"]]

    told = replay(file, ends, protocol)

    assert (told["items"], told["rejected"]) == (len(sent), 0)
    seen = look(jaeger, gold["trace_id"], spans=len(sent_here) + 2)
    (decisive,) = seen.decisive()
    assert tags(decisive)[FAILURE_AGENT_NAME] == truth["gold_agent"]
    assert references(decisive) == [("CHILD_OF", gold["span_id"])]
    assert seen.warnings() == []
    assert len(seen.carriers()) == 2
    assert originals(seen.stored) == by_id(as_stored(sent_here))
    (service,) = services(sent_here)
    found = jaeger.query.find_traces(service, tags={FAILURE_DECISIVE: "true"}, lookback_s=TEN_YEARS_S)
    assert gold["trace_id"] in trace_ids(found)
