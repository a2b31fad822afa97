"""pytest plugin: a test marked with ``blamespan(repeat=…, at_least=…)`` runs several times. Not pure.

An agent's program is right on most days and wrong on some: one run of its test says little. The marked test
runs ``repeat`` times, fixtures included, and passes if at least the share ``at_least`` of these runs passes.
The runs' results never stop it early, which would bias the share; ``--blamespan-budget`` does, after so many
model calls of the repeated tests, and the runs that were made decide. The report says how far chance may have
decided: the interval of the share, and how often a program that passes exactly as often as asked would fail.
An error of a fixture, and a skip, end the repetition; they hide no earlier failure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Final

import pytest

MARKER: Final = "blamespan(repeat, at_least=1.0): with --blamespan, run the test `repeat` times; it passes if the share `at_least` of the runs passes"  # noqa: E501 - one line of `pytest --markers`
SECTION: Final = "blamespan: who broke it"
"""Title of the section that names the agent."""
REPETITION: Final = pytest.StashKey[str]()
"""Number of a marked test's run, from 1, as ``-1``: part of the name of its file."""
CALLS: Final = pytest.StashKey[int]()
"""Model calls that the repeated tests of this process have made so far; in the configuration's stash."""
MOST: Final = 1_000
"""Most runs of one test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a marker asks for."""

    repeat: int
    """Runs of the test, 1 to ``MOST``."""
    at_least: float
    """Share of them that must pass, 0 to 1."""
    stopped: str = ""
    """Why the test was not repeated as often as its marker says; empty if it was."""

    def is_met(self, passed: int) -> bool:
        """Tell whether so many runs are enough."""
        return passed >= math.ceil(self.at_least * self.repeat - 1e-9)


def wanted_of(item: pytest.Item) -> Wanted | None:
    """Return what the nearest marker of a test asks for; ``None`` without one.

    Raises:
        pytest.UsageError: the marker has other arguments, or values out of bounds.
    """
    marker = item.get_closest_marker("blamespan")
    if marker is None:
        return None
    repeat, at_least = marker.kwargs.get("repeat", 0), marker.kwargs.get("at_least", 1.0)
    is_known = not marker.args and marker.kwargs.keys() <= {"repeat", "at_least"}
    is_count = isinstance(repeat, int) and 1 <= repeat <= MOST
    is_share = isinstance(at_least, int | float) and 0 <= at_least <= 1
    if not (is_known and is_count and is_share):
        raise pytest.UsageError(
            f"{item.nodeid}: expected blamespan(repeat=1 to {MOST}, at_least=0 to 1), got {marker}"
        )
    return Wanted(repeat=repeat, at_least=at_least)


class Repeats:
    """Runs marked tests repeatedly."""

    def __init__(self, budget: int | None) -> None:
        """Create it; ``budget`` is the number of model calls after which no test is repeated."""
        self._budget: Final = budget

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Refuse wrong markers before the first test runs."""
        for item in items:
            wanted_of(item)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Run a marked test as often as it says, and report it once."""
        wanted = wanted_of(item)
        if wanted is None:
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in _reports(item, nextitem, wanted, self._budget):
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True


def _reports(
    item: pytest.Item, nextitem: pytest.Item | None, wanted: Wanted, budget: int | None
) -> Sequence[pytest.TestReport]:
    """Run a test; return its reports, of which that of the call stands for all runs."""
    from _pytest.runner import runtestprotocol  # noqa: PLC0415 - as all plugins that run tests again

    calls: list[pytest.TestReport] = []
    own, first_failure = [*item.user_properties], list[tuple[str, object]]()
    for number in range(1, wanted.repeat + 1):
        item.user_properties[:], item.stash[REPETITION] = own, f"-{number}"
        if type(item) is pytest.Function and isinstance(item.parent, pytest.Class):
            vars(item).pop("_instance", None)  # each run has an object of its class for itself
            vars(item).pop("_obj", None)
        # A copy of the item stands for the next test, so that only this test's own fixtures are torn down.
        reports = runtestprotocol(
            item, log=False, nextitem=nextitem if number == wanted.repeat else copy(item)
        )
        ended = {report.when: report for report in reports}
        call = ended.get("call")
        if call is not None and not call.skipped:
            calls.append(call)
            if call.failed and not first_failure:
                first_failure = [*item.user_properties]
        if call is None or call.skipped or not ended["teardown"].passed:
            if number < wanted.repeat:
                item.session._setupstate.teardown_exact(nextitem)  # noqa: SLF001 - the wider fixtures end here
            return _ended_early(reports, calls, wanted)
        if budget is not None and item.config.stash.get(CALLS, 0) >= budget and number < wanted.repeat:
            item.session._setupstate.teardown_exact(nextitem)  # noqa: SLF001 - as above
            wanted = replace(wanted, repeat=number, stopped=_stopped(number, wanted, budget))
            break
    ended["teardown"].user_properties = first_failure or own  # where JUnit XML reads them
    return [ended["setup"], combined(calls, wanted), ended["teardown"]]


def _stopped(number: int, wanted: Wanted, budget: int) -> str:
    return f"{number} of {wanted.repeat} runs made: the budget of {budget} model calls is used up"


def _ended_early(
    reports: Sequence[pytest.TestReport], calls: Sequence[pytest.TestReport], wanted: Wanted
) -> Sequence[pytest.TestReport]:
    """Return the reports of the run that ended the repetition; a skip hides no failure of the runs before."""
    if not any(call.failed for call in calls):
        return reports
    others = [report for report in reports if report.when != "call" and not report.skipped]
    before = [report for report in others if report.when == "setup"]
    return [*before, combined(calls, wanted), *(report for report in others if report.when != "setup")]


def combined(calls: Sequence[pytest.TestReport], wanted: Wanted) -> pytest.TestReport:
    """Return the report of a test's first failing run, or of its last one, changed to stand for all runs."""
    failing = [report for report in calls if report.failed]
    report = failing[0] if failing else calls[-1]
    passed = len(calls) - len(failing)
    if wanted.is_met(passed):
        report.outcome, report.longrepr = "passed", None
    report.duration = sum(call.duration for call in calls)
    report.sections.append(("blamespan: repeated", "\n".join(_lines(len(calls), failing, wanted))))
    return report


def _lines(n: int, failing: Sequence[pytest.TestReport], wanted: Wanted) -> list[str]:
    from analyzer.inquiry.intervals import binomial_at_most, wilson  # noqa: PLC0415 - a test was repeated

    passed = n - len(failing)
    share = wilson(passed, n)
    interval = f"{share.low:.0%} to {share.high:.0%}, 95 % interval"
    lines = [wanted.stopped] if wanted.stopped else []
    lines += [f"{passed} of {n} runs passed ({interval}); at least {wanted.at_least:.0%} were asked for"]
    if not wanted.is_met(passed) and wanted.at_least < 1:
        chance = binomial_at_most(passed, n, wanted.at_least)
        lines.append(
            f"if each run passes {wanted.at_least:.0%} of the time, {chance:.1%} of such tests fail so"
        )
    blamed = Counter(_blamed(report) for report in failing)
    lines += [f"{count} of {len(failing)} failures: {who}" for who, count in blamed.most_common(5)]
    return lines


def _blamed(report: pytest.TestReport) -> str:
    """Return the agent and step that the section of a failing run names."""
    verdict = next((text for title, text in report.sections if title == SECTION), "")
    return verdict.partition(" (")[0] if verdict else "no span of an agent"


__all__ = ["CALLS", "MARKER", "REPETITION", "SECTION", "Repeats"]
