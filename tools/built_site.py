"""``python -m tools.built_site dist/site``: checks the built site.

It finds loads from other hosts, dead links, and markup that was not rendered.

Zensical checks the links between pages; this checks the built files: nothing may be fetched from another
host, every local address must exist, and so must the file that the registry's schema URL names. Exit code 1,
with one line for each fault.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from tools.registry_definition import load

_REGISTRY: Final = Path(__file__).parent.parent / "semconv" / "registry"
_LOADS: Final = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
_UNRENDERED: Final = re.compile(r"-+ ?8 ?< ?-+|\[/?bold\]")
"""Source markup that readers must not see: snippets, and terminal markup."""
_ONLY_NAMES: Final = frozenset({"canonical", "alternate", "next", "prev"})
"""Kinds of ``<link>`` that a browser does not fetch."""


class _Loaded(HTMLParser):
    """Collects the addresses that a page makes a browser fetch, its links, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.linked: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "a" and given.get("href"):
            self.linked.append(given["href"])
        address = given.get(_LOADS.get(tag, ""), "")
        if address and given.get("rel") not in _ONLY_NAMES:
            self.fetched.append(address)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def faults(site: Path) -> Iterator[str]:
    """Yield the faults of a built site, one sentence each."""
    pages = sorted(site.rglob("*.html"))
    if not pages:
        yield f"{site} has no pages"
        return
    schema = load(_REGISTRY).schema_path
    if not (site / schema).is_file():
        yield f"{site} misses {schema}, which the schema URL names"
    for page in pages:
        parser = _Loaded()
        parser.feed(page.read_text(encoding="utf-8"))
        name = page.relative_to(site)
        yield from (f"{name} fetches {address}" for address in parser.fetched if _is_foreign(address))
        yield from (f"{name} shows {markup}" for markup in _UNRENDERED.findall("".join(parser.text)))
        local = (address for address in (*parser.fetched, *parser.linked) if not _is_foreign(address))
        if page.name != "404.html":  # served for any address, so its own are absolute
            yield from (f"{name} misses {each}" for each in local if not _is_there(page, each))


def _is_foreign(address: str) -> bool:
    return bool(urlsplit(address).netloc)


def _is_there(page: Path, address: str) -> bool:
    place = urlsplit(address)
    if place.scheme or not place.path:  # mail addresses, data, and headings of the page itself
        return True
    target = page.parent / unquote(place.path)
    return target.is_file() or (target / "index.html").is_file()


def main() -> int:
    """Check the folder named on the command line."""
    found = list(faults(Path(sys.argv[1])))
    print("\n".join(found) or "the site fetches nothing from elsewhere and misses nothing")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
