"""Replies kept by content: the same question to the same model is asked once, over all runs of a command.

The key is a digest of everything the reply depends on: the model's name, where it
is reached, and the whole prompt with its options. Only replies are kept, never
failures, so that what failed is asked again; an interrupted benchmark goes on
where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from analyzer.errors import UnreadableInput
from analyzer.method import Model, Prompt, Reply

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


@dataclass(slots=True, kw_only=True)
class ReplyCache:
    """The kept replies, in one SQLite file; ``open_cache`` opens it."""

    database: sqlite3.Connection
    found: int = 0
    """How many questions it has answered."""
    missed: int = 0

    def get(self, key: bytes) -> Reply | None:
        """Return the reply that is kept under a key."""
        row = self.database.execute(
            "SELECT text, input_tokens, output_tokens, cost_usd FROM replies WHERE key = ?", (key,)
        ).fetchone()
        self.found += row is not None
        self.missed += row is None
        if row is None:
            return None
        return Reply(text=row[0], input_tokens=row[1], output_tokens=row[2], cost_usd=row[3])

    def put(self, key: bytes, model: str, reply: Reply) -> None:
        """Keep a reply, at once and for good."""
        text = reply.text.encode(errors="replace").decode()  # half a surrogate pair is no text to SQLite
        with self.database:
            self.database.execute(
                "INSERT OR REPLACE INTO replies VALUES (?, ?, ?, ?, ?, ?)",
                (key, model, text, reply.input_tokens, reply.output_tokens, reply.cost_usd),
            )


@contextmanager
def open_cache(directory: Path) -> Iterator[ReplyCache]:
    """Open the cache in a directory, which is made if it is not there; close it afterwards.

    Raises:
        UnreadableInput: there is a file of that name, and it is no cache.
        OSError: the directory cannot be made.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / _FILE
    database = sqlite3.connect(path, timeout=_WAIT_S)
    try:
        _prepare(database, path)
        yield ReplyCache(database=database)
    finally:
        database.close()


def _prepare(database: sqlite3.Connection, path: Path) -> None:
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute(_TABLE)
    except sqlite3.DatabaseError as error:
        raise UnreadableInput(f"{path}: expected a cache of replies, or no such file: {error}") from error


@dataclass(slots=True, kw_only=True)
class CachedModel:
    """Wraps a model: asks it only what it has not answered before."""

    model: Model
    cache: ReplyCache
    place: str = ""
    """Where the model is reached: two servers may give one name to different models."""

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    @property
    def context_tokens(self) -> int:
        """The model's context."""
        return self.model.context_tokens

    def price(self, prompt: Prompt) -> float | None:
        """The most the call may cost in USD; ``None`` if the price is not known."""
        return self.model.price(prompt)

    async def complete(self, prompt: Prompt) -> Reply:
        """Return the kept reply, with what it cost then, or ask the model and keep what it says.

        Raises:
            ModelError: the model failed; nothing is kept.
        """
        key = _key(self.model.name, self.place, prompt)
        kept = self.cache.get(key)
        if kept is not None:
            return kept
        reply = await self.model.complete(prompt)
        self.cache.put(key, self.model.name, reply)
        return reply


def place_of_models(environment: Mapping[str, str]) -> str:
    """Return the base URLs that the environment sends model calls to."""
    ending = ("_API_BASE", "_BASE_URL")
    return " ".join(f"{k}={v}" for k, v in sorted(environment.items()) if k.endswith(ending) and v)


def _key(model: str, place: str, prompt: Prompt) -> bytes:
    sent = {name: value for name, value in asdict(prompt).items() if name not in _DESCRIPTIVE}
    canonical = json.dumps([_VERSION, model, place, sent], sort_keys=True, default=repr)
    return hashlib.sha256(canonical.encode(errors="surrogatepass")).digest()
