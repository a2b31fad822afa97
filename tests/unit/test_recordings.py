"""Recorded files are told by their content, protobuf too."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from analyzer.commands.files import load_runs
from analyzer.commands.output import CommandFailed
from analyzer.errors import UnreadableInput
from analyzer.recordings import read_recording
from collector_processor.encode import encode
from collector_processor.otlp import Signal
from tests.factories import TRACE, chat, span_id, workflow

DETAILS = "gen_ai.client.inference.operation.details"


def spans() -> bytes:
    return encode([workflow(), chat(2)])


def logs() -> bytes:
    request = ExportLogsServiceRequest()
    record = request.resource_logs.add().scope_logs.add().log_records.add()
    record.trace_id, record.span_id = bytes.fromhex(TRACE), bytes.fromhex(span_id(2))
    record.event_name, record.time_unix_nano = DETAILS, 1
    said = record.attributes.add(key="gen_ai.output.messages")
    said.value.string_value = '[{"role": "assistant", "parts": [{"type": "text", "content": "85"}]}]'
    return request.SerializeToString()


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


@pytest.mark.parametrize("pack", [bytes, framed, gzip.compress], ids=["bare", "framed", "gzip"])
def test_protobuf_spans_and_logs_are_told_apart(pack: object) -> None:
    assert callable(pack)
    assert read_recording(pack(spans())).requests == ((Signal.TRACES, spans()),)
    assert read_recording(pack(logs())).requests == ((Signal.LOGS, logs()),)


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x0a\x00", b"hello", b"\x0a\x02\x0a\x00"])
def test_bytes_that_hold_neither_are_refused(data: bytes) -> None:
    with pytest.raises(UnreadableInput, match="expected OTLP"):
        read_recording(data)


def test_protobuf_logs_give_a_run_its_words(tmp_path: Path) -> None:
    traces, details = tmp_path / "run.pb", tmp_path / "run.logs.pb"
    traces.write_bytes(spans())
    details.write_bytes(logs())
    assert [step.output for step in load_runs(traces, [])[0].trajectory.steps] == [""]
    assert [step.output for step in load_runs(traces, [details])[0].trajectory.steps] == ["85"]


def test_files_given_in_each_others_place_are_told(tmp_path: Path) -> None:
    traces, details = tmp_path / "run.pb", tmp_path / "run.logs.pb"
    traces.write_bytes(spans())
    details.write_bytes(logs())
    with pytest.raises(CommandFailed, match="give it with --logs"):
        load_runs(details, [])
    with pytest.raises(CommandFailed, match="holds no logs"):
        load_runs(traces, [traces])
