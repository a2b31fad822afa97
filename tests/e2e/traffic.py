"""Agents' requests as OpenTelemetry's own SDK writes them, and ways to send them."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias
from urllib.request import ProxyHandler, Request, build_opener

import grpc
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import format_span_id

from analyzer.cli.demo_run import RIGHT_ANSWER, Chat, DemoExpectation, Message, Reply, ScriptedModel, play
from collector_processor.otlp import Signal, grpc_path, http_path
from collector_processor.otlp.otlp_json import to_json
from semconv.model import SpanId

Way: TypeAlias = Literal["grpc", "grpc+gzip", "http", "http+gzip", "json", "json+gzip"]
WAYS: Final[tuple[Way, ...]] = ("grpc", "grpc+gzip", "http", "http+gzip", "json", "json+gzip")
DEMO_SPANS: Final = 17
CARRIERS: Final = 2
"""Number of spans that a blame in late mode adds to a trace."""
_TIMEOUT_S: Final = 240.0
_WRONG_ANSWER: Final = "9,266.14"


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A run of the demo program; its spans are in the order of their ends."""

    spans: tuple[ReadableSpan, ...]
    expected: DemoExpectation

    @property
    def trace_id(self) -> str:
        return self.expected.trace_id

    @property
    def root(self) -> ReadableSpan:
        return self.spans[-1]

    @property
    def body(self) -> bytes:
        """All of it as one export request."""
        return request(self.spans)

    @property
    def decisive(self) -> ReadableSpan:
        """The model call in which the calculator misreports what its tool returned."""
        return next(span for span in self.spans if span.name.startswith("chat") and _says_it(span))


def _says_it(span: ReadableSpan) -> bool:
    attributes = span.attributes or {}
    return _WRONG_ANSWER in str(attributes["gen_ai.output.messages"]) and _agent(span) == "calculator"


def _agent(span: ReadableSpan) -> str:
    return str((span.attributes or {}).get("gen_ai.agent.name"))


def play_demo(chat: Chat | None = None, *, service: str = "solar-advisor") -> Played:
    """Run the demo program without delays; return what its SDK would send."""
    memory = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource.create({"service.name": service}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    expected = play(provider, chat=chat, latency_s=0)
    provider.shutdown()
    return Played(spans=memory.get_finished_spans(), expected=expected)


def without_mistake(messages: Sequence[Message]) -> Reply:
    """The demo's model without the mistake: it reports what the tool returned."""
    reply = ScriptedModel(latency_s=0)(messages)
    return replace(reply, text=reply.text.replace(_WRONG_ANSWER, RIGHT_ANSWER))


def request(spans: Iterable[ReadableSpan]) -> bytes:
    """Return the export request that the SDK's exporters send."""
    return encode_spans(list(spans)).SerializeToString()


def span_id(span: ReadableSpan) -> SpanId:
    context = span.get_span_context()
    assert context is not None
    return SpanId(format_span_id(context.span_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """URLs at which a service accepts OTLP."""

    grpc: str
    http: str


def send(
    to: Any,
    body: bytes,
    *,
    signal: Signal = Signal.TRACES,
    way: Way = "grpc",
    headers: Mapping[str, str] | None = None,
) -> None:
    """Send one request over ``grpc`` or ``http``; raises if it is not acknowledged."""
    transport, _, packing = way.partition("+")
    if transport == "grpc":
        compression = grpc.Compression.Gzip if packing else grpc.Compression.NoCompression
        _call(str(to.grpc), signal, body, headers or {}, compression)
    else:
        _post(str(to.http), signal, body, headers or {}, is_json=transport == "json", is_packed=bool(packing))


def _call(
    url: str, signal: Signal, body: bytes, headers: Mapping[str, str], compression: grpc.Compression
) -> None:
    with grpc.insecure_channel(url.removeprefix("http://")) as channel:
        call: Callable[..., Callable[..., bytes]] = channel.unary_unary
        export = call(grpc_path(signal))
        export(body, metadata=tuple(headers.items()), compression=compression, timeout=_TIMEOUT_S)


def _post(
    url: str, signal: Signal, body: bytes, headers: Mapping[str, str], *, is_json: bool, is_packed: bool
) -> None:
    data = to_json(signal, body) if is_json else body
    content = {"Content-Type": "application/json" if is_json else "application/x-protobuf", **headers}
    if is_packed:
        data, content["Content-Encoding"] = gzip.compress(data), "gzip"
    request = Request(url + http_path(signal), data=data, headers=content, method="POST")
    with build_opener(ProxyHandler({})).open(request, timeout=_TIMEOUT_S) as answer:
        answer.read()
