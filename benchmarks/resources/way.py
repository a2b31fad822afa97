"""Counts the files and threads of this project that one span passes: ``python -m benchmarks.resources.way``.

The service runs in this process and sends to a backend that accepts everything. A file counts if one of its
functions is called while the span is under way, and none in as long a time of rest. Worker processes are
not counted: what they run are the stages of ``collector_processor/rebuild`` and ``trajectory``, then triage.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

from aiohttp import web
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from analyzer.cli.demo_run import play
from analyzer.service.all_in_one import running_service
from collector_processor.settings import load_settings

_ROOT: Final = Path(__file__).resolve().parents[2]
_GRACE_S: Final = 2.0
_PLAIN_S: Final = 1.0
_VERDICT_S: Final = 12.0
_REST_S: Final = 17.0
"""The issues are read every 15 s."""


class Calls:
    """The files of the project whose functions are called, with the threads that call them."""

    def __init__(self) -> None:
        """Record from now on, in this thread and in those that start later."""
        self._seen: set[tuple[str, str]] = set()
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            self._seen.add((threading.current_thread().name, frame.f_code.co_filename))

    def end(self) -> None:
        """Record no more."""
        threading.setprofile(None)
        sys.setprofile(None)

    def taken(self) -> set[tuple[str, str]]:
        """Return thread and file of each call since the last time."""
        seen, self._seen = self._seen, set()
        inside = ((thread, Path(file)) for thread, file in seen if file.startswith(str(_ROOT)))
        files = ((thread, path.relative_to(_ROOT)) for thread, path in inside)
        ours = ("semconv", "collector_processor", "analyzer")
        return {(thread, str(path)) for thread, path in files if path.parts[0] in ours}


@asynccontextmanager
async def _backend() -> AsyncIterator[str]:
    async def accept(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=b"", content_type="application/x-protobuf")

    app = web.Application()
    app.router.add_post("/v1/{signal}", accept)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def _send(endpoint: str, emit: Callable[[TracerProvider], object]) -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{endpoint}/v1/traces")))
    emit(provider)
    provider.shutdown()


def _plain(provider: TracerProvider) -> None:
    with provider.get_tracer("shop").start_as_current_span("GET /cart"):
        pass


def _environment(backend: str, folder: str) -> Mapping[str, str]:
    listeners = {f"BLAMESPAN_{name}_LISTEN": "127.0.0.1:0" for name in ("GRPC", "HTTP", "WEB")}
    return {
        **listeners,
        "BLAMESPAN_DATA_DIR": folder,
        "BLAMESPAN_FORWARD_ENDPOINT": backend,
        "BLAMESPAN_FORWARD_PROTOCOL": "http/protobuf",
        "BLAMESPAN_ROOT_GRACE": str(int(_GRACE_S * 1000)),
    }


async def _measure(folder: str) -> None:
    calls = Calls()
    async with (
        _backend() as backend,
        running_service(load_settings(_environment(backend, folder))) as running,
    ):
        await asyncio.sleep(_GRACE_S)
        calls.taken()
        await asyncio.sleep(_REST_S)
        at_rest = calls.taken()
        for name, emit, wait_s in (("plain span", _plain, _PLAIN_S), ("agents' run", play, _VERDICT_S)):
            await asyncio.to_thread(_send, f"http://{running.http}", emit)
            await asyncio.sleep(wait_s)
            _show(name, calls.taken() - at_rest)
        calls.end()


def _show(name: str, calls: set[tuple[str, str]]) -> None:
    served = sorted((file, thread) for thread, file in calls if not thread.startswith("asyncio_"))
    files, threads = {file for file, _ in served}, {thread for _, thread in served}
    print(f"{name}: {len(files)} files in {len(threads)} threads ({', '.join(sorted(threads))})")
    for file in sorted(files):
        print(f"  {file}")


def main() -> None:
    """Print the files that a plain span passes, then those of a whole run with its verdict."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_measure(folder))


if __name__ == "__main__":
    main()
