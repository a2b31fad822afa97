"""Stand-in for the Kubernetes API that lists and watches the endpoints of one service.

The tests have no cluster. The Collector's ``k8s`` resolver makes two requests to one, and both are answered
here as an API server would.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from queue import Queue
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import yaml

from tests.loopback import serve_http

Json = dict[str, Any]
_VERSION: Final = "discovery.k8s.io/v1"
_INITIAL_END: Final = {"k8s.io/initial-events-end": "true"}


class EndpointSlices:
    """The pods behind one headless service, by name; changes are sent to all watchers."""

    def __init__(self, service: str, namespace: str) -> None:
        self._service, self._namespace = service, namespace
        self._version = 1
        self._pods: dict[str, str] = {}
        self._watching: list[Queue[Json]] = []

    def become(self, **pods: str) -> None:
        """Set the pods: addresses by name, with ``_`` in place of a dot."""
        self._pods = {name.replace("_", "."): address for name, address in pods.items()}
        self._version += 1
        for events in self._watching:
            events.put({"type": "MODIFIED", "object": self.slice()})

    def slice(self) -> Json:
        """Return the only object, which lists the pods."""
        return {
            "apiVersion": _VERSION,
            "kind": "EndpointSlice",
            "metadata": {
                "name": f"{self._service}-x",
                "namespace": self._namespace,
                "resourceVersion": str(self._version),
                "labels": {"kubernetes.io/service-name": self._service},
            },
            "addressType": "IPv4",
            "endpoints": [
                {"hostname": name, "addresses": [address], "conditions": {"ready": True}}
                for name, address in self._pods.items()
            ],
            "ports": [{"port": 4317}],
        }

    def listed(self) -> Json:
        """Return the answer to a list request."""
        meta = {"resourceVersion": str(self._version)}
        return {
            "apiVersion": _VERSION,
            "kind": "EndpointSliceList",
            "metadata": meta,
            "items": [self.slice()],
        }

    def watched(self, *, from_the_start: bool) -> Iterator[Json]:
        """Yield the events of an endless watch."""
        events: Queue[Json] = Queue()
        self._watching.append(events)
        if from_the_start:
            yield {"type": "ADDED", "object": self.slice()}
            meta = {"resourceVersion": str(self._version), "annotations": _INITIAL_END}
            bookmark = {"apiVersion": _VERSION, "kind": "EndpointSlice", "metadata": meta}
            yield {"type": "BOOKMARK", "object": bookmark}
        while True:
            yield events.get()


@contextmanager
def serve(slices: EndpointSlices, folder: Path) -> Iterator[Path]:
    """Serve the endpoints on a loopback port; yield the ``KUBECONFIG`` for it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            if asked.get("watch") not in {"true", "1"}:
                self.wfile.write(json.dumps(slices.listed()).encode())
                return
            for event in slices.watched(from_the_start=asked.get("sendInitialEvents") == "true"):
                self.wfile.write(json.dumps(event).encode() + b"\n")

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with serve_http(Handler) as address:
        yield kubeconfig(folder, address)


def kubeconfig(folder: Path, address: str) -> Path:
    """Write the configuration of a Kubernetes client for this address."""
    name = "stand-in"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": address}}],
        "users": [{"name": name, "user": {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    return path
