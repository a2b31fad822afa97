"""Fuzz targets: each takes any bytes and checks what must hold for them.

Hypothesis runs them in the default tests (``test_fuzz.py``), atheris by
``python -m benchmarks.hostile.fuzz``. A target raises only if it has found a fault.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Final

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from analyzer.inquiry.errors import UnreadableInput
from analyzer.inquiry.method import Reply
from analyzer.inquiry.present import plain
from analyzer.inquiry.render import render
from analyzer.methods.free_text import objects, read_answer
from analyzer.methods.judge import claim, read_reply
from analyzer.methods.verify import read_rulings
from analyzer.methods.without_model import judge_by_signals
from analyzer.recordings.read_files import read_recording
from collector_processor.otlp import MalformedRequestError, Signal
from collector_processor.otlp.otlp_json import to_protobuf
from collector_processor.rebuild.decode import decode, decode_logs
from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.redaction import redact
from collector_processor.rebuild.stages import rebuild
from collector_processor.receivers.admission import TurnedAwayError
from collector_processor.receivers.decompression import decompress
from collector_processor.wire.scan import item_count, scan_request, scan_traces
from collector_processor.wire.split import (
    append_attributes,
    drop_invalid,
    drop_oversize,
    exclude,
    extract,
    halve,
    split_by_size,
)
from semconv.model import Blame
from tests.inquiries import MARKER
from tests.runs import run, step, tool
from tests.security.mutations import mutate, mutate_json

_SIGNALS: Final = tuple(Signal)
_LIMIT: Final = 1 << 16
_ENCODINGS: Final = ("gzip", "zstd", "identity", "x-gzip")
_RUN: Final = run(
    step("planner", "Look it up."), tool("clerk", "16 GPUs"), step("analyst", "16 x 10 x 3 = 450"), task="sum"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A function to fuzz, and the mutation of its valid inputs."""

    run: Callable[[bytes], None]
    mutate: Callable[[bytes, Random], bytes]
    is_json: bool = False


def scan_target(data: bytes) -> None:
    """All counts of items agree, and filtering keeps exactly the valid ones."""
    signal, body = _SIGNALS[data[0] % 3] if data else Signal.TRACES, data[1:]
    try:
        found = scan_request(signal, body)
    except MalformedRequestError:
        return
    assert item_count(signal, body) == found.item_count + found.invalid
    assert sum(note.span_count for note in found.traces) <= found.item_count
    if signal is Signal.TRACES:
        _agrees_with_protobuf(body, found.item_count + found.invalid)
        kept, dropped = drop_invalid(body)
        assert dropped == found.invalid
        try:
            again = scan_traces(kept)
        except MalformedRequestError:  # the rest has more fields for its size: the intake refuses all of it
            assert dropped
            return
        assert (again.item_count, again.invalid) == (found.item_count, 0)


def _agrees_with_protobuf(body: bytes, count: int) -> None:
    try:
        request = ExportTraceServiceRequest.FromString(body)
    except DecodeError:
        return
    assert count == sum(len(scope.spans) for group in request.resource_spans for scope in group.scope_spans)


def wire_target(data: bytes) -> None:
    """Splitting loses nothing and adds nothing."""
    signal, body = _SIGNALS[data[0] % 3] if data else Signal.TRACES, data[1:]
    limit = data[0] * 4 + 1 if data else 1
    try:
        count = item_count(signal, body)
    except MalformedRequestError:
        return
    assert sum(item_count(signal, piece) for piece in split_by_size(body, limit)) == count
    halves = halve(body)
    if halves:
        assert sum(item_count(signal, half) for half in halves) == count
    if signal is Signal.METRICS:
        return
    with suppress(MalformedRequestError):
        names = [note.trace_id for note in scan_request(signal, body).traces][:2]
        taken, left = extract(signal, body, names), exclude(signal, body, names)
        assert item_count(signal, taken) + item_count(signal, left) == count
    kept, dropped = drop_oversize(body, limit)
    assert item_count(signal, kept) + dropped == count
    if signal is Signal.TRACES:
        changed = append_attributes(body, "01" * 16, "02" * 8, b"\x4a\x02\x0a\x00")
        assert item_count(signal, changed) == count


def decode_target(data: bytes) -> None:
    """Decoded spans can be encoded, and decode to the same ids."""
    with suppress(MalformedRequestError):
        decode_logs(data)
    try:
        decoded = decode(data)
    except MalformedRequestError:
        return
    again = decode(encode(decoded.spans))
    assert [span.span_id for span in sorted(again.spans, key=_by_id)] == sorted(
        span.span_id for span in decoded.spans
    )
    assert again.rejected == 0


