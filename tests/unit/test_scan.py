from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from collector_processor.otlp import MalformedRequestError, Signal
from collector_processor.otlp.otlp_json import to_protobuf
from collector_processor.wire.agent_markers import hints_of
from collector_processor.wire.facts import (
    AGENT_BIT,
    MARKED_BIT,
    REMOTE_BIT,
    TOP_BIT,
    TraceNote,
    kind_of,
    pack_notes,
    unpack_notes,
)
from collector_processor.wire.protobuf import write_varint
from collector_processor.wire.scan import item_count, scan_logs, scan_metrics, scan_traces
from collector_processor.wire.split import drop_invalid, exclude, extract
from semconv.markers import OWN_CALL_TRACE_PREFIX
from tests.otlp_requests import (
    REMOTE_PARENT,
    as_dotnet_writes,
    as_the_collector_writes,
    log_request,
    many_spans,
    metric_request,
    numbers_in,
    record,
    request,
    span,
    span_note,
    trace_name,
)

CAPTURES = Path(__file__).parents[3] / "shared" / "captures"
WORKFLOW = {"gen_ai.operation.name": "invoke_workflow"}
AGENT = {"openinference.span.kind": "AGENT"}


def test_spans_are_counted_for_each_trace() -> None:
    found = scan_traces(many_spans(7, traces=3), {trace_name(number) for number in (1, 2, 3)})
    assert found.item_count == 7
    counts = [(note.trace_id, note.span_count) for note in found.traces]
    assert counts == [(trace_name(1), 3), (trace_name(2), 2), (trace_name(3), 2)]
    assert sum(note.byte_count for note in found.traces) < len(many_spans(7, traces=3))


def test_a_trace_without_agents_only_has_its_spans_counted() -> None:
    found = scan_traces(many_spans(7, traces=3), {trace_name(2)})
    assert found.item_count == 7
    assert [(note.trace_id, note.span_count) for note in found.traces] == [(trace_name(2), 2)]


@pytest.mark.parametrize(
    "attributes",
    [WORKFLOW, AGENT, {"traceloop.span.kind": "task"}, {"llm.model_name": "m"}, {"blamespan.task.id": "t"}],
    ids=lambda attributes: next(iter(attributes)),
)
def test_one_marked_attribute_makes_an_agent_trace(attributes: dict[str, str]) -> None:
    filler = {f"http.header.{n}": "x" * 50 for n in range(10)}
    agents = span(2, trace=2, parent=1, attributes=filler | attributes)
    body = request(span(1), agents, span(3, trace=2, parent=1))
    (marked,) = scan_traces(body).traces
    assert (marked.trace_id, marked.is_agent) == (trace_name(2), True)
    assert [bits & MARKED_BIT for _, _, bits, *_ in marked.spans] == [MARKED_BIT, 0]


@pytest.mark.parametrize(
    "scope",
    [
        *("openinference.instrumentation.agno", "autogen-core"),
        *("blamespan.instrument", "strands.telemetry.tracer"),
    ],
)
def test_a_marked_scope_makes_an_agent_trace(scope: str) -> None:
    (note,) = scan_traces(request(span(1), scope=scope)).traces
    assert note.is_agent


def test_a_marker_in_a_value_does_not_count() -> None:
    body = request(span(1, attributes={"http.url": "/docs/gen_ai.operation.name", "sql": "select gen_ai.x"}))
    assert scan_traces(body).traces == ()


@pytest.mark.parametrize(
    "write", [bytes, as_the_collector_writes, as_dotnet_writes], ids=["usual", "Collector", ".NET"]
)
def test_a_marker_between_spans_marks_no_span(write: Callable[[bytes], bytes]) -> None:
    reads_like_one = "J\x10\n\x0egen_ai.system"
    agent = span(2, trace=2, attributes=WORKFLOW)
    body = request(span(1), service=reads_like_one) + request(agent, span(3, trace=3), service=reads_like_one)
    assert [note.trace_id for note in scan_traces(write(body)).traces] == [trace_name(2)]
    assert scan_traces(write(request(service=reads_like_one))).traces == ()


