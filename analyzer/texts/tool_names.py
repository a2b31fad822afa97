"""What a tool does, by the words of its name: it looks something up, or it changes something. Pure.

Names of functions are English in nearly all programs. A name that tells nothing is neither.
"""

from __future__ import annotations

import functools
import re
from typing import Final

_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_LOOKS_UP: Final = frozenset(
    """
    get fetch look lookup list search find read check query show describe view status history retrieve
    load count track inspect monitor report select details detail info calculate compute estimate
    convert validate verify compare analyze analyse summarize ask browse scan rate rates lookups queries
    results overview
    """.split()  # noqa: SIM905 - readable in this form
)
_CHANGES: Final = frozenset(
    """
    book send create delete refund update pay cancel transfer order write post publish schedule submit
    reserve add remove set insert place charge issue move rename upload deploy restart assign approve
    reject close open register invite notify email mail ship buy sell purchase subscribe unsubscribe
    edit save commit merge apply grant revoke reset enable disable escalate reply file reschedule return
    exchange replace renew extend start stop pause resume lock unlock block confirm modify change
    push install uninstall scale rollback migrate destroy upgrade drain cordon evict revert tag isolate
    quarantine terminate kill purge flush truncate drop patch rotate cherry release
    archive transcode print sign import sync restore copy pin unpin mute ban rebuild put
    """.split()  # noqa: SIM905 - readable in this form
)


@functools.lru_cache(maxsize=1024)
def words_in(name: str) -> tuple[str, ...]:
    """Return the words of a tool's name, in lower case."""
    return tuple(word.lower() for word in _WORD.findall(name))


_NOUNS: Final = frozenset(
    [
        "file",
        "order",
        "post",
        "place",
        "issue",
        "exchange",
        "return",
        "mail",
        "email",
        "block",
        "set",
        "transfer",
        "charge",
        "ship",
        "book",
        "register",
        "notify",
        "change",
    ]
)
"""Verbs that are nouns in names such as ``file_search`` and ``order_status``."""


_NAMED: Final = frozenset({"release", "tag", "patch"})
"""Verbs that are nouns as often: they count as the first word of a name, or as the last."""
_EVENTS: Final = frozenset("refund deploy restart rollback restore sync import payment".split())  # noqa: SIM905 - as above
_OF_EVENTS: Final = frozenset("lookup lookups status history details overview results info".split())  # noqa: SIM905 - as above
"""What an event has: ``refund_status`` is read, though ``update_status`` is not."""
_OF_NOUNS: Final = frozenset(
    "notes name names date dates log info number page calendar version versions".split()  # noqa: SIM905 - readable
)
"""What such a noun has: ``release_notes``."""


@functools.lru_cache(maxsize=1024)
def deed_of(tool: str) -> str:
    """Return the verb of a tool that changes something outside the run (``book``); empty if it reads."""
    every = words_in(tool)
    words = [word for place, word in enumerate(every) if not _is_noun(every, place)]
    first = next((word for word in words if word in _LOOKS_UP or word in _CHANGES), "")
    if first not in _CHANGES or (first in _EVENTS and every[0] == first and every[-1] in _OF_EVENTS):
        return ""
    is_noun = first in _NOUNS and (words[0] != first or not _LOOKS_UP.isdisjoint(words) or "details" in words)
    return "" if is_noun else first


def _is_noun(words: tuple[str, ...], place: int) -> bool:
    """Tell whether a word of a name such as ``release_notes`` is a noun there, though it may be a verb."""
    if words[place] not in _NAMED:
        return False
    following = words[place + 1 : place + 2]
    of_noun = not (_OF_NOUNS | _LOOKS_UP).isdisjoint(following)
    return of_noun or (place > 0 and bool(following))


_PROBES: Final = frozenset(
    "ping probe connect telnet reach reachable health alive dig nslookup resolve".split()  # noqa: SIM905 - readable
)
_RECALLS: Final = re.compile(
    r"memor|recall|remember|notes?(?:_|$)|notiz|souvenir|mémo|nota[st]?(?:_|$)|記憶|メモ|记忆|备忘|기억|메모",
    re.IGNORECASE,
)


def recalls(tool: str) -> bool:
    """Tell whether a tool looks up what was said before: to find nothing there tells nothing of the task."""
    return _RECALLS.search(tool) is not None


def probes(tool: str) -> bool:
    """Tell whether a tool only tries whether something answers: its failure is a result."""
    return not _PROBES.isdisjoint(words_in(tool))


def looks_up(tool: str) -> bool:
    """Tell whether a tool's name says that it only reads."""
    return not deed_of(tool) and not _LOOKS_UP.isdisjoint(words_in(tool))
