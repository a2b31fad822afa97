"""Try it: drop a file, choose a method, watch it work; and a kept run analysed again. A shell."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import quote

from aiohttp import BodyPartReader, web
from aiohttp.http_exceptions import HttpProcessingError

from analyzer.errors import AnalyzerError, UnreadableInput
from analyzer.opinion import Choice, NotOffered
from analyzer.present import plain
from analyzer.recordings import read_recording
from analyzer.web.front import Front, routed
from analyzer.web.guard import require_stated_origin
from analyzer.web.jobs import MOST_RUNS, Asked, Job, Jobs, Load, TooBusy
from analyzer.web.pages import Desk, chance_of, kept_run
from analyzer.web.run_view import view
from collector_processor.otlp import Signal
from collector_processor.rebuild import rebuild
from semconv.model import Trajectory

MAX_UPLOAD: Final = 8 << 20
"""Bytes of a file as it is sent."""
MAX_UNPACKED: Final = 48 << 20
_MOST_NAME: Final = 100
_MOST_FIELD: Final = 200
_GZIP: Final = b"\x1f\x8b"


def try_routes(desk: Front) -> list[web.RouteDef]:
    """Return the routes; without anything that analyses, the page alone, which says so."""
    return routed(
        desk,
        ("GET", "/try", _ask),
        ("POST", "/try", _take),
        ("GET", "/try/{job_id}", _watch),
        ("GET", "/try/{job_id}/state", _state),
    )


def again_routes(desk: Desk) -> list[web.RouteDef]:
    """Return the route by which a kept run is analysed again."""
    return routed(desk, ("POST", "/runs/{run_id}/again", _again))


async def _ask(desk: Front, request: web.Request) -> web.StreamResponse:
    jobs = desk.pages.jobs
    mine = jobs.of(desk.sessions.owner(request)) if jobs else []
    chance = await chance_of(jobs)
    return await desk.show(
        request, "try.html", chance=chance, jobs=mine, most=MAX_UPLOAD >> 20, most_runs=MOST_RUNS
    )


async def _take(desk: Front, request: web.Request) -> web.StreamResponse:
    require_stated_origin(request)
    jobs = _jobs(desk)
    data, fields = await _upload(request)
    if not data:
        raise web.HTTPBadRequest(text="expected a file\n")
    choice = await _choice(jobs, fields, takes_as_failed="failed" in fields)
    load = loading(data, desk.pages.clean)
    name = plain(fields.get("name", ""), _MOST_NAME) or "a file"
    return _begin(desk, request, Asked(name=name, choice=choice, size=len(data), load=load))


async def _again(desk: Desk, request: web.Request) -> web.StreamResponse:
    require_stated_origin(request)
    jobs = _jobs(desk)
    fields = {name: str(value) for name, value in (await request.post()).items()}
    choice = await _choice(jobs, fields, takes_as_failed=True)
    verdict = await desk.find(request)
    kept = await kept_run(desk, verdict)
    if kept is None or not kept.has_texts:
        raise web.HTTPConflict(text="the texts of this run are not kept: it cannot be analysed again\n")
    size = sum(len(step.input) + len(step.output) for step in kept.trajectory.steps)
    trajectory = kept.trajectory
    asked = Asked(
        name=f"run {verdict.run_id}",
        choice=choice,
        size=size,
        load=lambda: [trajectory],
        run_id=verdict.run_id,
    )
    return _begin(desk, request, asked)


async def _watch(desk: Front, request: web.Request) -> web.StreamResponse:
    job = _job(desk, request).as_of_now()
    shown = await asyncio.to_thread(
        lambda: [(found.document, view(found.trajectory, found.document)) for found in job.found]
    )
    return await desk.show(request, "job.html", job=job, shown=shown)


async def _state(desk: Front, request: web.Request) -> web.StreamResponse:
    job = _job(desk, request)
    counts = {"runs": job.runs, "done": len(job.found), "calls": job.calls}
    return web.json_response({"state": job.state.value, "over": job.is_over, **counts})


def loading(data: bytes, clean: Callable[[Trajectory], Trajectory]) -> Load:
    """Return what reads the runs of a file, without their secrets."""

    def load() -> Sequence[Trajectory]:
        recording = read_recording(unpacked(data))
        runs = rebuild(recording.bodies(Signal.TRACES), recording.bodies(Signal.LOGS))
        found = [run.trajectory for run in runs] + [one.trajectory for one in recording.conversations]
        if not found:
            raise UnreadableInput("this file holds no run: no spans of agents and no conversation in it")
        return [clean(trajectory) for trajectory in found[: MOST_RUNS + 1]]

    return load


def unpacked(data: bytes) -> bytes:
    """Return what a file holds, of a size that one person may have us read.

    Raises:
        UnreadableInput: it is broken, or unpacks to more.
    """
    if not data.startswith(_GZIP):
        return data
    plain_bytes = bytearray()
    while data:
        unpacker = zlib.decompressobj(wbits=31)
        try:
            plain_bytes += unpacker.decompress(data, MAX_UNPACKED + 1 - len(plain_bytes))
        except zlib.error as error:
            raise UnreadableInput(f"broken gzip: {error}") from error
        if len(plain_bytes) > MAX_UNPACKED:
            raise UnreadableInput(f"unpacks to more than {MAX_UNPACKED >> 20} MiB")
        if not unpacker.eof:
            raise UnreadableInput("broken gzip: the end is missing")
        data = unpacker.unused_data
    return bytes(plain_bytes)


async def _upload(request: web.Request) -> tuple[bytes, dict[str, str]]:
    """Read the form, its file bounded while it comes."""
    if request.content_type != "multipart/form-data":
        raise web.HTTPUnsupportedMediaType(text="expected a form with a file\n")
    if (request.content_length or 0) > MAX_UPLOAD + (1 << 16):
        raise web.HTTPRequestEntityTooLarge(max_size=MAX_UPLOAD, actual_size=request.content_length or 0)
    data, fields = bytearray(), {}
    try:
        parts = await request.multipart()
        while (part := await parts.next()) is not None:
            if not isinstance(part, BodyPartReader):
                raise web.HTTPBadRequest(text="expected a form with a file\n")
            limit = MAX_UPLOAD if part.name == "file" else _MOST_FIELD
            body = bytearray()
            while chunk := await part.read_chunk():
                body += chunk
                if len(body) > limit:
                    raise web.HTTPRequestEntityTooLarge(max_size=limit, actual_size=len(body))
            if part.name == "file":
                data, fields["name"] = body, part.filename or ""
            elif part.name in {"method", "model", "failed"}:
                fields[part.name] = body.decode("utf-8", "replace")
    except (ValueError, RuntimeError, AssertionError, HttpProcessingError) as error:
        raise web.HTTPBadRequest(text="expected a form with a file\n") from error
    return bytes(data), fields


def _begin(desk: Front, request: web.Request, asked: Asked) -> web.StreamResponse:
    """Start the analysis for the browser's session, which begins now where there is none."""
    jobs, response = _jobs(desk), web.Response(status=303)
    owner = desk.sessions.owner(request) or desk.sessions.begin(response, signed_in=False)
    try:
        job = jobs.start(owner, asked)
    except TooBusy as error:
        raise web.HTTPServiceUnavailable(text=f"{error}\n", headers={"Retry-After": "60"}) from error
    response.headers["Location"] = f"/try/{quote(job.id, safe='')}"
    return response


def _jobs(desk: Front) -> Jobs:
    if desk.pages.jobs is None:
        raise web.HTTPNotFound(text="nothing can be analysed from this page\n")
    return desk.pages.jobs


def _job(desk: Front, request: web.Request) -> Job:
    job = _jobs(desk).find(desk.sessions.owner(request), request.match_info["job_id"])
    if job is None:
        raise web.HTTPNotFound(text="no such analysis in this browser\n")
    return job


async def _choice(jobs: Jobs, fields: Mapping[str, str], *, takes_as_failed: bool) -> Choice:
    """Read what a form chose: of what is offered, and nothing else."""
    choice = Choice(
        method=fields.get("method", ""), model=fields.get("model", ""), takes_as_failed=takes_as_failed
    )
    try:
        (await jobs.opinions.offer()).require(choice)
    except NotOffered as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from error
    except AnalyzerError as error:
        raise web.HTTPServiceUnavailable(text=f"{error}\n", headers={"Retry-After": "10"}) from error
    return choice
