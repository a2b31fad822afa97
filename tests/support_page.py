# ruff: noqa: E501 - the lines of a Markdown table are as long as they are
"""``python -m tests.support_page``: writes docs/support.md from the dialects' declarations and the recordings.

The pages in docs/frameworks, which show the same by framework, are written along.

The declarations stand beside the dialects (``Support``); the second table is measured on the
recorded runs in ``tests/frameworks``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from semconv.dialects import DIALECTS
from semconv.dialects.support import ASPECTS, Level, Support
from tests.docs import framework_pages
from tests.frameworks.catalogue import RunScript, catalogue
from tests.frameworks.truth import differences, expected_steps, read_truth
from tests.shown import shown

PAGE: Final = Path(__file__).parent.parent / "docs" / "support.md"
_MARKS: Final = {Level.YES: "●", Level.PARTLY: "◐", Level.NO: "○"}
_HEAD: Final = """# What each framework tells

Made by `python -m tests.support_page` from the declarations beside the dialects (`semconv/dialects/`) and from the
recorded runs in `tests/frameworks/fixtures`; do not edit. `tests/contract/test_support.py` holds the declarations
against every recording.

● all of it · ◐ some of it, or only with a setting · ○ nothing; the notes below say where and why.

*agent*: whose each step is. *text*: what went into model calls and came out. *tools*: calls with arguments and
results. *handoff*: who handed over to whom. *task*: what was asked and answered. *errors*: what failed, in words.
*recorded*: spans of a real run were seen; *source*: only the code that writes them.

For one trace, `blamespan lint FILE` says what it lacks and the line that mends it.
"""
_MEASURED: Final = """
## Recorded runs

Runs of real frameworks against a scripted model server, whose log says what really happened (`tests/frameworks`).
*right*: in how many of the variants the steps come out as they happened, agents and kinds in order. What the spans
cannot show, or name, or we do not read yet, is said beside each; a test fails when such a reason is no longer true.

| framework | written by | variants | right | what is missing, and why |
|---|---|---|---|---|
"""


def page() -> str:
    """Return the page."""
    return "".join([_HEAD, *_dialects(), _MEASURED, *_recordings()])


def _dialects() -> Iterator[str]:
    for dialect in DIALECTS:
        yield f"\n## `{dialect.name}`\n\n| framework | written by | {' | '.join(ASPECTS)} | seen |\n"
        yield f"|---|---|{'---|' * len(ASPECTS)}---|\n"
        for support in dialect.support:
            marks = " | ".join(_MARKS[gift.level] for _, gift in support.gifts())
            yield f"| {support.framework} | {support.instrumentation} | {marks} | {support.source} |\n"
        for support in dialect.support:
            yield from _notes(support)


def _notes(support: Support) -> Iterator[str]:
    told = [f"{name}: {gift.note}" for name, gift in support.gifts() if gift.note]
    yield f"\n**{support.framework}** — {'; '.join(told)}.\n" if told else ""
    if support.switches:
        yield f"Tells more with {', '.join(f'`{switch}`' for switch in support.switches)}.\n"


def _recordings() -> Iterator[str]:
    for run in catalogue().values():
        there = [variant for variant in run.variants if run.fixture(variant).exists()]
        if not there:
            continue
        right = [variant for variant in there if _is_right(run, variant)]
        misses = "; ".join(_reasons(run))
        yield f"| {run.framework} | {run.instrumentation} | {', '.join(there)} | {len(right)} of {len(there)} | {misses or '-'} |\n"


def _is_right(run: RunScript, variant: str) -> bool:
    runs = shown(run.fixture(variant))
    expected = expected_steps(run, read_truth(run.truth(variant)))
    return len(runs) == 1 and not differences(expected, runs[0].run.trajectory)


def _reasons(run: RunScript) -> Iterator[str]:
    """Yield what these spans cannot show, or we not read, each with its reason."""
    for title, reasons in (
        ("", run.hidden),
        ("whose ", run.unnamed),
        ("", run.lacks),
        ("unread ", run.unread),
    ):
        for what, why in reasons.items():
            yield f"{title}`{what}`: {' '.join(why.split())}".replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    framework_pages.write()