@pytest.mark.parametrize("trace_state", ["", "vendor=1"])
def test_a_span_without_parent_is_a_root(trace_state: str) -> None:
    body = request(
        span(1, trace=1, trace_state=trace_state), span(2, trace=2, parent=1, trace_state=trace_state)
    )
    found = scan_traces(body, {trace_name(1), trace_name(2)})
    assert [[parent for _, parent, *_ in note.spans] for note in found.traces] == [[0], [1]]


def test_a_parent_of_zeros_means_no_parent() -> None:
    (note,) = scan_traces(request(span(1, parent=0, attributes=WORKFLOW))).traces
    assert note.spans[0][1] == 0


def test_a_parent_that_is_written_as_a_number_means_no_parent() -> None:
    usual = span(1, attributes=WORKFLOW).SerializeToString()
    raw = b"\x21" + bytes(range(1, 9)) + usual[28:] + usual[:28]
    assert not Span.FromString(raw).parent_span_id
    for tag in (b"\x12", b"\x12", b"\x0a"):
        raw = tag + write_varint(len(raw)) + raw
    assert scan_traces(raw, {trace_name(1)}).traces[0].spans[0][1] == 0


def test_notes_say_what_the_assembler_needs() -> None:
    body = request(
        span(1, attributes=WORKFLOW),
        span(2, parent=1, attributes=AGENT, trace_state="a=b"),
        span(3, parent=2, flags=REMOTE_PARENT),
    )
    (note,) = scan_traces(body).traces
    assert tuple(span_note(*ids_and_bits, links=links) for *ids_and_bits, _, _, _, links in note.spans) == (
        span_note(span_id=1, bits=TOP_BIT | MARKED_BIT),
        span_note(span_id=2, parent_id=1, bits=AGENT_BIT | MARKED_BIT),
        span_note(span_id=3, parent_id=2, bits=REMOTE_BIT),
    )


@pytest.mark.parametrize("write", [bytes, as_the_collector_writes, as_dotnet_writes])
def test_notes_say_when_a_span_ended_which_code_sent_it_and_what_it_links_to(
    write: Callable[[bytes], bytes],
) -> None:
    linked = span(1, attributes=WORKFLOW, name="plan the day", trace_state="a=b")
    for trace in (7, 1, 7, 8):  # its own trace is none that it leads to
        linked.links.add(trace_id=trace.to_bytes(16), span_id=(1).to_bytes(8))
    text = span(2, parent=1, attributes={"gen_ai.prompt": "\n\x10looks like a trace id!"})
    (note,) = scan_traces(write(request(linked, text, scope="planner", service="shop"))).traces
    (*_, end_ns, source, kind, links), (*_, second_source, second_kind, no_links) = note.spans
    assert end_ns == linked.end_time_unix_nano
    assert kind == kind_of(b"shop", b"planner", b"plan the day")
    assert links == (trace_name(7), trace_name(8))
    assert (second_kind, no_links) == (kind_of(b"shop", b"planner", b"work"), ())
    assert source == second_source != 0
    (other,) = scan_traces(write(request(linked, service="billing"))).traces
    ((*_, other_source, _, _),) = other.spans
    assert other_source != source


@given(
    st.text("*9A0j\n\x10\x08 abc", max_size=150),
    st.integers(0, 5),
    st.one_of(st.none(), st.integers(1, 2**64 - 1)),
    st.sampled_from([0, REMOTE_PARENT]),
    st.sampled_from(["", "a=b"]),
    st.integers(0, 2**64 - 1),
    st.lists(st.integers(1, 3), max_size=3),
)
def test_facts_of_a_span_do_not_depend_on_its_encoding(  # noqa: PLR0917 - what a span has
    name: str, kind: int, parent: int | None, flags: int, state: str, end_ns: int, links: list[int]
) -> None:
    made = span(1, parent=parent, attributes=WORKFLOW, name=name, flags=flags, trace_state=state)
    made.kind = Span.SpanKind.ValueType(kind)
    made.end_time_unix_nano = end_ns
    for trace in links:
        made.links.add(trace_id=trace.to_bytes(16), span_id=(9).to_bytes(8), trace_state=state)
    others = {trace_name(n) for n in links} - {trace_name(1)}
    expected = (end_ns, kind_of(b"checkout", b"shop", name.encode()), others)
    for write in (bytes, as_the_collector_writes, as_dotnet_writes):
        (note,) = scan_traces(write(request(made))).traces
        ((*_, ended, _, found_kind, linked),) = note.spans
        assert (ended, found_kind, set(linked)) == expected


