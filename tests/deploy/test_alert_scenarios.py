"""The scenarios of ``benchmarks/alerting/alert_stories.py`` against the shipped rules, run by promtool."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks.alerting.alert_scenarios import (
    SLACK,
    TWO_WINDOWS,
    Heard,
    counters,
    outcome,
    points,
    shortened,
    used,
    written,
)
from benchmarks.alerting.alert_stories import (
    END,
    PAGE,
    STORIES,
    TICK_S,
    TICKET,
    Story,
    Trouble,
    playings,
)
from tests.backends.debian import insist_on_debian
from tests.deploy.test_prometheus_rules import ask
from tools.monitoring.alert_rules import SHIPPED, rule_file

STEP: Final = f"{TICK_S}s"
AGENTS: Final = {PAGE, TICKET}
"""The alerts that the scenarios test."""

Question = dict[str, Any]


def series(stories: Sequence[Story], begin: int) -> list[dict[str, str]]:
    """Simulate scenarios; return each series' value at every tick in promtool's format."""
    found: dict[str, list[str]] = {}
    playing = playings(stories, begin)
    for tick in range(begin, END):
        for one in playing:
            one.step()
            for kept in counters(one):
                for point in used(points(one, kept)):
                    values = found.setdefault(written(kept.metric, point), [])
                    values += ["_"] * (tick - begin - len(values))
                    values.append(f"{point.value:g}")
    return [{"series": name, "values": " ".join(values)} for name, values in found.items()]


def rules() -> dict[str, Any]:
    """Return the shipped rules of the tested alerts."""
    groups = rule_file()["groups"]
    for group in groups:
        group["rules"] = [rule for rule in group["rules"] if rule.get("alert", PAGE) in AGENTS]
    return {"groups": groups}


def firing(alert: str, service: str, begin: int, end: int, agent: str = ".*") -> str:
    """Return a query, for tick ``end``, for the time since ``begin`` in which an alert fired."""
    which = f'alertname="{alert}", alertstate="firing", service="{service}", agent=~"{agent}"'
    return f"group(count_over_time(ALERTS{{{which}}}[{(end - begin) * TICK_S}s]))"


def asked(story: Story, expr: str, tick: int, *, fires: bool) -> Question:
    """Return a promtool query with the expected answer."""
    at = f"{(tick + story.past) * TICK_S}s"
    return {"expr": expr, "eval_time": at, "exp_samples": [{"labels": "{}", "value": 1}] if fires else []}


def questions(story: Story) -> Iterator[Question]:
    """Yield the expectations of a scenario: each problem raises its alert, and nothing else does."""
    for trouble in story.troubles:
        end = min(trouble.end, END - 1)
        service = story.name + trouble.service
        told = firing(trouble.alert, service, trouble.begin, end, trouble.agent)
        yield asked(story, told, end, fires=True)
    for service in story.services:
        for alert in AGENTS:
            for begin, end in quiet(story, service, alert):
                yield asked(story, firing(alert, service, begin, end), end, fires=False)


def quiet(story: Story, service: str, alert: str) -> Iterator[tuple[int, int]]:
    """Yield the intervals in which an alert of a service must not fire."""
    begin = 0
    for trouble in story.troubles:
        if story.name + trouble.service == service and trouble.alert in {alert, PAGE}:
            if trouble.begin > begin:
                yield begin, trouble.begin
            begin = trouble.end + TWO_WINDOWS + SLACK
    if begin < END - 1:
        yield begin, END - 1


def cases() -> Iterator[dict[str, Any]]:
    """Yield promtool's test cases; scenarios that need the same past share one."""
    for past in sorted({story.past for story in STORIES}):
        stories = [story for story in STORIES if story.past == past]
        yield {
            "interval": STEP,
            "input_series": series(stories, -past),
            "promql_expr_test": [one for story in stories for one in questions(story)],
        }


def test_each_trouble_raises_its_alert_while_it_lasts_and_no_other(tmp_path: Path) -> None:
    promtool = insist_on_debian("promtool")
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules()))
    # JSON is YAML too, and written a hundred times as fast.
    played = {"rule_files": ["rules.yaml"], "evaluation_interval": STEP, "tests": list(cases())}
    (tmp_path / "test.yaml").write_text(json.dumps(played))
    ask(promtool, "test", "rules", str(tmp_path / "test.yaml"))


def test_there_are_twenty_stories_and_each_has_a_name_of_its_own() -> None:
    services = [service for story in STORIES for service in story.services]
    assert len(STORIES) >= 20
    assert len(set(services)) == len(services)


def test_compressed_time_shortens_every_window_alike() -> None:
    short = shortened()
    assert (short.recent, short.now, short.usual) == (20, 5, 3360)
    assert SHIPPED.recent / short.recent == SHIPPED.usual / short.usual == TICK_S


def heard(tick: int, alert: str = PAGE, agent: str = "calculator", *, fires: bool = True) -> Heard:
    return Heard(tick=tick, alert=alert, service="step up", agent=agent, fires=fires)


def test_what_was_told_is_judged_by_who_it_names_and_when() -> None:
    (story,) = (one for one in STORIES if one.name == "step up")
    (trouble,) = story.troubles
    assert isinstance(trouble, Trouble)
    right = [heard(trouble.begin + 7), heard(trouble.end + 5, fires=False)]
    found = outcome(story, right)
    assert (found.false, found.missed, found.late, found.told_after, found.quiet_after) == (
        0,
        0,
        0,
        (7,),
        (5,),
    )
    assert outcome(story, []).missed == 1
    assert outcome(story, right[:1]).late == 1
    assert outcome(story, [*right, heard(trouble.end + 20)]).false == 1
    assert outcome(story, [*right, heard(trouble.begin + 9, agent="planner")]).false == 1
    assert outcome(story, [*right, heard(trouble.begin + 9)]).false == 1, "told again"
    assert outcome(story, [*right, heard(trouble.begin + 9, TICKET)]).false == 0, "beside a page"
