"""Arize Phoenix: the newest traces of a project, then all spans of each, then what was said of them. Pure.

The spans are asked for by trace, not by time: a run that began before the limit of time is whole or absent.
Source: arize-phoenix 20.26 (2026), ``server/api/routers/v1/{traces,spans,annotations}.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from analyzer.pulling.backend import (
    Ask,
    Backend,
    Conversation,
    Page,
    Wanted,
    batches,
    found_with,
    identity,
    listed,
    paged,
    rfc3339,
)
from analyzer.recordings.phoenix_spans import PHOENIX as FORMAT
from collector_processor.core.credentials import PHOENIX_VARIABLES, phoenix_credentials

_MOST: Final = 1000
"""Largest page of the API."""
_DEFAULT: Final = "default"


def pull_phoenix(wanted: Wanted) -> Conversation:
    """Ask for the newest traces of a project; ``default`` is Phoenix's own default."""
    project = f"v1/projects/{quote(wanted.project or _DEFAULT, safe='')}"
    asked = [("sort", "start_time"), ("order", "desc")]
    if wanted.since_ns is not None:
        asked.append(("start_time", rfc3339(wanted.since_ns)))

    def ask(cursor: str, left: int) -> Ask:
        size = [("limit", str(min(left, _MOST)))]
        return Ask(path=f"{project}/traces", query=[*asked, *size, *_at(cursor)])

    def read(answer: Any) -> Page:
        links = {identity(one, "trace_id"): _link(one) for one in listed(answer, "data")}
        return Page(items=links, cursor=answer.get("next_cursor"))

    def use(links: Mapping[str, Any]) -> Conversation:
        for batch in batches([*links]):
            yield from _spans(project, batch, {each: links[each] for each in batch if links[each]})

    yield from paged("traces", ask, read, use, wanted.limit)


def _at(cursor: str) -> list[tuple[str, str]]:
    return [("cursor", cursor)] if cursor else []


def _link(trace: Mapping[str, Any]) -> str:
    if not trace.get("project_id"):
        return ""
    owner, own = quote(identity(trace, "project_id"), safe=""), quote(identity(trace, "trace_id"), safe="")
    return f"projects/{owner}/traces/{own}"


def _spans(project: str, traces: Sequence[str], links: Mapping[str, str]) -> Conversation:
    asked = [("limit", str(_MOST)), *(("trace_id", trace) for trace in traces)]

    def ask(cursor: str, _left: int) -> Ask:
        return Ask(path=f"{project}/spans", query=[*asked, *_at(cursor)])

    def read(answer: Any) -> Page:
        found = listed(answer, "data")
        items = {identity(one, "id") if "id" in one else str(one): one for one in found}
        return Page(items=items, cursor=answer.get("next_cursor"))

    yield from paged("spans", ask, read, found_with(links))


PHOENIX: Final = Backend(
    name="phoenix",
    file_format=FORMAT,
    pull=pull_phoenix,
    credentials=phoenix_credentials,
    variables=PHOENIX_VARIABLES,
)