def test_a_span_that_is_broken_behind_its_ids_has_no_facts() -> None:
    body = request(span(1, attributes=WORKFLOW))
    end = body.index((1_700_000_000_000_001_000).to_bytes(8, "little"))
    broken = body[: end - 1] + b"\x47" + body[end:]  # a wire type that there is none of
    (note,) = scan_traces(broken).traces
    assert [(end_ns, links) for _, _, _, end_ns, _, _, links in note.spans] == [(0, ())]


def _message(tag: bytes, content: bytes) -> bytes:
    return tag + write_varint(len(content)) + content


def _raw_span(number: int, rest: bytes) -> bytes:
    ids = _message(b"\x0a", b"t" * 16) + _message(b"\x12", number.to_bytes(8, "big"))
    return _message(b"\x12", ids + rest)


_RESOURCE = _message(b"\x0a", _message(b"\x0a", _message(b"\x0a", b"key")) * 20_000)
_LONG_SCOPE = _message(b"\x0a", _message(b"\x0a", b"openinference." + b"s" * 8_000_000))
_AGENTS_SCOPE = _message(b"\x0a", _message(b"\x0a", b"openinference."))
_NAMED = _message(b"\x2a", b"work")


@pytest.mark.parametrize(
    "group",
    [
        _RESOURCE + b"".join(_message(b"\x12", _AGENTS_SCOPE + _raw_span(n, _NAMED)) for n in range(1, 500)),
        b"".join(_message(b"\x12", _AGENTS_SCOPE + _raw_span(n, _NAMED)) for n in range(1, 5_000)),
        _message(b"\x12", _LONG_SCOPE + b"".join(_raw_span(n, _NAMED) for n in range(1, 3_000))),
        _message(
            b"\x12",
            _AGENTS_SCOPE
            + b"".join(_raw_span(n, b"\x2a" + write_varint(1 << 40)) for n in range(1, 10_000))
            + _message(b"\x1a", b"u" * 8_000_000),
        ),
    ],
    ids=["one large Resource of many scopes", "no Resource", "a long scope", "names that claim to be long"],
)
def test_any_request_is_read_through_only_a_few_times(group: bytes) -> None:
    """If read once for each scope or span, these 8 MB would take the event loop many seconds."""
    body, before = _message(b"\x0a", group), process_time()
    assert scan_traces(body).traces[0].is_agent
    assert process_time() - before < 3


def test_carriers_are_counted_and_never_noted() -> None:
    carrier = span(9, parent=1, attributes={"blamespan.carrier": True})
    body = request(carrier) + request(span(8, parent=1), scope="blamespan")
    (note,) = scan_traces(body).traces
    assert note.is_only_carriers
    assert not note.is_agent
    assert note.spans == ()
    (mixed,) = scan_traces(body + request(span(1, attributes=WORKFLOW))).traces
    assert mixed.carrier_count == 2
    assert [span_id for span_id, *_ in mixed.spans] == [1]


def test_spans_of_our_own_model_calls_are_never_analysed() -> None:
    ours = int(OWN_CALL_TRACE_PREFIX + "0" * 15 + "1", 16)
    (note,) = scan_traces(request(span(1, trace=ours, attributes=WORKFLOW))).traces
    assert not note.is_agent
    assert note.is_only_carriers
    assert scan_logs(log_request(record(trace=ours, name="gen_ai.choice"))).traces == ()