def _by_id(span: object) -> str:
    return str(getattr(span, "span_id", ""))


def slow_lane_target(data: bytes) -> None:
    """All decodable input is rebuilt, scored and rendered into a prompt."""
    try:
        runs = rebuild((data,), (data,))
    except MalformedRequestError:
        return
    for found in runs:
        trajectory = found.trajectory
        assert [one.index for one in trajectory.steps] == list(range(len(trajectory.steps)))
        verdict = judge_by_signals(trajectory)
        if isinstance(verdict, Blame):
            assert trajectory.steps[verdict.step].agent == verdict.agent
        shown = render(trajectory, marker=MARKER, max_bytes=4_000)
        lines = [line for line in shown.text.split("\n") if line.startswith(shown.marker)]
        assert lines
        assert lines[-1].endswith("end of the run")


def from_json_target(data: bytes) -> None:
    """JSON is malformed, or becomes a request that the fast lane reads."""
    signal, body = _SIGNALS[data[0] % 3] if data else Signal.TRACES, data[1:]
    try:
        converted = to_protobuf(signal, body)
    except MalformedRequestError as error:
        _is_a_sentence(str(error))
        return
    scan_request(signal, converted)


def _is_a_sentence(reason: str) -> None:
    assert 0 < len(reason) < 600
    assert "\n" not in reason


def recordings_target(data: bytes) -> None:
    """A file has one of the formats, or is refused in one sentence."""
    try:
        recording = read_recording(data)
    except UnreadableInput as error:
        _is_a_sentence(str(error))
        return
    for conversation in recording.conversations:
        judge_by_signals(conversation.trajectory)
    for signal in Signal:
        for body in recording.bodies(signal):
            item_count(signal, body)


def replies_target(data: bytes) -> None:
    """A model's answer never gives a verdict on a step that does not exist."""
    text = data.decode("utf-8", "surrogateescape")
    read_answer(text)
    objects(text)
    reply = Reply(text=text)
    read_rulings(reply, _RUN, (0, 2))
    answer = read_reply(reply, _RUN)
    if not isinstance(answer, str):
        verdict = claim(_RUN, answer)
        assert _RUN.steps[verdict.step].agent == verdict.agent
        assert 0 <= verdict.confidence <= 1


def unpack_target(data: bytes) -> None:
    """The output never exceeds the limit, whatever size the body claims."""
    encoding = _ENCODINGS[data[0] % len(_ENCODINGS)] if data else "gzip"
    try:
        assert len(decompress(data[1:], encoding, _LIMIT)) <= _LIMIT
    except (MalformedRequestError, TurnedAwayError):
        return


def text_target(data: bytes) -> None:
    """Cleaning text for a terminal and of secrets never fails."""
    text = data.decode("utf-8", "surrogateescape")
    shown = plain(text, 200)
    assert len(shown) <= 200
    assert shown.isprintable()
    cleaned = redact(text)
    assert len(cleaned) <= 4 * len(text) + 100


def _after_first(change: Callable[[bytes, Random], bytes]) -> Callable[[bytes, Random], bytes]:
    def change_the_rest(data: bytes, chance: Random) -> bytes:
        return bytes((chance.randrange(256),)) + change(data[1:], chance)

    return change_the_rest


TARGETS: Final[Mapping[str, Target]] = {
    "scan": Target(run=scan_target, mutate=_after_first(mutate)),
    "wire": Target(run=wire_target, mutate=_after_first(mutate)),
    "decode": Target(run=decode_target, mutate=mutate),
    "slow-lane": Target(run=slow_lane_target, mutate=mutate),
    "from-json": Target(run=from_json_target, mutate=_after_first(mutate_json), is_json=True),
    "recordings": Target(run=recordings_target, mutate=mutate_json, is_json=True),
    "replies": Target(run=replies_target, mutate=mutate_json, is_json=True),
    "unpack": Target(run=unpack_target, mutate=_after_first(mutate)),
    "text": Target(run=text_target, mutate=mutate),
}


def replies_seed() -> bytes:
    """Return a correct answer of a judge."""
    evidence = [{"step": 2, "quote": "= 450"}]
    ranking = [{"step": 2, "probability": 0.9}]
    document = {"reason": "480", "step": 2, "agent": "analyst", "evidence": evidence, "ranking": ranking}
    return json.dumps(document).encode()
