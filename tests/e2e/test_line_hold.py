"""Hold mode: agents' original spans wait for a verdict, for a bounded time, and carry it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from collector_processor.otlp import Signal
from collector_processor.rebuild.decode import decode
from collector_processor.rebuild.encode import encode
from semconv.attributes import ERROR, FAILURE_AGENT_NAME, FAILURE_DECISIVE, RUN_ID
from semconv.model import Link, Span, TraceId
from tests.backends.supervise import wait_until
from tests.e2e.backend import Backend, grpc_backend
from tests.e2e.line import StartLine
from tests.e2e.spans import Placed, by_id, carriers, placed
from tests.e2e.traffic import CARRIERS, DEMO_SPANS, Played, play_demo, request, send, span_id

FOREVER_MS: Final = 60_000
NAMES: Final = ["calculator: wrong computation", "failure: calculator (wrong computation)"]


def added(sent: Iterable[Placed], came: Iterable[Placed]) -> dict[str, list[str]]:
    """Return the added attributes of each span; everything else must be unchanged."""
    before, after = by_id(sent), by_id(came)
    found: dict[str, list[str]] = {}
    for name, one in before.items():
        own, grown = len(one.span.attributes), after[name]
        if more := [pair.key for pair in grown.span.attributes[own:]]:
            found[name] = more
        bare = replace(grown, span=type(grown.span).FromString(grown.span.SerializeToString()))
        del bare.span.attributes[own:]
        assert bare == one
    assert after.keys() == before.keys()
    return found


def test_no_original_reaches_the_backend_before_the_verdict(start_line: StartLine) -> None:
    with grpc_backend() as backend:
        line = start_line(forward_endpoint=backend.url, write_back=f"hold:{FOREVER_MS}")
        played = play_demo()
        send(line, request(played.spans[:5]))
        send(line, request(played.spans[5:-1]), way="http+gzip")
        line.await_items("held", DEMO_SPANS - 1)
        assert backend.requests == []

        send(line, request([played.root]), way="json")
        came = backend.await_spans(played.trace_id, DEMO_SPANS)

        assert line.verdict(played.trace_id)["agent"] == "calculator"
        changes = added(placed(played.body), came)
        assert changes.keys() == {span_id(played.decisive), span_id(played.root)}
        assert {FAILURE_DECISIVE, ERROR} <= set(changes[span_id(played.decisive)])
        assert ERROR not in changes[span_id(played.root)]
        assert {RUN_ID, FAILURE_AGENT_NAME} <= set(changes[span_id(played.root)])
        assert FAILURE_DECISIVE not in changes[span_id(played.root)]
        of_run, of_step = backend.await_records(2)
        assert (of_run.span_id.hex(), of_step.span_id.hex()) == (
            span_id(played.root),
            span_id(played.decisive),
        )
        assert line.terminate() == 0
        assert len(backend.spans(played.trace_id)) == DEMO_SPANS, "nothing beside the originals"


def test_spans_without_a_verdict_in_time_are_forwarded_unchanged_and_the_blame_follows(
    start_line: StartLine,
) -> None:
    with grpc_backend() as backend:
        line = start_line(forward_endpoint=backend.url, write_back="hold:400")
        played = play_demo()
        send(line, request(played.spans[:-1]))
        came = backend.await_spans(played.trace_id, DEMO_SPANS - 1)

        assert by_id(came) == by_id(placed(request(played.spans[:-1])))
        assert line.run(played.trace_id) is None
        wait_until(lambda: line.said("held traces released without a verdict"), what="it to be said")
        assert len(line.said("held traces released without a verdict")) == 1

        send(line, request([played.root]))
        came = backend.await_spans(played.trace_id, DEMO_SPANS + CARRIERS)
        assert [one.span.name for one in carriers(came)] == NAMES
        assert added(placed(played.body), (one for one in came if not one.is_carrier)) == {}


def test_spans_that_arrive_after_the_verdict_are_not_held(start_line: StartLine) -> None:
    with grpc_backend() as backend:
        line = start_line(forward_endpoint=backend.url, write_back=f"hold:{FOREVER_MS}")
        played = play_demo()
        first, *rest = played.spans
        send(line, request(rest))
        backend.await_spans(played.trace_id, DEMO_SPANS - 1)

        send(line, request([first]))

        came = backend.await_spans(played.trace_id, DEMO_SPANS)
        assert by_id(came)[span_id(first)] == by_id(placed(played.body))[span_id(first)]
        assert [one.id for one in came if one.is_decisive] == [span_id(played.decisive)]


def writer_apart(played: Played) -> tuple[list[Span], list[Span]]:
    """Return the run as two traces: the writer's part, and all the rest, to which it links."""
    spans = decode(played.body).spans
    writer = next(one for one in spans if one.name == "invoke_agent writer")
    link = Link(trace_id=writer.trace_id, span_id=span_id(played.root))
    other = TraceId(played.trace_id[::-1])
    part = [
        replace(one, trace_id=other, parent_id=None, links=(link,))
        if one is writer
        else replace(one, trace_id=other)
        for one in spans
        if writer.span_id in {one.span_id, one.parent_id}
    ]
    taken = {one.span_id for one in part}
    return [one for one in spans if one.span_id not in taken], part


def await_both(backend: Backend, rest: list[Span], part: list[Span]) -> list[Placed]:
    return [
        *backend.await_spans(rest[0].trace_id, len(rest)),
        *backend.await_spans(part[0].trace_id, len(part)),
    ]


def test_a_run_of_two_traces_carries_its_verdict_in_whichever_ended_first(start_line: StartLine) -> None:
    with grpc_backend() as backend:
        # So long a grace that a slow machine sends both before it is over.
        line = start_line(forward_endpoint=backend.url, write_back=f"hold:{FOREVER_MS}", root_grace=5_000)
        played = play_demo()
        rest, part = writer_apart(played)
        send(line, encode(rest))
        send(line, encode(part))

        came = await_both(backend, rest, part)

        assert [one.id for one in came if one.is_decisive] == [span_id(played.decisive)]
        assert added(placed(encode(rest), encode(part)), came).keys() == {
            span_id(played.decisive),
            span_id(played.root),
        }
        assert [one["agent"] for one in line.runs()] == ["calculator"]
        assert line.terminate() == 0
        assert len(backend.of(Signal.LOGS)) == 1
