"""pytest plugin: a failing test of an agent system says which agent broke it. Not pure.

Off unless ``--blamespan`` is given or ``blamespan = true`` stands in the configuration. Each test is one run:
the spans that the process's own OpenTelemetry SDK ends while the test runs, and the test's result as its
outcome. Nothing here makes a test fail: what cannot be judged is left out, and said at the end. What a
verdict needs is imported when the first test fails.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from analyzer.cli.pytest_repeats import CALLS, MARKER, REPETITION, SECTION, Repeats

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

    from analyzer.cli.pytest_calls import CallRecorder, Taken
    from collector_processor.core.runs import Run
    from semconv.model import Attribution, Trajectory

_NAME: Final = "blamespan"
_MOST_SPANS: Final = 50_000
"""Spans of one test that are kept."""
_LONGEST_NAME: Final = 150
_MOST_EVIDENCE: Final = 3
_NOTE: Final = "blamespan_note"
"""Attribute of a report that could not be judged; xdist passes it on."""
_SILENT: Final = "no span of an agent"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, whether the plugin is on or not."""
    group = parser.getgroup(_NAME, "blamespan: which agent broke a failing test")
    group.addoption("--blamespan", action="store_true", help="Say of failing tests which agent broke them.")
    group.addoption(
        "--blamespan-save",
        metavar="DIR",
        type=Path,
        help="Write each test's run to DIR as OTLP/JSON, without secrets; implies --blamespan.",
    )
    group.addoption(
        "--blamespan-calls",
        action="store_true",
        help="See programs without OpenTelemetry and subprocesses too: calls to model providers, and OTLP,"
        " pass through a recorder on this machine; implies --blamespan.",
    )
    group.addoption(
        "--blamespan-budget",
        metavar="CALLS",
        type=int,
        help="Repeat no marked test once the repeated tests have made this many model calls.",
    )
    parser.addini(_NAME, "Say of failing tests which agent broke them.", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Start recording, if the plugin is on and the SDK is installed."""
    config.addinivalue_line("markers", MARKER)
    folder: Path | None = config.getoption("--blamespan-save")
    calls: bool = config.getoption("--blamespan-calls")
    if not (config.getoption("--blamespan") or folder or calls or config.getini(_NAME)):
        return
    budget: int | None = config.getoption("--blamespan-budget")
    if budget is not None and budget < 1:
        raise pytest.UsageError("--blamespan-budget: expected a number of model calls, at least 1")
    config.pluginmanager.register(Repeats(budget), "blamespan-repeats")
    try:
        recorder = _Recorder()
    except ImportError:
        config.issue_config_time_warning(
            pytest.PytestConfigWarning(
                "--blamespan: opentelemetry-sdk is not installed: nothing is recorded"
            ),
            2,
        )
        return
    starts_workers = bool(config.getoption("numprocesses", None)) and not hasattr(config, "workerinput")
    recorded_calls = _call_recorder() if calls and not starts_workers else None
    plugin = _Plugin(recorder, folder, recorded_calls, counts_calls=budget is not None)
    config.pluginmanager.register(plugin, "blamespan-verdicts")


def _call_recorder() -> CallRecorder:
    from analyzer.cli.pytest_calls import CallRecorder  # noqa: PLC0415 - the receivers

    return CallRecorder()


class _Recorder:
    """Keeps the spans that end, of every provider of the process."""

    def __init__(self) -> None:
        """Watch the providers that exist and those that tests or programs will make.

        Raises:
            ImportError: the SDK is not installed.
        """
        from opentelemetry import trace  # noqa: PLC0415 - only if the plugin is on
        from opentelemetry.sdk.trace import SpanProcessor, TracerProvider  # noqa: PLC0415 - as above

        self._lock: Final = threading.Lock()
        self._spans: list[ReadableSpan] = []
        recorder = self

        class Processor(SpanProcessor):
            def on_end(self, span: ReadableSpan) -> None:
                recorder.keep(span)

        begin = TracerProvider.__init__

        @functools.wraps(begin)
        def begin_watched(provider: TracerProvider, *args: Any, **kwargs: Any) -> None:
            begin(provider, *args, **kwargs)
            provider.add_span_processor(Processor())

        setattr(TracerProvider, "__init__", begin_watched)  # noqa: B010 - mypy allows no other way
        existing = trace.get_tracer_provider()
        if isinstance(existing, TracerProvider):
            existing.add_span_processor(Processor())

    def keep(self, span: ReadableSpan) -> None:
        """Keep a span that has ended."""
        with self._lock:
            if len(self._spans) < _MOST_SPANS:
                self._spans.append(span)

    def take(self) -> Sequence[ReadableSpan]:
        """Return what has ended since the last time."""
        with self._lock:
            found, self._spans = self._spans, []
        return found


class _Plugin:
    """Judges the tests of one session."""

    def __init__(
        self, recorder: _Recorder, folder: Path | None, calls: CallRecorder | None, *, counts_calls: bool
    ) -> None:
        self._recorder: Final = recorder
        self._folder: Final = folder
        self._calls: Final = calls
        self._counts_calls: Final = counts_calls
        self._silent = 0
        self._troubles: Final[list[str]] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None]:
        """Forget the spans of fixtures before the test: they are no part of its run."""
        self._recorder.take()
        if self._calls is not None:
            with suppress(Exception):  # an error of the recorder must not fail the test
                self._calls.take()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add to a failing test's report who broke it."""
        report = yield
        if call.when == "call":
            try:
                self._judge(item, report)
            except Exception as error:  # noqa: BLE001 - a test must not fail for its report's sake
                _note(report, f"{item.nodeid}: {type(error).__name__}: {error}"[:300])
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count what could not be judged; the workers of xdist have no summary of their own."""
        note = getattr(report, _NOTE, None)
        if note == _SILENT:
            self._silent += 1
        elif note:
            self._troubles.append(note)

    def _judge(self, item: pytest.Item, report: pytest.TestReport) -> None:
        spans = self._recorder.take()
        counts_calls = self._counts_calls and REPETITION in item.stash
        if not report.failed and self._folder is None and not counts_calls:
            return
        runs = _runs(spans, self._calls.take() if self._calls is not None else None, item.name)
        if counts_calls:
            _count_calls(item, report, runs)
        if report.failed and not runs:
            _note(report, _SILENT)
        if self._folder is not None and runs:
            _save(self._folder, f"{item.nodeid}{item.stash.get(REPETITION, '')}", runs)
        for trajectory, verdict in _judged(runs) if report.failed and runs else ():
            report.sections.append((SECTION, "\n".join(_lines(trajectory, verdict))))
            item.user_properties += _properties(verdict)

    def pytest_unconfigure(self) -> None:
        """End the recorder of calls."""
        if self._calls is not None:
            self._calls.stop()

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say what could not be judged."""
        if self._silent:
            terminalreporter.write_line(
                f"blamespan: {self._silent} failing test{'s'[: self._silent > 1]} ended no span of an agent:"
                " docs/instrument.md has the lines that instrument a program"
            )
        for trouble in self._troubles[:3]:
            terminalreporter.write_line(f"blamespan: {trouble}")


def _note(report: pytest.TestReport, why: str) -> None:
    setattr(report, _NOTE, why)


def _count_calls(item: pytest.Item, report: pytest.TestReport, runs: Sequence[Run]) -> None:
    from semconv.model import StepKind  # noqa: PLC0415 - a test is repeated within a budget

    made = sum(step.kind is StepKind.LLM for run in runs for step in run.trajectory.steps)
    item.config.stash[CALLS] = item.config.stash.get(CALLS, 0) + made
    if not made:
        _note(report, f"{item.nodeid}: no model call was seen, and --blamespan-budget counts none")


def _runs(spans: Sequence[ReadableSpan], taken: Taken | None, test: str) -> tuple[Run, ...]:
    if not spans and (taken is None or not (taken.traces or taken.calls)):
        return ()
    # A test has failed: only now is any of this needed.
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans  # noqa: PLC0415

    from analyzer.cli.run_report import runs_of  # noqa: PLC0415 - as above

    own = encode_spans(spans).SerializeToString()
    if taken is None:
        return runs_of((own,), (), (), test)
    return runs_of((own, *taken.traces), taken.logs, taken.calls, test)


def _judged(runs: Sequence[Run]) -> list[tuple[Trajectory, Attribution]]:
    """Return the verdicts on a failed test's runs; on a thread, for a test may have a loop.

    A test ends at what fails, so its last run failed. Earlier ones count if their steps show a failure.
    """
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - a test failed

    from analyzer.analyses.composition import open_analyst  # noqa: PLC0415 - as above
    from analyzer.cli.judged_runs import judge, settings_here  # noqa: PLC0415 - as above
    from analyzer.cli.recorded_runs import RecordedRun  # noqa: PLC0415 - as above
    from semconv.model import Blame  # noqa: PLC0415 - as above

    settings = settings_here(None, None, None, None)
    recorded = [RecordedRun(trajectory=one.trajectory, trace=one.trace) for one in runs]
    with ThreadPoolExecutor(1) as pool:
        last = pool.submit(judge, recorded[-1:], open_analyst(settings), settings, failed=True).result()
        before = pool.submit(judge, recorded[:-1], open_analyst(settings), settings).result()
    judged = [*(one for one in before if isinstance(one.attribution.verdict, Blame)), *last]
    return [(one.trajectory, one.attribution) for one in judged]


def _lines(trajectory: Trajectory, verdict: Attribution) -> Iterator[str]:
    """Yield a verdict in plain lines, without invisible characters."""
    from analyzer.inquiry.verdict import to_json  # noqa: PLC0415 - a test failed
    from analyzer.inquiry.visible import visible  # noqa: PLC0415 - as above

    document = to_json(verdict, trajectory)
    if document["agent"] is None:
        yield visible(f"{document['status']}: {document['reason']}")
        return
    yield visible(
        f"{document['agent']}, step {document['step']} ({document['confidence']:.0%}): {document['reason']}"
    )
    if document["fix"]:
        yield visible(f"Suggested change: {document['fix']}")
    for one in document["evidence"][:_MOST_EVIDENCE]:
        yield visible(f"Step {one['step']}: “{' '.join(one['quote'].split())}”")
    for value in document["lineage"]:
        if value["origin"] in {"nowhere", "changed"}:
            yield visible(f"{value['value']}: from {value['origin']}, step {value['step']}")


def _properties(verdict: Attribution) -> list[tuple[str, object]]:
    """Return the verdict as properties of JUnit XML."""
    from semconv.model import Blame  # noqa: PLC0415 - a test failed

    found = verdict.verdict
    if not isinstance(found, Blame):
        return [("blamespan.status", verdict.status.value)]
    return [
        ("blamespan.agent", found.agent),
        ("blamespan.step", found.step),
        ("blamespan.confidence", found.confidence),
        ("blamespan.reason", found.reason),
    ]


def _save(folder: Path, test: str, runs: Sequence[Run]) -> None:
    from analyzer.cli.judged_runs import settings_here  # noqa: PLC0415 - the plugin saves
    from analyzer.cli.run_report import save_runs  # noqa: PLC0415 - as above

    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^\w.-]+", "_", test)[-_LONGEST_NAME:]
    save_runs(folder / f"{name}.json", runs, settings_here(None, None, None, None), mode="wb")
