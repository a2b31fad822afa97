# ruff: noqa: E501 - lines of generated pages cannot be wrapped
"""Generator of docs/frameworks from the runs of real frameworks: ``python -m tools.frameworks.framework_pages``.

Code and versions come from the run scripts in ``tests/frameworks``, the table of what blamespan sees from
``semconv/dialects/support.toml``, and the findings from ``blamespan lint`` on the recording.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from collector_processor.lint import Finding, lint
from semconv.dialects.support import ASPECTS, Level, Support, support_table
from tests.frameworks.catalogue import FOLDER as SUITE
from tests.frameworks.catalogue import RunScript, catalogue
from tests.frameworks.languages import PYTHON
from tests.shown import shown
from tools.frameworks.framework_code import function_of_kit, instrumenting_program, telemetry
from tools.frameworks.framework_notes import PAGES, FrameworkPage
from tools.frameworks.program_code import program_of

FOLDER: Final = Path(__file__).parents[2] / "docs" / "frameworks"
_MADE: Final = "<!-- Made by python -m tools.frameworks.framework_pages; do not edit. -->\n"
_OWN: Final = re.compile(r"s own(?=$|,)")
_MARKS: Final = {Level.YES: "●", Level.PARTLY: "◐", Level.NO: "○"}
_OF_THE_SUITE: Final = frozenset(
    {
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        "CLAUDE_CODE_MAX_RETRIES",
        "CREWAI_DISABLE_TELEMETRY",
        "CREWAI_TRACING_ENABLED",
        "LANGFUSE_PUBLIC_KEY",
        "LANGFUSE_SECRET_KEY",
        "LANGSMITH_API_KEY",
        "LITELLM_LOCAL_MODEL_COST_MAP",
        "MLFLOW_DISABLE_TELEMETRY",
    }
)
"""Variables that only keep a run off the network, or stand for your own keys."""


def pages() -> dict[str, str]:
    """Return every page by its file's name, the index first."""
    runs = catalogue()
    return {"index.md": _index(runs), **{page.file_name: "".join(_page(page, runs)) for page in PAGES}}


def _index(runs: dict[str, RunScript]) -> str:
    rows = [
        f"| [{page.title}]({page.file_name}) | {_instrumentations(_runs_of(page, runs))} |\n"
        for page in PAGES
    ]
    return (
        f"# Frameworks\n\n{_MADE}\n"
        "Find your framework below. Its page has the lines that instrument it, taken from scripts that our tests"
        " really ran and recorded, and says what blamespan sees of it and which settings to turn on. blamespan may"
        " also read frameworks that are not listed here: see [what each framework records](../support.md). For plain"
        " Python, see [instrument your own agents](../instrument.md).\n\n"
        "| framework | instrumentation in our tests |\n|---|---|\n" + "".join(rows)
    )


def _instrumentations(runs: list[RunScript]) -> str:
    return "; ".join(map(_instrumentation, runs))


def _instrumentation(run: RunScript) -> str:
    return _OWN.sub("s own instrumentation", run.instrumentation)


def _runs_of(page: FrameworkPage, runs: dict[str, RunScript]) -> list[RunScript]:
    mine = [run for run in runs.values() if run.framework == page.framework]
    order = {name: place for place, name in enumerate(page.first)}
    return sorted(mine, key=lambda run: (order.get(run.name, len(order)), run.name))


def _page(page: FrameworkPage, runs: dict[str, RunScript]) -> Iterator[str]:
    yield f"# {page.title}\n\n{_MADE}\n{page.advice}\n\n"
    mine = _runs_of(page, runs)
    if any(run.language == PYTHON for run in mine):
        yield _PYTHON_SET_UP
    yield (
        "Set the endpoint, blamespan's OTLP/HTTP port:\n\n"
        "```sh\nexport OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318\n```\n"
    )
    for run in mine:
        yield from _instrumented(page, run)
    yield from _seen(page)


