"""Replies kept by content: the same question to the same model is asked once, over all runs of a command.

The key is a digest of everything the reply depends on: the model's name, where it
is reached, and the whole prompt with its options. Only replies are kept, never
failures, so that what failed is asked again; an interrupted benchmark goes on
where it stopped.

A place where nothing can be kept is an error before anything is asked. A disk that
fills up afterwards is a warning: what is left is asked and answered all the same.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from analyzer.errors import AnalyzerError, UnreadableInput
from analyzer.method import Model, Prompt, Reply
from analyzer.through import Through

_FILE: Final = "replies.sqlite3"
_VERSION: Final = 1
_WAIT_S: Final = 30.0
"""For another command that writes at the same moment."""
_DESCRIPTIVE: Final = ("truncated", "coverage")
"""Fields of a prompt that say something of it and are not sent."""
_TABLE: Final = """\
CREATE TABLE IF NOT EXISTS replies (
  key BLOB PRIMARY KEY, model TEXT NOT NULL, text TEXT NOT NULL,
  input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, cost_usd REAL
) WITHOUT ROWID"""


Warn = Callable[[str], None]


class CacheUnusable(AnalyzerError):  # noqa: N818 - a statement reads better where it is raised
    """Replies cannot be kept where they were to be; the message says where and why."""


@dataclass(slots=True, kw_only=True)
class ReplyCache:
    """The kept replies, in one SQLite file; ``open_cache`` opens it."""

    database: sqlite3.Connection
    warn: Warn
    is_kept: bool = True
    """Whether replies are still kept; not once the disk has refused one."""
    found: int = 0
    """How many questions it has answered."""
    missed: int = 0

    def get(self, key: bytes) -> Reply | None:
        """Return the reply that is kept under a key."""
        row = None
        if self.is_kept:
            with self._gives_up():
                row = self.database.execute(
                    "SELECT text, input_tokens, output_tokens, cost_usd FROM replies WHERE key = ?", (key,)
                ).fetchone()
        self.found += row is not None
        self.missed += row is None
        if row is None:
            return None
        return Reply(text=row[0], input_tokens=row[1], output_tokens=row[2], cost_usd=row[3])

    def put(self, key: bytes, model: str, reply: Reply) -> None:
        """Keep a reply, at once and for good; once the disk refuses, say so and keep no more."""
        if not self.is_kept:
            return
        text = reply.text.encode(errors="replace").decode()  # half a surrogate pair is no text to SQLite
        with self._gives_up(), self.database:
            self.database.execute(
                "INSERT OR REPLACE INTO replies VALUES (?, ?, ?, ?, ?, ?)",
                (key, model, text, reply.input_tokens, reply.output_tokens, reply.cost_usd),
            )

    @contextmanager
    def _gives_up(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            self.is_kept = False
            self.warn(f"replies are no longer kept, and those that were are not read: {error}")


@contextmanager
def open_cache(directory: Path, warn: Warn) -> Iterator[ReplyCache]:
    """Open the cache in a directory, which is made if it is not there; close it afterwards.

    Args:
        directory: where.
        warn: told, once, if replies can no longer be kept.

    Raises:
        UnreadableInput: there is a file of that name, and it is no cache.
        CacheUnusable: nothing can be kept there.
    """
    path = directory / _FILE
    try:
        directory.mkdir(parents=True, exist_ok=True)
        database = sqlite3.connect(path, timeout=_WAIT_S)
    except (OSError, sqlite3.OperationalError) as error:
        raise _unusable(directory, error) from error
    with closing(database):
        _prepare(database, path)
        yield ReplyCache(database=database, warn=warn)


def _prepare(database: sqlite3.Connection, path: Path) -> None:
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        with database:  # what cannot be written shows here, not at the first reply
            database.execute(_TABLE)
            database.execute("DELETE FROM replies WHERE key = x''")
    except sqlite3.OperationalError as error:
        raise _unusable(path.parent, error) from error
    except sqlite3.DatabaseError as error:
        raise UnreadableInput(f"{path}: expected a cache of replies, or no such file: {error}") from error


def _unusable(directory: Path, error: Exception) -> CacheUnusable:
    shown = error.strerror if isinstance(error, OSError) else error
    return CacheUnusable(f"{directory}: replies cannot be kept there: {shown}; --cache DIR, or --no-cache")


def cached(model: Model, cache: ReplyCache, place: str = "") -> Model:
    """Return the model, which is asked only what it has not answered before.

    A kept reply says what it cost then; of a call that fails nothing is kept.

    Args:
        model: who is asked.
        cache: what was answered.
        place: where the model is reached: two servers may give one name to different models.
    """

    async def ask(prompt: Prompt) -> Reply:
        key = _key(model.name, place, prompt)
        kept = cache.get(key)
        if kept is not None:
            return kept
        reply = await model.complete(prompt)
        cache.put(key, model.name, reply)
        return reply

    return Through(model=model, ask=ask)


def place_of_models(environment: Mapping[str, str]) -> str:
    """Return the base URLs that the environment sends model calls to."""
    ending = ("_API_BASE", "_BASE_URL")
    return " ".join(f"{k}={v}" for k, v in sorted(environment.items()) if k.endswith(ending) and v)


def _key(model: str, place: str, prompt: Prompt) -> bytes:
    sent = {name: value for name, value in asdict(prompt).items() if name not in _DESCRIPTIVE}
    canonical = json.dumps([_VERSION, model, place, sent], sort_keys=True, default=repr)
    return hashlib.sha256(canonical.encode(errors="surrogatepass")).digest()
