"""Cache of model replies by content: repeated prompts to the same model are sent once.

The key is a digest of everything the reply depends on: the model's name, its base URL,
and the whole prompt with its options. Only replies are cached, never failures, so that
failed calls are repeated; an interrupted benchmark resumes where it stopped.

An unusable directory is an error before the first call. A disk that fills up later
causes a warning: the remaining calls are made without the cache.
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

from analyzer.inquiry.errors import AnalyzerError, UnreadableInput
from analyzer.inquiry.method import DelegatingModel, Model, Prompt, Reply

_FILE: Final = "replies.sqlite3"
_VERSION: Final = 1
_WAIT_S: Final = 30.0
"""Seconds to wait for another command's write."""
_DESCRIPTIVE: Final = ("truncated", "coverage")
"""Fields of a prompt that describe it and are not sent."""
_TABLE: Final = """\
CREATE TABLE IF NOT EXISTS replies (
  key BLOB PRIMARY KEY, model TEXT NOT NULL, text TEXT NOT NULL,
  input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, cost_usd REAL
) WITHOUT ROWID"""


Warn = Callable[[str], None]


class CacheUnusable(AnalyzerError):  # noqa: N818 - a statement reads better at the ``raise``
    """The cache directory is not usable; the message says which and why."""


@dataclass(slots=True, kw_only=True)
class ReplyCache:
    """Cached replies in one SQLite file; ``open_cache`` opens it."""

    database: sqlite3.Connection
    warn: Warn
    is_kept: bool = True
    """Whether replies are still cached; false after a failed write."""
    found: int = 0
    """Number of prompts answered from the cache."""
    missed: int = 0

    def get(self, key: bytes) -> Reply | None:
        """Return the reply cached under a key; ``None`` if there is none."""
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
        """Store a reply durably; after a failed write, warn once and stop storing."""
        if not self.is_kept:
            return
        text = reply.text.encode(errors="replace").decode()  # SQLite rejects lone surrogates
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
            self.warn(f"the reply cache is off: replies are no longer kept or reused: {error}")


@contextmanager
def open_cache(directory: Path, warn: Warn) -> Iterator[ReplyCache]:
    """Open the cache in a directory, created if missing; close it afterwards.

    Args:
        directory: the cache's directory.
        warn: called once if replies can no longer be stored.

    Raises:
        UnreadableInput: the file exists and is not a cache.
        CacheUnusable: the directory cannot be written.
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
        with database:  # a test write, so that errors show here and not at the first reply
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
    """Return a model that answers repeated prompts from the cache.

    A cached reply reports its original cost; failures are not cached.

    Args:
        model: the model behind the cache.
        cache: the cached replies.
        place: the model's base URL: two servers may use the same name for different models.
    """

    async def ask(prompt: Prompt) -> Reply:
        key = _key(model.name, place, prompt)
        kept = cache.get(key)
        if kept is not None:
            return kept
        reply = await model.complete(prompt)
        cache.put(key, model.name, reply)
        return reply

    return DelegatingModel(model=model, ask=ask)


def place_of_models(environment: Mapping[str, str]) -> str:
    """Return the base URLs for model calls set in the environment."""
    ending = ("_API_BASE", "_BASE_URL")
    return " ".join(f"{k}={v}" for k, v in sorted(environment.items()) if k.endswith(ending) and v)


def _key(model: str, place: str, prompt: Prompt) -> bytes:
    sent = {name: value for name, value in asdict(prompt).items() if name not in _DESCRIPTIVE}
    canonical = json.dumps([_VERSION, model, place, sent], sort_keys=True, default=repr)
    return hashlib.sha256(canonical.encode(errors="surrogatepass")).digest()
