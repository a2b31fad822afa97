"""``POST /api/analyse``: a trace in; verdicts out, or a job whose result can be requested later.

A job's id is a secret: anyone who has it can read the job. The trace is not kept, and no verdict is stored.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from aiohttp import web

from analyzer.web.pages.try_page import MAX_UPLOAD, read_choice, read_reference
from analyzer.web.requested_analyses import Asked, Job, Jobs, JobState, TooBusy

MEDIA: Final = (
    "application/json",
    "application/x-ndjson",
    "application/x-protobuf",
    "application/octet-stream",
    "application/gzip",
    "application/zstd",
    "application/yaml",
)
"""Content types, which another site's page cannot send without our permission."""
MOST_WAIT_S: Final = 60.0
_USUAL_WAIT_S: Final = 30.0
_FIELDS: Final = (
    *("method", "model", "failed", "reference", "with_reference", "budget_usd", "deadline_s", "wait_s"),
)
_MOST_FIELD: Final = 200
_MOST_USD: Final = 1_000_000.0


def analyse_routes(jobs: Jobs) -> list[web.RouteDef]:
    """Return the routes."""

    async def take(request: web.Request) -> web.Response:
        if request.content_type not in MEDIA:
            raise web.HTTPUnsupportedMediaType(text=f"expected Content-Type: one of {', '.join(MEDIA)}\n")
        fields = read_fields(request.query)
        wait_s = read_amount(fields, "wait_s", MOST_WAIT_S, usual=_USUAL_WAIT_S)
        deadline_s = read_amount(fields, "deadline_s", jobs.timeout_s, usual=jobs.timeout_s)
        budget_usd = read_amount(fields, "budget_usd", _MOST_USD) if "budget_usd" in fields else None
        choice = await read_choice(
            jobs, fields, takes_as_failed=fields.get("failed") == "true", budget_usd=budget_usd
        )
        data = await _body(request)
        secret = secrets.token_urlsafe(16)
        load = partial(jobs.read, [data], read_reference(fields))
        asked = Asked(name="a trace", choice=choice, size=len(data), load=load, timeout_s=deadline_s)
        try:
            job = jobs.start(_owner(secret), asked)
        except TooBusy as error:
            raise web.HTTPServiceUnavailable(text=f"{error}\n", headers={"Retry-After": "60"}) from error
        assert job.work is not None
        await asyncio.wait({job.work}, timeout=wait_s)  # it goes on if the client disconnects
        if job.state is JobState.FAILED:
            raise web.HTTPUnprocessableEntity(text=f"{job.error}\n")
        place = {"Location": f"/api/analyse/{secret}.{job.id}"}
        return web.json_response(
            job_document(job, secret, jobs.elapsed_s(job)),
            status=200 if job.is_over else 202,
            headers={} if job.is_over else place,
        )

    def found(request: web.Request) -> tuple[Job, str]:
        secret, _, job_id = request.match_info["job_id"].partition(".")
        job = jobs.find(_owner(secret), job_id)
        if job is None:
            raise web.HTTPNotFound(
                text="no such analysis: results are kept in memory, and the oldest are dropped\n"
            )
        return job, secret

    async def look(request: web.Request) -> web.Response:
        job, secret = found(request)
        return web.json_response(job_document(job.as_of_now(), secret, jobs.elapsed_s(job)))

    async def cancel(request: web.Request) -> web.Response:
        job, secret = found(request)
        jobs.cancel(job)
        return web.json_response(job_document(job.as_of_now(), secret, jobs.elapsed_s(job)))

    return [
        web.post("/api/analyse", take),
        web.get("/api/analyse/{job_id}", look),
        web.delete("/api/analyse/{job_id}", cancel),
    ]


def job_document(job: Job, secret: str, elapsed_s: float) -> dict[str, Any]:
    """Return a job as JSON, with the verdicts found so far."""
    return {
        "id": f"{secret}.{job.id}",
        "state": job.state.value,
        "over": job.is_over,
        "runs": job.runs,
        "calls": job.calls,
        "cost_usd": job.cost_usd,
        "elapsed_s": elapsed_s,
        "error": job.error,
        "note": job.note,
        "verdicts": [found.document for found in job.found],
    }


def read_fields(query: Mapping[str, str]) -> dict[str, str]:
    """Read the parameters of an analysis.

    Raises:
        web.HTTPBadRequest: one is unknown or too long, or not a boolean.
    """
    unknown = sorted(query.keys() - set(_FIELDS))
    if unknown:
        raise _refused(f"{unknown[0][:50]!r}: unknown parameter; expected {', '.join(_FIELDS)}")
    for name in ("failed", "with_reference"):
        if query.get(name, "true") not in {"true", "false"}:
            raise _refused(f"{name}: expected true or false")
    long = [name for name, value in query.items() if name != "reference" and len(value) > _MOST_FIELD]
    if long:
        raise _refused(f"{long[0]}: expected at most {_MOST_FIELD} characters")
    sees = query.get("with_reference", "true" if query.get("reference") else "false") == "true"
    return {"method": "auto", **query, "with_reference": "yes" if sees else ""}


def read_amount(fields: Mapping[str, str], name: str, most: float, usual: float = 0.0) -> float:
    """Read a number from 0 to ``most``.

    Raises:
        web.HTTPBadRequest: it is not a number in this range.
    """
    text = fields.get(name)
    if text is None:
        return usual
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= most or not text.isascii():  # this also rejects NaN
        raise _refused(f"{name}: expected a number from 0 to {most:g}")
    return value


def _owner(secret: str) -> str:
    return f"api {secret}"


async def _body(request: web.Request) -> bytes:
    data = bytearray()
    async for chunk in request.content.iter_chunked(1 << 16):  # also bounds what is unpacked
        data += chunk
        if len(data) > MAX_UPLOAD:
            raise web.HTTPRequestEntityTooLarge(
                max_size=MAX_UPLOAD, actual_size=len(data), text=f"expected at most {MAX_UPLOAD >> 20} MiB\n"
            )
    if not data:
        raise _refused("expected a trace")
    return bytes(data)


def _refused(text: str) -> web.HTTPBadRequest:
    return web.HTTPBadRequest(text=f"{text}\n")
