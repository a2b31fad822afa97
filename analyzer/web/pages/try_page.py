"""Pages and API that analyse an uploaded file, and pages that analyse a kept run again. Not pure.

``POST /api/analyse`` takes a trace and answers with verdicts, or with a job whose result can be requested
later. A job's id is a secret: anyone who has it can read the job. The trace is not kept, and no verdict is
stored.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from collections.abc import Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from aiohttp import BodyPartReader, web
from aiohttp.http_exceptions import HttpProcessingError

from analyzer.inquiry.errors import AnalyzerError
from analyzer.inquiry.present import plain
from analyzer.issues.correcting import Outcome, Wanted
from analyzer.issues.labels.label_store import Opinion
from analyzer.methods.choice import Choice, NotOffered
from analyzer.methods.registry import AUTO
from analyzer.recordings.uploads import MOST_RUNS, expecting
from analyzer.web.api import opinion_document, read_choice_fields
from analyzer.web.front import Front, PageContext, routed
from analyzer.web.guard import require_stated_origin
from analyzer.web.pages.run_page import chance_of, show_run, view
from analyzer.web.reads.documents import read_document
from analyzer.web.rendering import seconds, usd
from analyzer.web.requested_analyses import Asked, Job, Jobs, JobState, TooBusy
from semconv.model import BLAMELESS

MAX_UPLOAD: Final = 8 << 20
"""Largest upload, in bytes."""
MOST_FILES: Final = 20
_MOST_NAME: Final = 100
_MOST_FIELD: Final = 200
MOST_REFERENCE: Final = 2_000
"""Longest expected answer that a person may give, in characters."""
_FIELDS: Final[Mapping[str, int]] = {
    "method": _MOST_FIELD,
    "model": _MOST_FIELD,
    "failed": _MOST_FIELD,
    "reference": 4 * MOST_REFERENCE,
    "with_reference": _MOST_FIELD,
}
"""Fields of the form besides the files, and their limits in bytes."""
_SAID: Final[Mapping[Outcome, str]] = {
    Outcome.NEW_VERSION: "The run's verdict has a new version: this one.",
    Outcome.AGREES: "It agrees with the run's verdict, which stays as it is. It is kept on the run's page.",
    Outcome.PERSON_DECIDED: "A person decided on this run, and that stands. This is kept on the run's page.",
    Outcome.PROOF_STANDS: "An experiment decided on this run. That stands; this is kept on the run's page.",
    Outcome.NO_ANSWER: "The chosen method gave no answer of its own: the run's verdict stays as it is.",
    Outcome.NOT_CORRECTABLE: "It is kept on the run's page. The run's verdict stays as it is: the positions"
    " of the run's spans are no longer stored.",
}
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
_PARAMETERS: Final = (
    *("method", "model", "failed", "reference", "with_reference", "budget_usd", "deadline_s", "wait_s"),
)
_MOST_USD: Final = 1_000_000.0


def try_routes(context: Front) -> list[web.RouteDef]:
    """Return the routes; without an analyzer, only the page that says so."""
    return routed(
        context,
        ("GET", "/try", _ask),
        ("POST", "/try", _take),
        ("GET", "/try/{job_id}", _watch),
        ("GET", "/try/{job_id}/state", _state),
        ("POST", "/try/{job_id}/cancel", _cancel),
    )


def again_routes(context: PageContext) -> list[web.RouteDef]:
    """Return the routes that analyse a kept run again."""
    return routed(
        context,
        ("POST", "/runs/{run_id}/again", _again),
        ("GET", "/runs/{run_id}/again", _lead_back),
        ("POST", "/api/runs/{run_id}/opinions", _give_opinion),
    )


async def _ask(context: Front, request: web.Request, error: str = "") -> web.Response:
    jobs = context.jobs
    if jobs is not None:
        jobs.look_ahead()
    mine = jobs.of(context.sessions.owner(request)) if jobs else []
    chance = await chance_of(jobs)
    return await context.show(
        request, "try.html", chance=chance, jobs=mine, most=MAX_UPLOAD >> 20, most_runs=MOST_RUNS, error=error
    )


async def _take(context: Front, request: web.Request) -> web.StreamResponse:
    """Start an analysis; if the form is refused, the page shows the reason above it."""
    require_stated_origin(request)
    try:
        return await _taken(context, request)
    except web.HTTPError as refusal:
        if "text/html" not in request.headers.get("Accept", ""):
            raise
        return _refused(await _ask(context, request, (refusal.text or "").strip()), refusal)


def _refused(page: web.Response, refusal: web.HTTPError) -> web.Response:
    """Return a page with the form, as the answer to a refused request."""
    page.set_status(refusal.status)
    if "Retry-After" in refusal.headers:
        page.headers["Retry-After"] = refusal.headers["Retry-After"]
    return page


async def _taken(context: Front, request: web.Request) -> web.StreamResponse:
    jobs = _jobs(context)
    files, fields = await _upload(request)
    if not files:
        raise web.HTTPBadRequest(text="expected a file that is not empty\n")
    choice = await read_choice(jobs, fields, takes_as_failed="failed" in fields)
    reference = read_reference(fields)
    load = partial(jobs.read, files, reference)
    name = plain(fields.get("name", ""), _MOST_NAME) or "a file"
    size = sum(map(len, files))
    return _begin(context, request, Asked(name=name, choice=choice, size=size, load=load))


async def _again(context: PageContext, request: web.Request) -> web.StreamResponse:
    """Start a second opinion; if the form is refused, the run's page shows the reason above it."""
    require_stated_origin(request)
    fields = {name: str(value) for name, value in (await request.post()).items()}
    try:
        asked = await _asked_again(context, request, fields)
        if not isinstance(asked, Opinion):
            return _begin(context.front, request, asked)
    except web.HTTPError as refusal:
        is_unknown = isinstance(refusal, web.HTTPNotFound)
        if is_unknown or "text/html" not in request.headers.get("Accept", ""):
            raise
        return _refused(await show_run(context, request, (refusal.text or "").strip()), refusal)
    raise web.HTTPSeeOther(f"{_page_of(asked.run_id)}#opinions")  # paid for earlier: not analysed again


