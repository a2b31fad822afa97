"""Traces and drafts as bytes, for the way to another process of ours and back. Pure.

JSON with bytes in base64, and its length before it: what comes out of hostile text is data on
this way too, whatever became of the process that wrote it.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from collector_processor.assembler import TraceKey
from collector_processor.draft import Draft, DraftedRun, Keepsake, LoneTrace
from collector_processor.otlp import Signal, Tenant
from collector_processor.stored import Outgoing, Place, StoredVerdict, ToldRun
from collector_processor.writeback import Gist
from semconv.model import Completion, Effort, TraceId

LENGTH_BYTES: Final = 4
MAX_MESSAGE_BYTES: Final = 1 << 30
_VERDICT: Final = tuple(StoredVerdict.__dataclass_fields__)


def with_length(message: bytes) -> bytes:
    """Return a message as it goes over a pipe."""
    return len(message).to_bytes(LENGTH_BYTES, "big") + message


def length_of(head: bytes) -> int:
    """Return how long the message is that follows.

    Raises:
        ValueError: longer than any.
    """
    length = int.from_bytes(head, "big")
    if length > MAX_MESSAGE_BYTES:
        raise ValueError(f"a message of {length} bytes, expected {MAX_MESSAGE_BYTES} at most")
    return length


def write_traces(traces: Sequence[LoneTrace]) -> bytes:
    """Return traces as a message."""
    return _written([_trace_document(trace) for trace in traces])


def read_traces(message: bytes) -> list[LoneTrace]:
    """Read traces."""
    return [_trace(document) for document in json.loads(message)]


def write_draft(draft: Draft | None) -> bytes:
    """Return what became of a trace as a message."""
    return _written(None if draft is None else _draft_document(draft))


def read_draft(message: bytes) -> Draft | None:
    """Read what became of a trace.

    Raises:
        ValueError: it says nothing of the kind.
    """
    try:
        document = json.loads(message)
        return None if document is None else _draft(document)
    except (AttributeError, KeyError, RecursionError, TypeError) as error:
        raise ValueError(f"no draft: {error!r}") from error


def _written(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _text(body: bytes) -> str:
    return b64encode(body).decode()


def _trace_document(trace: LoneTrace) -> dict[str, Any]:
    return {
        "key": trace.key,
        "completion": trace.completion,
        "bodies": list(map(_text, trace.bodies)),
        "logs": list(map(_text, trace.logs)),
        "now_ns": trace.now_ns,
    }


def _trace(document: Mapping[str, Any]) -> LoneTrace:
    tenant, trace_id = document["key"]
    return LoneTrace(
        key=TraceKey(Tenant(tenant), TraceId(trace_id)),
        completion=Completion(document["completion"]),
        bodies=tuple(map(b64decode, document["bodies"])),
        logs=tuple(map(b64decode, document["logs"])),
        now_ns=document["now_ns"],
    )


def _draft_document(draft: Draft) -> dict[str, Any]:
    told = [(one.run_id, sorted(one.trace_ids), one.digest.hex()) for one in draft.told]
    runs = list(map(_run_document, draft.runs))
    return {"names": draft.names, "told": told, "runs": runs, "redacted": dict(draft.redacted)}


def _draft(document: Mapping[str, Any]) -> Draft:
    return Draft(
        names=tuple(document["names"]),
        told=tuple(
            ToldRun(run_id=run_id, trace_ids=frozenset(trace_ids), digest=bytes.fromhex(digest))
            for run_id, trace_ids, digest in document["told"]
        ),
        runs=tuple(map(_run, document["runs"])),
        redacted=dict(document["redacted"].items()),
    )


def _run_document(run: DraftedRun) -> dict[str, Any]:
    """Return a run as JSON takes it; its gist without model and earlier verdict: a draft has neither."""
    gist, kept = run.gist, run.keepsake
    return {
        "verdict": [getattr(run.verdict, name) for name in _VERDICT],
        "outgoing": [(out.signal, _text(out.body), out.tenant, out.ended_ns) for out in run.outgoing],
        "gist": {
            "acting": gist.acting,
            "ended_ns": gist.ended_ns,
            "decided_ns": gist.decided_ns,
            "blamed": gist.blamed,
            "mode": gist.mode,
            "confidence": gist.confidence,
            "is_carried": gist.is_carried,
        },
        "effort": asdict(gist.effort),
        "kept": [
            kept.run_id,
            kept.is_failure,
            None if kept.packed is None else _text(kept.packed),
            kept.noted,
        ],
        "place": None if run.place is None else _text(run.place.packed),
    }


def _run(document: Mapping[str, Any]) -> DraftedRun:
    run_id, is_failure, packed, noted = document["kept"]
    gist = document["gist"] | {"acting": tuple(document["gist"]["acting"])}
    verdict = StoredVerdict(**dict(zip(_VERDICT, document["verdict"], strict=True)))
    place = document["place"]
    return DraftedRun(
        verdict=verdict,
        outgoing=tuple(
            Outgoing(signal=Signal(signal), body=b64decode(body), tenant=Tenant(tenant), ended_ns=ended_ns)
            for signal, body, tenant, ended_ns in document["outgoing"]
        ),
        gist=Gist(**gist, effort=Effort(**document["effort"])),
        keepsake=Keepsake(
            run_id=run_id,
            is_failure=is_failure,
            packed=None if packed is None else b64decode(packed),
            noted=noted,
        ),
        place=None
        if place is None
        else Place(tenant=verdict.tenant, run_id=verdict.run_id, packed=b64decode(place)),
    )
