"""Dialects' declarations agree with the recorded runs and with the documentation page."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzer.recordings.read_files import read_recording
from collector_processor.otlp import Signal
from collector_processor.rebuild.decode import decode
from semconv.dialects import DIALECTS, Dialect, Surroundings
from semconv.dialects.support import Level, Support, support_table
from tests.contract.recorded import needs_shared
from tests.shown import CAPTURES, Shown, captures, declared, fixtures, shown
from tools.support_page import PAGE, page

RECORDED = {path.name: path for path in (*fixtures(), *captures())}


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_every_dialect_declares_what_it_tells(dialect: Dialect) -> None:
    assert support_table()[dialect.name]
    for support in support_table()[dialect.name]:
        assert support.source in {"recorded", "source"}
        for name, coverage in support.aspects():
            assert coverage.note or coverage.level is Level.YES, (
                f"{support.framework}: {name} needs its reason"
            )
            assert "\n" not in coverage.note


def test_only_dialects_are_declared() -> None:
    assert list(support_table()) == [dialect.name for dialect in DIALECTS]


def _broken(each: Shown, dialect: str) -> list[str]:
    """Return the claims that contradict a recording.

    Entries with the same dialect and scope may be of several frameworks; the one that fits is compared.
    """
    named = [support for name, support in declared() if name == dialect and each.name in support.recordings]
    scoped = [support for name, support in declared() if name == dialect and each.written_by(name, support)]
    found = [_unfit(each, support) for support in named or scoped]
    return min(found, key=len, default=[])


def _unfit(each: Shown, support: Support) -> list[str]:
    return [
        f"{each.name}: {support.framework}: {name} declared {coverage.level}, shown by {share:.0%}"
        for name, coverage in support.aspects()
        if (share := each.shares[name]) is not None
        and ((coverage.level is Level.YES and share < 1) or (coverage.level is Level.NO and share == 1))
    ]


@pytest.mark.parametrize("name", RECORDED)
def test_recordings_bear_the_declarations_out(name: str) -> None:
    broken = [_broken(each, dialect.name) for each in shown(RECORDED[name]) for dialect in DIALECTS]
    assert not any(broken), broken


@needs_shared
def test_every_recording_that_a_declaration_names_is_there() -> None:
    there = {path.name.partition(".")[0] for path in RECORDED.values()}
    assert CAPTURES.is_dir()
    assert {name for _, support in declared() for name in support.recordings} <= there


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "stale: run `python -m tools.support_page`"


@pytest.mark.parametrize("path", list(fixtures()), ids=lambda path: path.name)
def test_a_dialect_reads_no_span_without_its_marks(path: Path) -> None:
    bodies = read_recording(path.read_bytes()).bodies(Signal.TRACES)
    spans = [span for body in bodies for span in decode(body).spans]
    surroundings = Surroundings(spans)
    marked = [dialect for dialect in DIALECTS if dialect.scopes or dialect.keys]
    for span in surroundings.walked:
        for dialect in marked:
            has_mark = span.scope.name.startswith(dialect.scopes) or not dialect.keys.isdisjoint(
                span.attributes
            )
            assert has_mark or dialect.read(span, surroundings) is None, dialect.name
