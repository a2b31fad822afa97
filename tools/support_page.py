# ruff: noqa: E501 - lines of Markdown tables cannot be wrapped
"""Generator of docs/support.md from ``semconv/dialects/support.toml`` and the recordings: ``python -m tools.support_page``.

Also writes the pages in docs/frameworks, which show the same by framework. The last table is measured on the recorded
runs in ``tests/frameworks``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from semconv.dialects.support import ASPECTS, Level, Support, support_table
from tests.frameworks.catalogue import RunScript, catalogue
from tests.frameworks.truth import differences, expected_steps, read_truth
from tests.shown import shown
from tools.frameworks import framework_pages

PAGE: Final = Path(__file__).parent.parent / "docs" / "support.md"
_MARKS: Final = {Level.YES: "●", Level.PARTLY: "◐", Level.NO: "○"}
_HEAD: Final = """# What each framework records

Look up your framework and instrumentation to see which parts of a run blamespan can read from their spans. To check one
of your own traces, run `blamespan lint FILE`: it says what the trace lacks, and the line of code that adds it.
Some frameworks send no spans, so there is nothing to read: Letta (0.34) is one.

● recorded · ◐ recorded in part, or only with a setting · ○ not recorded. The notes below each table say where and why.

| column | what is recorded |
|---|---|
| *agent* | which agent took each step |
| *text* | inputs and outputs of model calls |
| *tools* | tool calls with arguments and results |
| *handoff* | which agent handed over to which |
| *task* | the task and the final answer |
| *errors* | failures, with their messages |
| *seen* | *recorded*: we have spans of a real run; *source*: we have only read the code that writes them |

Made by `python -m tools.support_page` from `semconv/dialects/support.toml` and the recorded runs in
`tests/frameworks/fixtures`; do not edit. `tests/contract/test_support.py` checks the declarations against every recording.
"""
_MEASURED: Final = """
## Recorded runs

We ran real frameworks against a scripted model server, whose log contains the true course of each run (`tests/frameworks`).
The column *right* counts the variants in which blamespan reads the true steps, with agents and kinds in order. The last column
lists what the spans do not contain and what blamespan does not read yet, with the reason; a test fails when such a reason no
longer holds. `asking` is a model call that only requests a tool, and `crash.outcome` the outcome in the variant `crash`.
The [verdicts on these runs](framework-results.md) are measured too.

| framework | instrumentation | variants | right | what is missing, and why |
|---|---|---|---|---|
"""


def page() -> str:
    """Return the page."""
    return "".join([_HEAD, *_dialects(), _MEASURED, *_recordings()])


def _dialects() -> Iterator[str]:
    for dialect, supports in support_table().items():
        yield f"\n## `{dialect}`\n\n| framework | instrumentation | {' | '.join(ASPECTS)} | seen |\n"
        yield f"|---|---|{'---|' * len(ASPECTS)}---|\n"
        for support in supports:
            marks = " | ".join(_MARKS[coverage.level] for _, coverage in support.aspects())
            yield f"| {support.framework} | {support.instrumentation} | {marks} | {support.source} |\n"
        for support in supports:
            yield from _notes(support)


def _notes(support: Support) -> Iterator[str]:
    told = [f"{name}: {coverage.note}" for name, coverage in support.aspects() if coverage.note]
    yield f"\n**{support.framework}** — {'; '.join(told)}.\n" if told else ""
    if support.switches:
        yield f"Records more with {', '.join(f'`{switch}`' for switch in support.switches)}.\n"


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
    """Yield the parts of a run that are not recorded or not read, each with its reason."""
    for title, reasons in (
        ("", run.hidden),
        ("agent of ", run.unnamed),
        ("", run.lacks),
        ("not read yet: ", run.unread),
    ):
        for what, why in reasons.items():
            yield f"{title}`{what}`: {' '.join(why.split())}".replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    framework_pages.write()