def test_a_known_trace_gets_its_notes_without_a_marker() -> None:
    body = request(span(1, parent=2))
    assert scan_traces(body).traces == ()
    (note,) = scan_traces(body, {trace_name(1)}).traces
    assert [span_id for span_id, *_ in note.spans] == [1]
    assert not note.is_agent


def test_fields_are_read_in_any_order() -> None:
    usual = span(1, parent=2, attributes=WORKFLOW).SerializeToString()
    turned = usual[38:] + usual[18:38] + usual[:18]  # rest, span id and parent id, trace id
    body = request(span(1, parent=2, attributes=WORKFLOW))
    swapped = body.replace(usual, turned)
    assert swapped != body
    assert scan_traces(swapped) == scan_traces(body)


def test_spans_with_invalid_ids_do_not_affect_their_neighbours() -> None:
    short, zero, missing = span(2), span(3), span(4)
    short.span_id = b"abc"
    zero.trace_id = bytes(16)
    missing.ClearField("trace_id")
    body = request(span(1), short, zero, missing, span(5))
    found = scan_traces(body)
    assert (found.item_count, found.invalid) == (2, 3)
    kept, dropped = drop_invalid(body)
    assert dropped == 3
    assert numbers_in(kept) == [1, 5]
    assert scan_traces(kept).invalid == 0


def test_extract_and_without_share_the_spans_out() -> None:
    body = request(*(span(n, trace=n % 3 + 1) for n in range(1, 10))) + request(span(20, trace=2))
    wanted = (trace_name(2),)
    assert numbers_in(extract(Signal.TRACES, body, wanted)) == [1, 4, 7, 20]
    assert numbers_in(exclude(Signal.TRACES, body, wanted)) == [2, 3, 5, 6, 8, 9]
    assert extract(Signal.TRACES, body, (trace_name(9),)) == b""


def test_log_records_are_found_by_trace() -> None:
    details = record(trace=2, name="gen_ai.client.inference.operation.details")
    body = log_request(record(trace=1), record(trace=None), details)
    found = scan_logs(body, {trace_name(1)})
    assert found.item_count == 3
    marks = [(note.trace_id, note.is_agent) for note in found.traces]
    assert marks == [(trace_name(1), False), (trace_name(2), True)]
    picked = ExportLogsServiceRequest.FromString(extract(Signal.LOGS, body, (trace_name(2),)))
    assert picked.resource_logs[0].scope_logs[0].log_records[0].event_name.startswith("gen_ai")


def test_our_own_evaluation_logs_mark_nothing() -> None:
    ours = log_request(record(name="gen_ai.evaluation.result"), scope="blamespan")
    assert scan_logs(ours, {trace_name(1)}).traces == ()


def test_metrics_are_counted_by_data_point() -> None:
    body = metric_request([3, 0, 2])
    assert scan_metrics(body).item_count == 5
    assert item_count(Signal.METRICS, body) == 5


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_request_cut_short_is_malformed(cut: int) -> None:
    with pytest.raises(MalformedRequestError):
        scan_traces(many_spans(2)[:-cut])


def test_a_span_that_is_not_a_message_is_malformed() -> None:
    with pytest.raises(MalformedRequestError):
        scan_traces(b"\x0a\x04\x12\x02\x10\x01")


def test_packed_notes_come_back() -> None:
    body = request(span(1, attributes=WORKFLOW), span(2, parent=1, flags=REMOTE_PARENT))
    (note,) = scan_traces(body).traces
    assert unpack_notes(pack_notes(note.spans)) == note.spans


@pytest.mark.skipif(not CAPTURES.is_dir(), reason="the recorded runs are not beside this checkout")
def test_every_recorded_framework_is_recognised() -> None:
    files = [path for path in CAPTURES.glob("*.json") if path.name != "INDEX.json"]
    assert files
    for path in files:
        signal = Signal.LOGS if path.name.endswith(".logs.json") else Signal.TRACES
        body = to_protobuf(signal, path.read_bytes())
        found = scan_traces(body) if signal is Signal.TRACES else scan_logs(body)
        assert found.traces, path.name
        assert all(note.is_agent for note in found.traces), path.name
        in_a_trace = sum(note.span_count for note in found.traces)
        assert in_a_trace == found.item_count or signal is Signal.LOGS, path.name


