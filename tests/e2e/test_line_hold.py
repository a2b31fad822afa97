"""Hold mode: agents' original spans wait for a verdict, for a bounded time, and carry it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from semconv.attributes import ERROR, FAILURE_AGENT_NAME, FAILURE_DECISIVE, RUN_ID
from tests.e2e.backend import grpc_backend
from tests.e2e.line import StartLine
from tests.e2e.spans import Placed, by_id, placed
from tests.e2e.traffic import DEMO_SPANS, play_demo, request, send, span_id

FOREVER_MS: Final = 60_000


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
