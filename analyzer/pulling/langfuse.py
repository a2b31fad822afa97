"""Langfuse: the newest root observations, then all observations of each trace. Pure.

Checked against Langfuse's own client and its description of the API, not against a running Langfuse. Metadata
values above 200 characters come cut.
Source: langfuse 5.0 for Python (2026), ``api/observations``: ``GET /api/public/v2/observations``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import quote

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
from analyzer.recordings.langfuse_export import LANGFUSE as FORMAT
from collector_processor.core.credentials import LANGFUSE_VARIABLES, langfuse_credentials

_API: Final = "api/public/v2/observations"
_MOST: Final = 1000
"""Largest page of the API."""
_FIELDS: Final = "core,basic,time,io,metadata,model,usage"


def pull_langfuse(wanted: Wanted) -> Conversation:
    """Ask for the newest traces of the project that the keys belong to."""
    if wanted.project is not None:
        raise PullFailed("Langfuse's keys belong to one project: leave out --project")
    asked = [("isRootObservation", "true"), ("fields", "core,basic")]
    if wanted.since_ns is not None:
        asked.append(("fromStartTime", rfc3339(wanted.since_ns)))

    def read(answer: Any) -> Page:
        links = {identity(one, "traceId"): _link(one) for one in listed(answer, "data")}
        return Page(items=links, cursor=_cursor(answer))

    def use(links: Mapping[str, Any]) -> Conversation:
        for trace, link in links.items():
            yield from _observations(trace, {trace: link} if link else {})

    yield from paged("traces", partial(_ask, asked), read, use, wanted.limit)


def _ask(asked: Sequence[tuple[str, str]], cursor: str, left: int) -> Ask:
    at = [("cursor", cursor)] if cursor else []
    return Ask(path=_API, query=[*asked, ("limit", str(min(left, _MOST))), *at])


def _observations(trace: str, links: Mapping[str, str]) -> Conversation:
    def read(answer: Any) -> Page:
        items = {identity(one, "id"): one for one in listed(answer, "data")}
        return Page(items=items, cursor=_cursor(answer))

    asked = [("traceId", trace), ("fields", _FIELDS)]
    yield from paged("observations", partial(_ask, asked), read, found_with(links))


def _cursor(answer: Any) -> object:
    meta = answer.get("meta")
    return meta.get("cursor") if isinstance(meta, Mapping) else None


def _link(observation: Mapping[str, Any]) -> str:
    if not observation.get("projectId"):
        return ""
    project, trace = identity(observation, "projectId"), identity(observation, "traceId")
    return f"project/{quote(project, safe='')}/traces/{quote(trace, safe='')}"


LANGFUSE: Final = Backend(
    name="langfuse",
    file_format=FORMAT,
    pull=pull_langfuse,
    credentials=langfuse_credentials,
    variables=LANGFUSE_VARIABLES,
)