LOOKS_LIKE_ONE = {"sql": "gen_ai.x", "http.url": "/docs/gen_ai.operation.name"}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(request(span(1), span(2, parent=1), span(3, trace=2, parent=7)), id="no agent"),
        pytest.param(request(span(1, attributes=LOOKS_LIKE_ONE)), id="a marker in a value"),
        pytest.param(
            request(span(1, attributes=LOOKS_LIKE_ONE | WORKFLOW), span(2, parent=1, attributes=AGENT)),
            id="marked attributes",
        ),
        pytest.param(
            request(span(1, attributes={"empty": ""} | WORKFLOW)), id="a marker behind an empty text"
        ),
        pytest.param(request(span(1), span(2, parent=1), scope="openinference.x"), id="a marked scope"),
        pytest.param(
            request(span(1, parent=7, attributes=AGENT, flags=REMOTE_PARENT), span(2, trace_state="a=b")),
            id="a remote parent",
        ),
        pytest.param(
            request(
                span(1, trace_state="a=b", attributes=WORKFLOW),
                span(2, parent=1, trace_state="a=b"),
                span(0x2200, parent=0x2200),
                span(4, parent=0x2208),
                span(5, name=""),
                span(6, name='ends in "\x08'),
            ),
            id="all that stands between ids and name",
        ),
        pytest.param(
            request(span(1, attributes=WORKFLOW), span(2, parent=1, attributes={"blamespan.carrier": True})),
            id="a carrier",
        ),
        pytest.param(request(span(1, parent=2, attributes=AGENT), scope="blamespan"), id="our scope"),
        pytest.param(many_spans(40, traces=3, payload=300), id="many"),
    ],
)
@pytest.mark.parametrize("write", [as_the_collector_writes, as_dotnet_writes], ids=["Collector", ".NET"])
def test_unusual_encodings_of_other_writers_are_scanned_the_same(
    body: bytes, write: Callable[[bytes], bytes]
) -> None:
    known = {trace_name(1), trace_name(2), trace_name(3)}
    usual, others = scan_traces(body, known), scan_traces(write(body), known)
    assert [_comparable(note) for note in others.traces] == [_comparable(note) for note in usual.traces]
    assert (others.item_count, others.invalid) == (usual.item_count, usual.invalid)


def _comparable(note: TraceNote) -> TraceNote:
    """Return the request without the parts that differ between processes."""
    spans = (
        span_note(own, parent, bits, end_ns=end_ns, kind=kind, links=links)
        for own, parent, bits, end_ns, _, kind, links in note.spans
    )
    return replace(note, byte_count=0, spans=tuple(spans))


def test_a_trace_is_taken_out_of_a_request_in_the_collectors_order() -> None:
    body = as_the_collector_writes(request(*(span(n, trace=n % 3 + 1) for n in range(1, 10))))
    assert numbers_in(extract(Signal.TRACES, body, [trace_name(2)])) == [1, 4, 7]
    assert numbers_in(exclude(Signal.TRACES, body, [trace_name(2)])) == [2, 3, 5, 6, 8, 9]
    assert drop_invalid(body) == (body, 0)


UNMARKED: list[dict[str, str | int | bool]] = [
    {"acme.usage.input_tokens": 12},
    {"inputToken": 7},
    {"a.nothing": "", "b.usage.input_tokens": 7},
    {"acme.text": "_token " * 40, "acme.usage.input_tokens": 12},
    {"acme.answer": '{\n  "usageMetadata": {\n    "promptTokenCount" : 5\n  }\n}'},
    {"acme.answer": '{"body": "{\\\\u0022prompt_tokens\\\\u0022\\n:\\n5}"}'},
    {"acme.answer": '{"body": "{\\"usage\\": {\\"output_tokens\\": 5}}"}'},
    {"acme.promptTokenCount": 12},
    {"acme.response": '{"usage": {"completion_tokens": 5}}'},
    {"acme.history": '[{\\"role\\": \\"assistant\\", \\"content\\": \\"Hello\\"}]'},
    {"acme.messages.0.role": "assistant"},
]