async def _lead_back(_context: PageContext, request: web.Request) -> web.StreamResponse:
    """Redirect to the run's page: the links of a page that shows a refusal are relative to this address."""
    raise web.HTTPSeeOther(f"{_page_of(request.match_info['run_id'])}?{request.query_string}")


def _page_of(run_id: str) -> str:
    return f"/runs/{quote(run_id, safe='')}"


async def _give_opinion(context: PageContext, request: web.Request) -> web.Response:
    """Analyse a kept run again, and answer once that is done."""
    fields = await read_choice_fields(request)
    asked = await _asked_again(context, request, fields)
    if isinstance(asked, Opinion):
        return web.json_response({"outcome": "known", "opinion": opinion_document(asked)})
    job = _start(_jobs(context.front), f"api {secrets.token_hex(8)}", asked)
    if job.work is not None:
        await asyncio.shield(job.work)  # it continues if the client disconnects, and its result is kept
    if job.error or job.outcome is None:
        raise web.HTTPBadGateway(text=f"{job.error or 'no analyzer answers'}\n")
    given = {
        "chosen": {"method": asked.choice.shown_method, "model": asked.choice.model or None},
        "given_ns": context.pages.now_ns(),
        "verdict": read_document(json.dumps(job.found[0].document), asked.run_id),
    }
    return web.json_response({"outcome": job.outcome.value, "opinion": given})


async def _asked_again(
    context: PageContext, request: web.Request, fields: Mapping[str, str]
) -> Asked | Opinion:
    """Return the analysis to start, or an earlier opinion on the same request."""
    jobs = _jobs(context.front)
    verdict = await context.find(request)
    failed = verdict.status not in BLAMELESS or "failed" in fields
    choice = await read_choice(jobs, fields, takes_as_failed=failed)
    read = await context.whole.of(verdict)
    if read is None or not read.kept.has_texts:
        raise web.HTTPConflict(text="the texts of this run are not kept: it cannot be analysed again\n")
    reference, kept = read_reference(fields), read.kept
    wanted = Wanted(
        tenant=verdict.tenant,
        run_id=verdict.run_id,
        method=choice.shown_method,
        model=choice.model,
        digest=f"{kept.digest}{' failed' if failed else ''}{_digest_of(reference)}",
    )
    second = context.pages.second
    opinion = None if second is None else await second.known(wanted)
    if opinion is not None:
        return opinion
    size = sum(len(step.input) + len(step.output) for step in kept.trajectory.steps)
    trajectory, clean = kept.trajectory, context.pages.clean
    return Asked(
        name=f"run {verdict.run_id}",
        choice=choice,
        size=size,
        load=lambda: [clean(expecting(trajectory, reference)) if reference else trajectory],
        run_id=verdict.run_id,
        tenant=verdict.tenant,
        take=None if second is None else partial(second.take, wanted),
    )