_PYTHON_SET_UP: Final = (
    "Each program below is complete, but for your own: `answer()` of your module `my_agents` runs your agents and"
    " returns what they say. Save what sets up OpenTelemetry's exporter as `telemetry.py`:\n\n"
    f"```python\n{telemetry()}```\n\n"
)


def _instrumented(page: FrameworkPage, run: RunScript) -> Iterator[str]:
    yield f"\n## With {_instrumentation(run)}\n\n"
    if run.language != PYTHON:
        yield from program_of(run)
        yield from _measured(run)
        return
    yield f"```sh\n{_install(run)}\n"
    yield from (f"export {name}={value}\n" for name, value in run.env.items() if name not in _OF_THE_SUITE)
    code = instrumenting_program(run.script)
    yield f"```\n\n```python\n{code}```\n"
    for module, function in page.from_kit:
        if f"from {module} import" in code:
            yield f"\n`{function}` is:\n\n```python\n{function_of_kit(module, function)}```\n"
    yield from _measured(run)


def _install(run: RunScript) -> str:
    wanted = (SUITE / "requirements" / f"{run.requirements or run.name}.in").read_text().split()
    pins = dict(_pins(run))
    exact = [f"'{name}=={pins[_bare(name)]}'" for name in map(_without_bound, wanted)]
    return " \\\n    ".join(["pip install", *exact])


def _without_bound(requirement: str) -> str:
    for sign in ("==", ">=", "<"):
        requirement = requirement.partition(sign)[0]
    return requirement


def _bare(name: str) -> str:
    return name.partition("[")[0]


def _pins(run: RunScript) -> Iterator[tuple[str, str]]:
    for line in run.requirements_file.read_text().splitlines():
        name, sign, version = line.partition("==")
        if sign and not line.startswith(("#", " ")):
            yield _bare(name.strip()), version.split()[0]


def _measured(run: RunScript) -> Iterator[str]:
    there = [variant for variant in run.variants if run.fixture(variant).exists()]
    yield f"\nRecorded as {', '.join(there)}: see [recorded runs](../support.md#recorded-runs).\n"
    for what, why in {**run.hidden, **run.unnamed, **run.lacks, **run.unread}.items():
        yield f"\n- `{what}`: {' '.join(why.split())}"
    yield "\n" if any((run.hidden, run.unnamed, run.lacks, run.unread)) else ""
    findings = _findings(run)
    if not findings:
        yield "\n`blamespan lint` reports nothing missing.\n"
        return
    yield "\n`blamespan lint` reports:\n\n"
    yield from (_advised(finding) for finding in findings)


def _findings(run: RunScript) -> tuple[Finding, ...]:
    fixture = run.fixture("normal")
    return lint(shown(fixture)[0].run) if fixture.exists() else ()


def _advised(finding: Finding) -> str:
    mend = "; ".join(f"`{line.strip()}`" for line in finding.mend)
    return f"- **{finding.rule}** ({finding.severity}): {finding.what}" + (
        f". Fix: {mend}\n" if mend else "\n"
    )


def _seen(page: FrameworkPage) -> Iterator[str]:
    supports = [each for rows in support_table().values() for each in rows if each.framework in page.supports]
    yield "\n## What blamespan sees\n\n● recorded · ◐ recorded in part, or only with a setting · ○ not recorded\n\n"
    yield f"| recorded by | {' | '.join(ASPECTS)} |\n|---|{'---|' * len(ASPECTS)}\n"
    for support in supports:
        yield f"| {support.instrumentation} | {' | '.join(_MARKS[coverage.level] for _, coverage in support.aspects())} |\n"
    yield "".join(_notes(support) for support in supports)


def _notes(support: Support) -> str:
    told = "".join(f"- *{name}*: {coverage.note}\n" for name, coverage in support.aspects() if coverage.note)
    more = ", ".join(f"`{switch}`" for switch in support.switches)
    return f"\n### {support.instrumentation}\n\n{told}" + (f"\nRecords more with {more}.\n" if more else "")


def write() -> None:
    """Write every page; ``python -m tools.support_page`` does so too, since both show the declarations."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
