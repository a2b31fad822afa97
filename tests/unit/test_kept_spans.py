"""Kept spans: everything except secrets, bounded, and only the run's own."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from analyzer.recordings.read_files import read_recording
from collector_processor.otlp import MalformedRequestError, Signal
from collector_processor.rebuild.decode import decode, parse_traces
from collector_processor.rebuild.encode import encode, encode_logs
from collector_processor.rebuild.kept_spans import MAX_PACKED, MAX_PLAIN, KeptSpans, SpanKeeper, unpack_spans
from collector_processor.rebuild.redaction import ALL_KINDS, Redactor, make_redactor
from collector_processor.rebuild.stages import rebuild
from semconv.model import Event, Link, LogRecord, Resource, Scope, Span, SpanId, TraceId
from tests.factories import TRACE, agent, chat, messages, said, span, workflow

RULES = make_redactor(ALL_KINDS)
SECRET = "sk-proj-" + "Ab1" * 24 + "T3BlbkFJ" + "Cd2" * 24
CARD = 4111111111111111
RUN = (
    workflow(1, task="Write a report.", answer="Done."),
    agent(2, "planner", parent=1),
    chat(3, answer="I plan.", agent_name="planner", parent=2),
)


def kept(*spans: Span, logs: tuple[bytes, ...] = (), rules: Redactor = RULES) -> KeptSpans:
    packed = packed_run(encode(spans), logs=logs, rules=rules)
    assert packed is not None
    return unpack_spans(packed)


def packed_run(*bodies: bytes, logs: tuple[bytes, ...] = (), rules: Redactor = RULES) -> bytes | None:
    (packed,) = SpanKeeper(redactor=rules).pack(bodies, logs, [((), rules.for_run())], [True])
    return packed


def test_a_run_without_secrets_is_kept_as_received() -> None:
    found = kept(*RUN)
    assert decode(found.traces).spans == RUN
    assert (found.redacted, found.cut) == ({}, 0)


def test_what_is_kept_of_a_run_gives_the_same_steps() -> None:
    (before,) = rebuild([encode(RUN)])
    (after,) = rebuild([kept(*RUN).traces])
    assert after == before


LINK = Link(trace_id=TraceId("b" * 32), span_id=SpanId("c" * 16))
PLACES = {
    "attribute": {"attributes": {"x": SECRET}},
    "key": {"attributes": {SECRET: "x"}},
    "list": {"attributes": {"x": ("a", SECRET)}},
    "map": {"attributes": {"x": {"y": {"z": SECRET}}}},
    "key of a map": {"attributes": {"x": {SECRET: 1}}},
    "JSON in JSON": {"attributes": {"x": json.dumps([{"arguments": json.dumps({"k": SECRET})}])}},
    "bytes": {"attributes": {"x": SECRET.encode()}},
    "bytes that are no text": {"attributes": {"x": b"\xff\xfe" + SECRET.encode() + b"\x80"}},
    "name": {"name": SECRET},
    "error": {"error": f"refused: {SECRET}"},
    "event": {"events": (Event(name=SECRET, time_ns=1, attributes={"exception.message": SECRET}),)},
    "link": {"links": (replace(LINK, attributes={"x": SECRET}),)},
    "scope": {"scope": SECRET},
    "service": {"service": SECRET},
}


@pytest.mark.parametrize("place", PLACES)
def test_no_secret_is_kept_in_any_field(place: str) -> None:
    found = kept(*RUN, span(9, **PLACES[place]))  # type: ignore[arg-type]
    assert SECRET.encode() not in found.traces
    assert len(decode(found.traces).spans) == 4
    assert sum(found.redacted.values()) >= 1


def test_fields_of_protobuf_that_we_do_not_read_hold_no_secret_either() -> None:
    request = parse_traces(encode([span(1, links=(Link(trace_id=TRACE, span_id=SpanId("c" * 16)),))]))
    sent = request.resource_spans[0].scope_spans[0].spans[0]
    sent.trace_state = sent.links[0].trace_state = f"vendor={SECRET}"
    request.resource_spans[0].resource.entity_refs.add(type=SECRET)
    size = bytes([len(SECRET) & 0x7F | 0x80, len(SECRET) >> 7])
    unknown = b"\xfa\x3e" + size + SECRET.encode()  # field 1007
    packed = packed_run(request.SerializeToString() + unknown)
    assert packed is not None
    assert SECRET.encode() not in unpack_spans(packed).traces


@pytest.mark.parametrize("value", [{"password": "hunter22-is-mine"}, {"card": CARD}, {"card": float(CARD)}])
def test_a_value_is_redacted_where_only_its_key_or_its_digits_show_the_secret(
    value: dict[str, object],
) -> None:
    found = kept(*RUN, span(9, attributes={"arguments": value}))  # type: ignore[dict-item]
    arguments = decode(found.traces).spans[-1].attributes["arguments"]
    assert isinstance(arguments, dict)
    assert list(arguments) == list(value)
    assert all(str(kept_value).startswith("[") for kept_value in arguments.values())


def test_a_secret_of_the_steps_has_the_same_name_in_the_spans() -> None:
    redact = RULES.for_run()
    redact("first@example.com")
    redact("second@example.com")
    body = encode([span(1, attributes={"to": "second@example.com"})])
    (packed,) = SpanKeeper(redactor=RULES).pack([body], (), [((), redact)], [True])
    assert packed is not None
    found = unpack_spans(packed)
    assert decode(found.traces).spans[0].attributes["to"] == "[e-mail 2]"
    assert found.redacted == {"emails": 1}


def test_a_secret_known_clean_under_other_rules_is_redacted() -> None:
    lenient, strict = SpanKeeper(redactor=make_redactor(())), SpanKeeper(redactor=RULES)
    body = encode([span(1, attributes={"x": SECRET})])
    for keeper, is_kept in ((lenient, True), (strict, False)):
        for _ in range(2):
            assert keeper.redactor is not None
            (packed,) = keeper.pack([body], (), [((), keeper.redactor.for_run())], [True])
            assert packed is not None
            assert (SECRET.encode() in unpack_spans(packed).traces) is is_kept


def test_logs_are_kept_without_their_secrets() -> None:
    record = LogRecord(
        trace_id=TRACE,
        span_id=SpanId("0" * 15 + "3"),
        event=Event(name="gen_ai.choice", time_ns=5, attributes={"x": SECRET}, body={"message": SECRET}),
        severity=9,
        scope=Scope(name="s"),
        resource=Resource(attributes={"service.name": "test"}),
    )
    found = kept(*RUN, logs=(encode_logs([record]),))
    assert found.logs
    assert SECRET.encode() not in found.logs
    assert decode(found.traces).spans == RUN


def test_each_run_of_a_trace_has_its_own_spans_only() -> None:
    other = tuple(replace(one, span_id=SpanId("a" + one.span_id[1:]), parent_id=None) for one in RUN)
    runs = [(RUN, RULES.for_run()), (other, RULES.for_run())]
    first, second = SpanKeeper(redactor=RULES).pack([encode((*RUN, *other))], (), runs, [True, True])
    assert first is not None
    assert second is not None
    assert decode(unpack_spans(first).traces).spans == RUN
    assert decode(unpack_spans(second).traces).spans == other


def test_runs_that_share_a_large_resource_take_a_multiple_of_it_at_most() -> None:
    large = Resource(attributes={"x": "y" * 50_000})
    spans = [replace(span(number), resource=large) for number in range(1, 200)]
    runs = [((one,), RULES.for_run()) for one in spans]
    packed = SpanKeeper(redactor=RULES).pack([encode(spans)], (), runs, [True] * len(runs))
    plain = sum(len(unpack_spans(one).traces) for one in packed if one is not None)
    assert 0 < plain < 17 * len(encode(spans))
    assert None in packed


def test_a_run_of_64_mib_is_kept_with_shorter_texts_and_its_json_stays_json() -> None:
    text = "The quick brown fox. " * 50_000
    spans = [
        span(number, attributes={"gen_ai.input.messages": messages(said("user", text)), "plain": text})
        for number in range(1, 33)
    ]
    bodies = [encode([one]) for one in spans]
    assert sum(map(len, bodies)) > 64 << 20
    packed = packed_run(*bodies)
    assert packed is not None
    assert len(packed) <= MAX_PACKED
    found = unpack_spans(packed)
    assert len(found.traces) <= MAX_PLAIN
    assert found.cut == 2  # texts that recur count once
    for one in decode(found.traces).spans:
        (message,) = json.loads(str(one.attributes["gen_ai.input.messages"]))
        assert "characters left out" in message["parts"][0]["content"]
        assert "characters left out" in str(one.attributes["plain"])


def test_a_secret_across_a_cut_is_not_kept() -> None:
    text = "x " * 7_498 + SECRET + " y" * 5_000_000
    packed = packed_run(*[encode([span(number, attributes={"plain": text})]) for number in (1, 2)])
    assert packed is not None
    assert SECRET[:12].encode() not in unpack_spans(packed).traces


@pytest.mark.parametrize("packed", [b"", b"x", b"\x28\xb5\x2f\xfd", b"\x28\xb5\x2f\xfd\x20\x01\x09\x00\x00x"])
def test_damaged_bytes_are_reported(packed: bytes) -> None:
    with pytest.raises(MalformedRequestError, match="a kept run cannot be read"):
        unpack_spans(packed)


def test_without_texts_no_spans_are_kept() -> None:
    assert not SpanKeeper(redactor=None).wants(is_failure=True)
    only_failed = SpanKeeper(redactor=RULES, keeps_passed=False)
    assert [only_failed.wants(is_failure=one) for one in (True, False, None)] == [True, False, True]


def test_the_kept_form_is_a_file_that_commands_read() -> None:
    recording = read_recording(kept(*RUN).traces)
    assert [signal for signal, _ in recording.requests] == [Signal.TRACES]