WRITERS = {"usual": bytes, "Collector": as_the_collector_writes, ".NET": as_dotnet_writes}


@pytest.mark.parametrize("attributes", UNMARKED, ids="-".join)
@pytest.mark.parametrize(
    "write", [bytes, as_the_collector_writes, as_dotnet_writes], ids=["usual", "Collector", ".NET"]
)
def test_a_sign_of_a_model_call_makes_an_agent_trace(
    attributes: dict[str, str | int | bool], write: Callable[[bytes], bytes]
) -> None:
    if "acme.messages.0.role" in attributes and write is not bytes:
        pytest.skip("a role as an attribute of its own is looked for in the usual layout only")
    body = write(request(span(1), span(2, trace=2, attributes=attributes), span(3, trace=3)))
    assert [note.trace_id for note in scan_traces(body).traces] == [trace_name(2)]


WEB: list[dict[str, str | int | bool]] = [
    {"auth.access_token": "x", "csrf_token": "y", "rate.tokens_left": 4},
    {"job.title": "assistant", "role": "admin", "body": '{"role": "assistant_manager"}'},
    {"http.url": "/v1/tokens?input=token&prompt=consent"},
    {"db.statement": "select input_tokens, total from usage where day > 7"},
    {"db.statement": "select day,\ninput_tokens,\noutput_tokens\nfrom usage", "db.system": "postgresql"},
    {"log": "completion_tokens=5 promptTokens: 7"},
    {"field": "output_tokens", "next": "x"},
]


@pytest.mark.parametrize("attributes", WEB, ids=lambda attributes: str(attributes)[:40])
@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_ordinary_requests_give_no_sign_of_a_model_call(
    attributes: dict[str, str | int | bool], write: Callable[[bytes], bytes]
) -> None:
    assert scan_traces(write(request(span(1, attributes=attributes)))).traces == ()


@given(
    before=st.text("abZ_.:-/ ", max_size=100),
    word=st.sampled_from(["input_tokens", "promptTokens", "output_token.count", "completionTokenCount"]),
    value=st.one_of(st.integers(0, 1 << 40), st.text("0123456789", max_size=12)),
    others=st.lists(st.sampled_from([("x", ""), ("y", "input_tokens\n"), ("z", "_token" * 20)]), unique=True),
    write=st.sampled_from([*WRITERS.values()]),
)
def test_a_count_of_tokens_in_a_key_is_never_missed(
    before: str, word: str, value: str | int, others: list[tuple[str, str]], write: Callable[[bytes], bytes]
) -> None:
    attributes: dict[str, str | int | bool] = {**dict(others), before + word: value}
    body = write(request(span(1), span(2, trace=2, attributes=attributes), span(3, trace=3)))
    assert trace_name(2) in [note.trace_id for note in scan_traces(body).traces]


def test_an_attribute_of_a_users_mapping_makes_an_agent_trace() -> None:
    hints = hints_of(["acme.what"])
    ours, other = {"acme.what": "think"}, {"not.acme.what": "x", "y": "see acme.what"}
    body = request(span(1, attributes=other), span(2, trace=2, attributes=ours))
    assert [note.trace_id for note in scan_traces(body, hints=hints).traces] == [trace_name(2)]
    assert scan_traces(body).traces == ()


def test_each_span_with_a_sign_is_marked_and_a_hostile_text_costs_one_pass() -> None:
    counted = {"x.input_tokens": 3}
    body = request(*(span(n, attributes=counted if n % 2 else {}) for n in range(1, 9)))
    (note,) = scan_traces(body).traces
    assert [bits for _, _, bits, *_ in note.spans] == [MARKED_BIT, 0] * 4
    many = request(span(1, attributes={"x": "_token" * 200_000}))
    assert scan_traces(many).traces == ()