def _digest_of(reference: str) -> str:
    return f" expects {hashlib.blake2b(reference.encode(), digest_size=16).hexdigest()}" if reference else ""


async def _watch(context: Front, request: web.Request) -> web.StreamResponse:
    job = _job(context, request).as_of_now()
    shown = await asyncio.to_thread(
        lambda: [(found.document, view(found.trajectory, found.document)) for found in job.found]
    )
    said = None if job.outcome is None else _SAID[job.outcome]
    spent = spent_on(job, _jobs(context).elapsed_s(job))
    return await context.show(request, "job.html", job=job, shown=shown, outcome=said, spent=spent)


def spent_on(job: Job, elapsed_s: float) -> str:
    """Return the time, calls and dollars that an analysis took so far, as the page shows them."""
    calls = f"{job.calls} model call{'' if job.calls == 1 else 's'}"
    cost = f", {usd(job.cost_usd)}" if job.cost_usd else ", no price known" if job.calls else ""
    return f"{seconds(elapsed_s)}, {calls}{cost}"


async def _cancel(context: Front, request: web.Request) -> web.StreamResponse:
    require_stated_origin(request)
    job = _job(context, request)
    _jobs(context).cancel(job)
    raise web.HTTPSeeOther(f"/try/{quote(job.id, safe='')}")


async def _state(context: Front, request: web.Request) -> web.StreamResponse:
    job = _job(context, request)
    counts = {"runs": job.runs, "done": len(job.found), "calls": job.calls, "cost_usd": job.cost_usd}
    elapsed_s = _jobs(context).elapsed_s(job)
    shown = {"elapsed_s": elapsed_s, "spent": spent_on(job, elapsed_s)}
    return web.json_response({"state": job.state.value, "over": job.is_over, **counts, **shown})


def read_reference(fields: Mapping[str, str]) -> str:
    """Read the expected answer of a form; empty if none is given.

    Raises:
        web.HTTPBadRequest: it is too long.
    """
    reference = fields.get("reference", "").strip()
    if len(reference) > MOST_REFERENCE:
        raise web.HTTPBadRequest(text=f"reference: expected at most {MOST_REFERENCE} characters\n")
    return reference


async def _upload(request: web.Request) -> tuple[list[bytes], dict[str, str]]:
    """Read the form, with the files' size limited while they arrive; empty files are left out."""
    if request.content_type != "multipart/form-data":
        raise web.HTTPUnsupportedMediaType(text="expected a form with a file\n")
    if (request.content_length or 0) > MAX_UPLOAD + (1 << 16):
        raise _too_large(request.content_length or 0)
    files: list[bytes] = []
    fields: dict[str, str] = {}
    left = MAX_UPLOAD
    try:
        parts = await request.multipart()
        while (part := await parts.next()) is not None:
            if not isinstance(part, BodyPartReader):
                raise web.HTTPBadRequest(text="expected a form with a file\n")
            name = part.name or ""
            body = await _part(part, left if name == "file" else _FIELDS.get(name, _MOST_FIELD))
            if name == "file":
                left -= len(body)
                files += [body] if body else []
                names = [fields.get("name", ""), (part.filename or "")[:_MOST_NAME]]
                fields["name"] = ", ".join(filter(None, names))[: 2 * _MOST_NAME]
            elif name in _FIELDS:
                fields[name] = body.decode("utf-8", "replace")
            if len(files) > MOST_FILES:
                raise web.HTTPBadRequest(text=f"expected at most {MOST_FILES} files\n")
    except (ValueError, RuntimeError, AssertionError, HttpProcessingError) as error:
        raise web.HTTPBadRequest(text="expected a form with a file\n") from error
    return files, fields


