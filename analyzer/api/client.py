"""Clients of a running service's HTTP API, with and without asyncio. Not pure: sockets.

Only the standard library's HTTP client is used. Redirects are not followed: they would carry the token along.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException
from typing import Any, Final, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, Request, build_opener

from analyzer.history.run_diff import RunDiff
from analyzer.inquiry.errors import AnalyzerError
from analyzer.records.issue_records import Issue, Workflow, WorkflowInFull
from analyzer.records.json_records import (
    GivenLabel,
    Job,
    LabelledRun,
    ListedRun,
    QueuedRuns,
    RunPage,
    RunSteps,
    read_answer,
)

T = TypeVar("T")

DEFAULT_URL: Final = "http://127.0.0.1:8500"
MOST_BYTES: Final = 256 << 20
"""Size limit of an answer, in bytes."""
_JSON: Final = "application/json"


class ServiceError(AnalyzerError):
    """The service refused a request, or cannot be reached.

    Attributes:
        status: the HTTP status; ``None`` without an answer.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow no redirects: a redirect is raised as an error with its status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A running service. Every method raises ``ServiceError`` if it refuses or cannot be reached."""

    url: str = DEFAULT_URL
    token: str | None = field(default=None, repr=False)
    """``BLAMESPAN_TOKEN`` of the service."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Further headers, such as a tenant's (``{"X-Scope-OrgID": "shop"}``)."""
    timeout_s: float = 120.0

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username:
            raise ValueError(f"url: expected http://HOST:PORT or https://HOST:PORT, not {self.url!r}")

    def runs(self, **filters: str | float) -> RunPage:
        """Return a page of runs, newest first.

        Args:
            filters: those of ``GET /api/runs``: ``status="attributed,suspected"``, ``since="24h"``, ``q``,
                ``service``, ``agent``, ``limit``, ``after``, …; the service refuses unknown ones.
        """
        return _read(RunPage, self._get("/api/runs", filters))

    def all_runs(self, **filters: str | float) -> Iterator[ListedRun]:
        """Yield all runs that fit the filters, page by page."""
        page = self.runs(**filters)
        yield from page.runs
        while page.next is not None:
            page = self.runs(**filters | {"after": page.next})
            yield from page.runs

    def run(self, run_id: str, *, version: int | None = None) -> LabelledRun:
        """Return a run's verdict, with labels, second opinions and versions.

        Args:
            run_id: the run.
            version: an earlier version of the verdict; ``None`` for the current one.
        """
        query = {} if version is None else {"version": version}
        return _read(LabelledRun, self._get(_run_path(run_id), query))

    def steps(self, run_id: str, *, first: int = 0, limit: int = 1_000) -> RunSteps:
        """Return a run's steps in full, starting at step ``first``."""
        return _read(RunSteps, self._get(f"{_run_path(run_id)}/steps", {"from": first, "limit": limit}))

    def otlp(self, run_id: str) -> bytes:
        """Return a run's kept spans and logs, without their secrets, as one line of OTLP/JSON."""
        return json.dumps(self._get(f"{_run_path(run_id)}/otlp"), ensure_ascii=False).encode() + b"\n"

    def compare(self, left: str, right: str | None = None) -> RunDiff:
        """Compare two runs by id; without ``right``, with the nearest run of the same workflow."""
        return _read(RunDiff, self._get("/api/compare", {"a": left, **({"b": right} if right else {})}))

    def queue(self, *, limit: int = 10) -> QueuedRuns:
        """Return the runs most worth a person's label, at most 50."""
        return _read(QueuedRuns, self._get("/api/queue", {"limit": limit}))

    def issues(self, **filters: str | float) -> tuple[Issue, ...]:
        """Return recurring failures; filters are ``state``, ``service``, ``agent``, ``limit``."""
        found = self._get("/api/issues", filters)
        return _read(_Issues, found).issues

    def workflows(self) -> tuple[Workflow, ...]:
        """Return the workflows with runs in the last 30 days, latest run first, at most 50."""
        return _read(_Workflows, self._get("/api/workflows")).workflows

    def workflow(self, service: str, workflow: str) -> WorkflowInFull:
        """Return a workflow with what its passing runs always do; both names may be empty."""
        asked: Mapping[str, str | float] = {"service": service, "workflow": workflow}
        return _read(WorkflowInFull, self._get("/api/workflow", asked))

    def label(
        self,
        run_id: str,
        *,
        agent: str | None = None,
        step: int | None = None,
        failed: bool = True,
        why: str | None = None,
    ) -> GivenLabel:
        """Say which agent or step was to blame, or with ``failed=False`` that the run did not fail.

        ``why`` is the reason in a few words; it is kept with the label.
        """
        said = {"agent": agent, "step": step, "why": why} if failed else {"failed": False, "why": why}
        fields = {name: value for name, value in said.items() if value is not None}
        return _read(GivenLabel, self._post(f"{_run_path(run_id)}/label", json.dumps(fields).encode()))

    def confirm(self, run_id: str) -> GivenLabel:
        """Say that the verdict is right."""
        return _read(GivenLabel, self._post(f"{_run_path(run_id)}/confirm", b""))

    def reject(self, run_id: str) -> GivenLabel:
        """Say that the verdict is wrong."""
        return _read(GivenLabel, self._post(f"{_run_path(run_id)}/reject", b""))

    def analyse(self, trace: bytes, **parameters: str | float) -> Job:
        """Analyse a trace without keeping it.

        Args:
            trace: a file's bytes, in any format that ``blamespan attribute`` reads.
            parameters: those of ``POST /api/analyse``: ``method``, ``model``, ``failed``, ``budget_usd``,
                ``deadline_s``, ``wait_s``.

        Returns: the verdicts if ``over``, else a job whose state ``job`` returns.
        """
        path = _with_query("/api/analyse", parameters)
        return _read(Job, self._post(path, trace, "application/octet-stream"))

    def job(self, job_id: str) -> Job:
        """Return an analysis, with the verdicts found so far."""
        return _read(Job, self._get(f"/api/analyse/{quote(job_id, safe='')}"))

    def cancel(self, job_id: str) -> Job:
        """End an analysis; return it with the verdicts found until then."""
        place = self._place(f"/api/analyse/{quote(job_id, safe='')}")
        return _read(Job, self._answer(Request(place, method="DELETE")))  # noqa: S310 - http alone

    def _get(self, path: str, query: Mapping[str, str | float] | None = None) -> Any:
        return self._answer(Request(self._place(_with_query(path, query or {}))))  # noqa: S310 - http alone

    def _post(self, path: str, body: bytes, kind: str = _JSON) -> Any:
        request = Request(self._place(path), data=body, method="POST")  # noqa: S310 - as above
        request.add_header("Content-Type", kind)
        return self._answer(request)

    def _place(self, path: str) -> str:
        return self.url.rstrip("/") + path

    def _answer(self, request: Request) -> Any:
        for name, value in self.headers.items():
            request.add_header(name, value)
        if self.token is not None:
            request.add_unredirected_header("Authorization", f"Bearer {self.token}")
        try:
            with _opener().open(request, timeout=self.timeout_s) as answer:
                body = answer.read(MOST_BYTES + 1)
        except HTTPError as error:
            with error:
                reply = error.read(2_000).decode("utf-8", "replace").strip()
            raise ServiceError(reply or f"HTTP status {error.code}", error.code) from error
        except (URLError, HTTPException, OSError) as error:
            reason = getattr(error, "reason", None) or error
            raise ServiceError(f"{self.url}: cannot be reached: {reason}") from error
        if len(body) > MOST_BYTES:
            raise ServiceError(f"the answer is larger than {MOST_BYTES >> 20} MiB")
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise ServiceError(f"{self.url}: expected JSON: is this a blamespan service?") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncClient:
    """The same as ``Client`` for programs with an event loop; each request takes a thread."""

    url: str = DEFAULT_URL
    token: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: float = 120.0

    @property
    def _client(self) -> Client:
        return Client(url=self.url, token=self.token, headers=self.headers, timeout_s=self.timeout_s)

    async def runs(self, **filters: str | float) -> RunPage:
        """As ``Client.runs``."""
        return await asyncio.to_thread(partial(self._client.runs, **filters))

    async def run(self, run_id: str, *, version: int | None = None) -> LabelledRun:
        """As ``Client.run``."""
        return await asyncio.to_thread(self._client.run, run_id, version=version)

    async def steps(self, run_id: str, *, first: int = 0, limit: int = 1_000) -> RunSteps:
        """As ``Client.steps``."""
        return await asyncio.to_thread(self._client.steps, run_id, first=first, limit=limit)

    async def otlp(self, run_id: str) -> bytes:
        """As ``Client.otlp``."""
        return await asyncio.to_thread(self._client.otlp, run_id)

    async def compare(self, left: str, right: str | None = None) -> RunDiff:
        """As ``Client.compare``."""
        return await asyncio.to_thread(self._client.compare, left, right)

    async def queue(self, *, limit: int = 10) -> QueuedRuns:
        """As ``Client.queue``."""
        return await asyncio.to_thread(partial(self._client.queue, limit=limit))

    async def issues(self, **filters: str | float) -> tuple[Issue, ...]:
        """As ``Client.issues``."""
        return await asyncio.to_thread(partial(self._client.issues, **filters))

    async def workflows(self) -> tuple[Workflow, ...]:
        """As ``Client.workflows``."""
        return await asyncio.to_thread(self._client.workflows)

    async def workflow(self, service: str, workflow: str) -> WorkflowInFull:
        """As ``Client.workflow``."""
        return await asyncio.to_thread(self._client.workflow, service, workflow)

    async def label(
        self,
        run_id: str,
        *,
        agent: str | None = None,
        step: int | None = None,
        failed: bool = True,
        why: str | None = None,
    ) -> GivenLabel:
        """As ``Client.label``."""
        return await asyncio.to_thread(
            self._client.label, run_id, agent=agent, step=step, failed=failed, why=why
        )

    async def confirm(self, run_id: str) -> GivenLabel:
        """As ``Client.confirm``."""
        return await asyncio.to_thread(self._client.confirm, run_id)

    async def reject(self, run_id: str) -> GivenLabel:
        """As ``Client.reject``."""
        return await asyncio.to_thread(self._client.reject, run_id)

    async def analyse(self, trace: bytes, **parameters: str | float) -> Job:
        """As ``Client.analyse``."""
        return await asyncio.to_thread(partial(self._client.analyse, trace, **parameters))

    async def job(self, job_id: str) -> Job:
        """As ``Client.job``."""
        return await asyncio.to_thread(self._client.job, job_id)

    async def cancel(self, job_id: str) -> Job:
        """As ``Client.cancel``."""
        return await asyncio.to_thread(self._client.cancel, job_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Issues:
    issues: tuple[Issue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Workflows:
    workflows: tuple[Workflow, ...]


def _read(kind: type[T], document: object) -> T:
    try:
        return read_answer(kind, document)
    except ValueError as error:
        raise ServiceError(f"unexpected answer, expected {kind.__name__}: {error}") from error


def _opener() -> OpenerDirector:
    return build_opener(_NoRedirects())


def _run_path(run_id: str) -> str:
    return f"/api/runs/{quote(run_id, safe='')}"


def _with_query(path: str, query: Mapping[str, str | float]) -> str:
    """Return the path with a query; booleans are written as in JSON."""
    values = {name: str(value).lower() if isinstance(value, bool) else value for name, value in query.items()}
    return f"{path}?{urlencode(values)}" if values else path
