"""What is asked of a backend, and what its API gave. Pure: a backend is a generator without a socket.

A backend's generator yields an ``Ask``, is sent the JSON that was answered, and yields each ``Found`` as soon
as it has it, so that what was read before an error is not lost. A run may be spread over several ``Found``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from analyzer.inquiry.errors import AnalyzerError
from analyzer.recordings.recording import FileFormat

AT_ONCE: Final = 20
"""Runs whose spans are asked for in one request: their ids fit into any server's longest URL."""


_LONGEST: Final = 2_000
"""Characters of an id or a cursor, which becomes part of a URL."""


class PullFailed(AnalyzerError):  # noqa: N818 - reads better at the ``raise``
    """The backend refused, cannot be reached, or answered what its API does not allow; one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The runs to read: the newest ones."""

    project: str | None = None
    """The backend's word for it: a project, or an experiment; ``None`` for its default."""
    since_ns: int | None = None
    """Earliest start, Unix ns."""
    limit: int
    """Most runs, at least 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request that changes nothing in the backend."""

    path: str
    """Below the backend's URL, quoted, without a leading slash."""
    query: Sequence[tuple[str, str]] = ()
    body: Mapping[str, Any] | None = None
    """JSON of a search that the API takes as POST; ``None`` for a GET."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Records of runs as the backend's file format has them."""

    records: Sequence[Any]
    links: Mapping[str, str] = field(default_factory=dict)
    """Path or fragment of a run's page, below the backend's URL, by the trace id as the backend writes it."""


Conversation: TypeAlias = Generator["Ask | Found", Any, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """A backend whose runs can be read."""

    name: str
    file_format: FileFormat
    """The reader of ``Found.records``."""
    pull: Callable[[Wanted], Conversation]
    credentials: Callable[[Mapping[str, str]], Mapping[str, str]]
    """Returns headers for the environment's variables; empty without any."""
    variables: tuple[str, ...]
    """The variables that ``credentials`` reads."""
    page_url: Callable[[str, str], str] = lambda url, link: f"{url}/{link}"
    """Returns the address of a run's page for the backend's URL and a link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of a list."""

    items: Mapping[str, Any]
    """By their ids, in order."""
    cursor: object
    """What asks for the next page; nothing after the last."""


def paged(
    what: str,
    ask: Callable[[str, int], Ask],
    read: Callable[[Any], Page],
    use: Callable[[Mapping[str, Any]], Conversation],
    most: int = sys.maxsize,
) -> Conversation:
    """Ask for a list page by page.

    Args:
        what: what is listed, for messages.
        ask: returns the request for the page of a cursor, empty for the first, and the number still wanted.
        read: returns the page in an answer.
        use: goes on with the items of a page that no page had before.
        most: number of items wanted.
    """
    pages, cursor = _Pages(what), ""
    while most > 0:
        page = read((yield ask(cursor, most)))
        new = pages.new(page.items, most)
        most -= len(new)
        yield from use(new)
        following = pages.next(page.cursor, grew=bool(new)) if most else None
        if following is None:
            return
        cursor = following


@dataclass(slots=True)
class _Pages:
    """Guard against paging that never ends: a cursor that comes twice, or a page without anything new."""

    what: str
    _seen: set[str] = field(default_factory=set)
    _known: set[str] = field(default_factory=set)

    def new(self, items: Mapping[str, Any], most: int) -> Mapping[str, Any]:
        """Return the first items that no page had before."""
        found = [each for each in items if each not in self._known]
        self._known.update(found)
        return {each: items[each] for each in found[:most]}

    def next(self, cursor: object, *, grew: bool) -> str | None:
        """Return the cursor of the next page; ``None`` after the last.

        Raises:
            PullFailed: the pages would never end.
        """
        if cursor is None or cursor == "":
            return None
        text = str(cursor)
        if len(text) > _LONGEST or not text.isprintable():
            raise PullFailed(f"unexpected answer: expected a cursor of at most {_LONGEST} characters")
        if text in self._seen:
            raise PullFailed(f"the pages of {self.what} do not end: the same cursor was given twice")
        if not grew:
            raise PullFailed(f"the pages of {self.what} do not end: a page had nothing new")
        self._seen.add(text)
        return text


def found_with(links: Mapping[str, str]) -> Callable[[Mapping[str, Any]], Conversation]:
    """Return the use of a page whose items are records of runs with these links."""

    def use(items: Mapping[str, Any]) -> Conversation:
        if items:
            yield Found(records=[*items.values()], links=links)

    return use


def listed(answer: object, key: str) -> list[Mapping[str, Any]]:
    """Return the objects of a list in an answer; empty if the answer leaves it out, as protobuf's JSON does.

    Raises:
        PullFailed: the answer, or its list, has another type.
    """
    found = answer.get(key, []) if isinstance(answer, Mapping) else None
    if not isinstance(found, list) or not all(isinstance(each, Mapping) for each in found):
        raise PullFailed(f"unexpected answer: expected an object with a list of objects under {key!r}")
    return found


def identity(one: Mapping[str, Any], key: str) -> str:
    """Return an id in an answer.

    Raises:
        PullFailed: there is none.
    """
    found = one.get(key)
    if not isinstance(found, str) or not 0 < len(found) <= _LONGEST or not found.isprintable():
        raise PullFailed(f"unexpected answer: expected a text of at most {_LONGEST} characters under {key!r}")
    return found


def batches(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield ids, ``AT_ONCE`` together."""
    return (ids[at : at + AT_ONCE] for at in range(0, len(ids), AT_ONCE))


# --- moments as backends' filters take them ---


def rfc3339(moment_ns: int) -> str:
    """Return a moment, Unix ns, as RFC 3339 in UTC with milliseconds, rounded down."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=moment_ns // 10**6)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