async def _part(part: BodyPartReader, limit: int) -> bytes:
    """Return a part of a form.

    Raises:
        web.HTTPRequestEntityTooLarge: it has more than ``limit`` bytes.
    """
    body = bytearray()
    while chunk := await part.read_chunk():
        body += chunk
        if len(body) > limit:
            raise _too_large(len(body))
    return bytes(body)


def _too_large(size: int) -> web.HTTPRequestEntityTooLarge:
    told = f"too large: expected at most {MAX_UPLOAD >> 20} MiB\n"
    return web.HTTPRequestEntityTooLarge(max_size=MAX_UPLOAD, actual_size=size, text=told)


def _begin(context: Front, request: web.Request, asked: Asked) -> web.StreamResponse:
    """Start the analysis for the browser's session; creates the session if there is none."""
    response = web.Response(status=303)
    owner = context.sessions.owner(request) or context.sessions.begin(response, signed_in=False)
    job = _start(_jobs(context), owner, asked)
    response.headers["Location"] = f"/try/{quote(job.id, safe='')}"
    return response


def _start(jobs: Jobs, owner: str, asked: Asked) -> Job:
    try:
        return jobs.start(owner, asked)
    except TooBusy as error:
        raise web.HTTPServiceUnavailable(text=f"{error}\n", headers={"Retry-After": "60"}) from error


def _jobs(context: Front) -> Jobs:
    if context.jobs is None:
        raise web.HTTPNotFound(text="nothing can be analysed from this page\n")
    return context.jobs


def _job(context: Front, request: web.Request) -> Job:
    job = _jobs(context).find(context.sessions.owner(request), request.match_info["job_id"])
    if job is None:
        raise web.HTTPNotFound(text="no such analysis in this browser\n")
    return job


async def read_choice(
    jobs: Jobs, fields: Mapping[str, str], *, takes_as_failed: bool, budget_usd: float | None = None
) -> Choice:
    """Read the form's choice, which must be on offer; without a method, it is left to us."""
    choice = Choice(
        method=fields.get("method") or AUTO,
        model=fields.get("model", ""),
        takes_as_failed=takes_as_failed,
        with_reference=fields.get("with_reference") == "yes",
        budget_usd=budget_usd,
    )
    try:
        (await jobs.opinions.offer()).require(choice)
    except NotOffered as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from error
    except AnalyzerError as error:
        raise web.HTTPServiceUnavailable(text=f"{error}\n", headers={"Retry-After": "10"}) from error
    return choice


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
        data = await _read_trace(request)
        secret = secrets.token_urlsafe(16)
        load = partial(jobs.read, [data], read_reference(fields))
        asked = Asked(name="a trace", choice=choice, size=len(data), load=load, timeout_s=deadline_s)
        job = _start(jobs, _owner(secret), asked)
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
    unknown = sorted(query.keys() - set(_PARAMETERS))
    if unknown:
        raise _bad(f"{unknown[0][:50]!r}: unknown parameter; expected {', '.join(_FIELDS)}")
    for name in ("failed", "with_reference"):
        if query.get(name, "true") not in {"true", "false"}:
            raise _bad(f"{name}: expected true or false")
    long = [name for name, value in query.items() if name != "reference" and len(value) > _MOST_FIELD]
    if long:
        raise _bad(f"{long[0]}: expected at most {_MOST_FIELD} characters")
    sees = query.get("with_reference", "true" if query.get("reference") else "false") == "true"
    return {"method": AUTO, **query, "with_reference": "yes" if sees else ""}


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
        raise _bad(f"{name}: expected a number from 0 to {most:g}")
    return value


def _owner(secret: str) -> str:
    return f"api {secret}"


async def _read_trace(request: web.Request) -> bytes:
    data = bytearray()
    async for chunk in request.content.iter_chunked(1 << 16):  # also bounds what is unpacked
        data += chunk
        if len(data) > MAX_UPLOAD:
            raise web.HTTPRequestEntityTooLarge(
                max_size=MAX_UPLOAD, actual_size=len(data), text=f"expected at most {MAX_UPLOAD >> 20} MiB\n"
            )
    if not data:
        raise _bad("expected a trace")
    return bytes(data)


def _bad(text: str) -> web.HTTPBadRequest:
    return web.HTTPBadRequest(text=f"{text}\n")
