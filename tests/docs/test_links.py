"""Every relative link on a page or in the README has a target. External addresses are not requested."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import pytest

from tools.built_site import faults
from tools.markdown_blocks import DOCS, ROOT, anchors, pages, targets

OUTSIDE: Final = [ROOT / name for name in ("README.md", "CHANGELOG.md", "SECURITY.md")]


def missing(page: Path) -> list[str]:
    """Return the link targets that are missing in the repository."""
    return [target for target in targets(page) if not urlsplit(target).scheme and not is_there(page, target)]


def is_there(page: Path, target: str) -> bool:
    place = urlsplit(target)
    file = (page.parent / unquote(place.path)).resolve() if place.path else page
    if not file.exists():
        return False
    return not place.fragment or file.suffix != ".md" or place.fragment in anchors(file)


@pytest.mark.parametrize("page", [*OUTSIDE, *pages()], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_pictures_are_there(page: Path) -> None:
    assert missing(page) == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_points_to_nothing_that_the_site_does_not_have(page: Path) -> None:
    local = [urlsplit(target).path for target in targets(page) if not urlsplit(target).scheme]
    outside = [path for path in local if not (page.parent / path).resolve().is_relative_to(DOCS)]
    assert outside == []


def test_the_sites_page_on_security_has_the_links_of_the_repositorys() -> None:
    """The site includes SECURITY.md, but finds the pages that it links to in another place."""
    assert links_by_label(DOCS / "security.md") == links_by_label(ROOT / "SECURITY.md") != {}


def links_by_label(page: Path) -> dict[str, tuple[Path, str]]:
    """Return the file and the heading that each label of the page's reference links stands for."""
    found = re.findall(r"^\[([^\]]+)\]: ([^#\s]+)(#\S+)?$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {label: ((page.parent / path).resolve(), heading) for label, path, heading in found}


def test_a_missing_file_a_missing_heading_and_a_missing_picture_are_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One, two\n\n[a](no.md) [b](#three) [c](#one-two) ![d](no.svg) [e](page.md#one-two)\n")
    assert missing(page) == ["no.md", "#three", "no.svg"]


def test_what_is_fetched_from_elsewhere_or_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "here.css").touch()
    (tmp_path / "index.html").write_text(
        '<link rel="stylesheet" href="here.css"><link rel="canonical" href="https://example.org/">'
        '<script src="https://cdn.example.org/a.js"></script><img src="//example.org/b.png">'
        '<p><b>--</b>8 &lt; -- "SECURITY.md"</p>'
        '<a href="https://example.org">out</a><a href="#top">up</a><a href="gone.html#x">gone</a>'
    )
    assert list(faults(tmp_path)) == [
        f"{tmp_path} misses schemas/0.1.0, which the schema URL names",
        "index.html fetches https://cdn.example.org/a.js",
        "index.html fetches //example.org/b.png",
        "index.html shows --8 < --",
        "index.html misses gone.html#x",
    ]


def test_a_site_that_was_not_built_is_a_fault(tmp_path: Path) -> None:
    assert list(faults(tmp_path)) == [f"{tmp_path} has no pages"]
