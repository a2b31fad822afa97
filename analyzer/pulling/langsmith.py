"""LangSmith: the newest root runs of a project, then all runs of each trace. Pure.

Checked against LangSmith's own client, not against a running LangSmith. The paths lie below the URL that
the client is given: ``https://api.smith.langchain.com``, or ``https://HOST/api`` of one's own.
Source: langsmith 0.15 for Python (2026), ``Client.list_runs`` and ``Client.read_project``.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from functools import partial
from typing import Any, Final

from analyzer.pulling.backend import (
    Ask,
    Backend,
    Conversation,
    Page,
    PullFailed,
    Wanted,
    found_with,
    identity,
    listed,
    paged,
    rfc3339,
)
from analyzer.recordings.langsmith_runs import LANGSMITH as FORMAT

_QUERY: Final = "runs/query"
_MOST: Final = 100
"""Largest page of the API."""
_DEFAULT: Final = "default"


def pull_langsmith(wanted: Wanted) -> Conversation:
    """Ask for the newest traces of a project, given by its name."""
    project = yield from _project(wanted.project or _DEFAULT)
    asked: dict[str, Any] = {"session": [project], "is_root": True}
    if wanted.since_ns is not None:
        asked["start_time"] = rfc3339(wanted.since_ns)

    def read(answer: Any) -> Page:
        links = {identity(one, "trace_id"): _link(one) for one in listed(answer, "runs")}
        return Page(items=links, cursor=_cursor(answer))

    def use(links: Mapping[str, Any]) -> Conversation:
        for trace, link in links.items():
            yield from _runs(project, trace, {trace: link} if link else {})

    yield from paged("traces", partial(_ask, asked), read, use, wanted.limit)


def _ask(asked: Mapping[str, Any], cursor: str, left: int) -> Ask:
    at = {"cursor": cursor} if cursor else {}
    return Ask(path=_QUERY, body={**asked, "limit": min(left, _MOST), **at})


def _project(name: str) -> Generator[Ask, Any, str]:
    answer = yield Ask(path="sessions", query=[("name", name), ("limit", "1")])
    found = answer if isinstance(answer, list) else []
    if not found or not isinstance(found[0], Mapping):
        raise PullFailed(f"no project is called {name!r}")
    return identity(found[0], "id")


def _runs(project: str, trace: str, links: Mapping[str, str]) -> Conversation:
    def read(answer: Any) -> Page:
        items = {identity(one, "id"): one for one in listed(answer, "runs")}
        return Page(items=items, cursor=_cursor(answer))

    asked = {"session": [project], "trace": trace}
    yield from paged("runs", partial(_ask, asked), read, found_with(links))


def _cursor(answer: Any) -> object:
    cursors = answer.get("cursors")
    return cursors.get("next") if isinstance(cursors, Mapping) else None


def _link(run: Mapping[str, Any]) -> str:
    return identity(run, "app_path").lstrip("/") if run.get("app_path") else ""


def _page_url(url: str, link: str) -> str:
    """Return a page's address: the pages are on the API's host without ``api.``, or above ``/api``."""
    return f"{url.removesuffix('/api').replace('api.smith.', 'smith.', 1)}/{link}"


def _credentials(environ: Mapping[str, str]) -> Mapping[str, str]:
    key, workspace = (environ.get(name, "").strip() for name in _VARIABLES)
    if not key:
        return {}
    return {"x-api-key": key, **({"X-Tenant-Id": workspace} if workspace else {})}


_VARIABLES: Final = ("LANGSMITH_API_KEY", "LANGSMITH_WORKSPACE_ID")
LANGSMITH: Final = Backend(
    name="langsmith",
    file_format=FORMAT,
    pull=pull_langsmith,
    credentials=_credentials,
    variables=_VARIABLES,
    page_url=_page_url,
)
