"""The check of the built site finds the mistakes that it looks for."""

from __future__ import annotations

from pathlib import Path

from tools.built_site import faults


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
