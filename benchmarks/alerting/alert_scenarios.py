"""``python -m benchmarks.alerting.alert_scenarios``: shipped alerts in a real Prometheus and Alertmanager.

Plays all ``alert_stories`` at once, three minutes per second: every window of the rules is shortened equally.
The preceding week is written into Prometheus's storage beforehand, and its own tool evaluates the recording
rules over it; then 15 hours are played live in five minutes, with a scrape each second, and the messages of
Alertmanager are compared with the expected ones. ``--write`` renews the table in docs/alerts.md.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path
from typing import Any, Final

import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from analyzer.telemetry.metric import Metric, Point
from analyzer.telemetry.verdict_counters import Counter
from benchmarks.alerting.alert_stories import (
    BEGIN,
    END,
    HOUR,
    PAGE,
    SETTLE_S,
    STORIES,
    TICK_S,
    TICKET,
    Playing,
    Story,
    Trouble,
    playings,
)
from tests.backends.debian import INSTALL, DebianName, debian_binary
from tests.backends.prometheus import DATA, start_alertmanager, start_prometheus
from tests.backends.supervise import HOST, free_ports
from tests.deploy.pager import Pager, pager
from tools.monitoring.alert_rules import SHIPPED, Durations, rule_file

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
PAGE_OF_DOCS: Final = Path(__file__).parents[2] / "docs" / "alerts.md"
MARKS: Final = ("<!-- scenarios: begin -->", "<!-- scenarios: end -->")
PAST_EVERY: Final = 5
"""Ticks between two historical samples."""
AHEAD_S: Final = 60
"""Time limit in seconds for everything to be running."""
TWO_WINDOWS: Final = (SHIPPED.now + SHIPPED.keep_firing) // TICK_S
"""Ticks within which an alert must end after its cause."""
SLACK: Final = 3
"""Ticks for a scrape, an evaluation and Alertmanager's grouping, one second each."""


def shortened() -> Durations:
    """Return the shipped durations in seconds of compressed time."""
    short = {one.name: max(1, round(getattr(SHIPPED, one.name) / TICK_S)) for one in fields(SHIPPED)}
    return Durations(**short)


def counters(playing: Playing) -> Iterator[Counter]:
    """Yield the counters of a story's process."""
    tallies = playing.tallies
    for moving in (tallies.tasks, tallies.failures):
        yield from (moving.counted, moving.withdrawn)


def points(playing: Playing, kept: Counter) -> Iterator[Point]:
    """Yield a counter's series with their current values."""
    return kept.points(playing.tick * TICK_S, SETTLE_S)


@dataclass(eq=False, slots=True)
class Shown(Collector):
    """The counters of all stories on one page."""

    playing: Sequence[Playing]
    lock: threading.Lock

    def collect(self) -> Iterator[Family]:
        """Yield every family, as of now."""
        with self.lock:
            for several in zip(*map(counters, self.playing), strict=True):
                shown = (points(one, kept) for one, kept in zip(self.playing, several, strict=True))
                yield several[0].metric.family(chain.from_iterable(shown))


@contextmanager
def served(shown: Shown) -> Iterator[str]:
    """Serve the page until the block ends, and yield its address."""
    registry = CollectorRegistry()
    registry.register(shown)

    class Door(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(generate_latest(registry))

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    with ThreadingHTTPServer((HOST, free_ports(1)[0]), Door) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"{HOST}:{server.server_port}"
        finally:
            server.shutdown()


def past(playing: Sequence[Playing], begin_s: float) -> Iterator[str]:
    """Play all stories up to tick 0, and yield their samples as OpenMetrics has them.

    Args:
        playing: stories at their beginning.
        begin_s: when tick 0 is, in seconds since 1970.
    """
    samples: dict[str, list[str]] = {}
    while playing[0].tick < 0:
        for one in playing:
            one.step()
        if playing[0].tick % PAST_EVERY:
            continue
        for one in playing:
            for kept in counters(one):
                lines = samples.setdefault(kept.metric.name, [])
                at = begin_s + one.tick - 1
                now = used(points(one, kept))
                lines.extend(f"{written(kept.metric, point)} {point.value} {at}" for point in now)
    for name, lines in samples.items():
        yield f"# TYPE {name} counter"
        yield from lines
    yield "# EOF"


def used(shown: Iterable[Point]) -> Iterator[Point]:
    """Drop the failure modes that no story has."""
    return (point for point in shown if point.labels[2:] in {(), ("loop",)})


def written(metric: Metric, point: Point) -> str:
    """Return a series' name as Prometheus writes it."""
    labels = ",".join(f'{name}="{value}"' for name, value in zip(metric.labels, point.labels, strict=True))
    return f"{metric.sample_name}{{{labels}}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """One message of Alertmanager."""

    tick: int
    alert: str
    service: str
    agent: str
    fires: bool


def play(folder: Path, stories: tuple[Story, ...] = STORIES) -> list[Heard]:
    """Play the stories, and return Alertmanager's messages during the live part."""
    prometheus, promtool = insist("prometheus"), insist("promtool")
    playing, rules = playings(stories), folder / "rules.yaml"
    rules.write_text(yaml.safe_dump(rule_file(shortened())))
    begin_s = (int(time.time()) + AHEAD_S) // HOUR * HOUR
    (folder / "past.txt").write_text("\n".join(past(playing, begin_s)) + "\n")
    create = [str(promtool), "tsdb", "create-blocks-from"]
    run([*create, "openmetrics", str(folder / "past.txt"), str(folder / DATA)])
    flags = ("--query.lookback-delta=2s",)
    with start_prometheus(prometheus, folder, {"global": {}}, *flags) as running:
        span = [f"--start={begin_s + BEGIN + HOUR}", f"--end={begin_s}", f"--eval-interval={HOUR}s"]
        where = [f"--url=http://{HOST}:{running.port}", f"--output-dir={folder / DATA}"]
        run([*create, "rules", *span, *where, str(rules)])
    lock = threading.Lock()
    with ExitStack() as stack:
        told = stack.enter_context(pager())
        address = stack.enter_context(start_alertmanager(insist("alertmanager"), folder, routes(told)))
        target = stack.enter_context(served(Shown(playing, lock)))
        config = scraping(rules, target, address)
        stack.enter_context(start_prometheus(prometheus, folder, config, *flags))
        if time.time() > begin_s:
            raise SystemExit(f"this machine needs more than {AHEAD_S} s until all runs: try again")
        return list(_listen(playing, lock, told, begin_s))


def _listen(playing: Sequence[Playing], lock: threading.Lock, told: Pager, begin_s: float) -> Iterator[Heard]:
    heard = 0
    for tick in range(END):
        time.sleep(max(0.0, begin_s + tick - time.time()))
        with lock:
            for one in playing:
                one.step()
        for message in told.messages[heard:]:
            heard += 1
            for alert in message.alerts:
                labels = alert["labels"]
                yield Heard(
                    tick=tick,
                    alert=labels["alertname"],
                    service=labels.get("service", ""),
                    agent=labels.get("agent", ""),
                    fires=alert["status"] == "firing",
                )


def routes(told: Pager) -> dict[str, Any]:
    """Return the shipped routes, with shorter waits, no repetition, and our pager as every receiver."""
    config: dict[str, Any] = yaml.safe_load((DEPLOY / "alertmanager/alertmanager.yml").read_text())
    config["route"] |= {"group_wait": "200ms", "group_interval": "1s"}
    for route in (config["route"], *config["route"]["routes"]):
        route["repeat_interval"] = "1h"
    for receiver in config["receivers"]:
        for hook in receiver["webhook_configs"]:
            hook["url"] = told.url(receiver["name"])
    return config


def scraping(rules: Path, target: str, alertmanager: str) -> dict[str, Any]:
    """Return a configuration with one scrape and one evaluation per second."""
    every = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    return {
        "global": every,
        "rule_files": [str(rules)],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
        "scrape_configs": [{"job_name": "blamespan", "static_configs": [{"targets": [target]}]}],
    }


def insist(name: DebianName) -> Path:
    """Return the path of a tool from Debian.

    Raises:
        SystemExit: it is not installed.
    """
    found = debian_binary(name)
    if found is None:
        raise SystemExit(f"no real {name} here; `{INSTALL}` brings it")
    return found


def run(command: Sequence[str]) -> None:
    """Run a tool, and show its output only if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stdout}{done.stderr}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of one story."""

    story: Story
    pages: int
    tickets: int
    resolved: int
    false: int
    """False alerts: when nothing was wrong, about another agent, or repeated."""
    missed: int
    late: int
    """Alerts that did not end within two windows."""
    told_after: tuple[int, ...]
    """Ticks from the beginning of a trouble to its alert."""
    quiet_after: tuple[int, ...]
    """Ticks from its end to the end of the alert."""


def outcome(story: Story, heard: Sequence[Heard]) -> Outcome:
    """Compare the alerts about a story with the expected ones."""
    own = [one for one in heard if one.service in story.services and one.alert in {PAGE, TICKET}]
    fired = [one for one in own if one.fires]
    first = {trouble: _first(story, trouble, own) for trouble in story.troubles}
    quiet = {trouble: _quiet(story, trouble, own) for trouble, told in first.items() if told is not None}
    right = {told for told in first.values() if told is not None}
    beside = [one for one in fired if one not in right]
    return Outcome(
        story=story,
        pages=sum(one.alert == PAGE for one in fired),
        tickets=sum(one.alert == TICKET for one in fired),
        resolved=sum(not one.fires for one in own),
        false=sum(not _is_excused(story, one, right) for one in beside),
        missed=sum(told is None for told in first.values()),
        late=sum(
            trouble.end + TWO_WINDOWS + SLACK < END
            and (ended is None or ended - trouble.end > TWO_WINDOWS + SLACK)
            for trouble, ended in quiet.items()
        ),
        told_after=tuple(told.tick - trouble.begin for trouble, told in first.items() if told),
        quiet_after=tuple(ended - trouble.end for trouble, ended in quiet.items() if ended is not None),
    )


def _is_about(story: Story, trouble: Trouble, one: Heard) -> bool:
    return (one.service, one.agent) == (story.name + trouble.service, trouble.agent)


def _first(story: Story, trouble: Trouble, own: Sequence[Heard]) -> Heard | None:
    told = (one for one in own if one.fires and one.alert == trouble.alert and _is_about(story, trouble, one))
    return next((one for one in told if trouble.begin <= one.tick <= trouble.end), None)


def _quiet(story: Story, trouble: Trouble, own: Sequence[Heard]) -> int | None:
    """Return when the last alert of a trouble ended."""
    about = [one for one in own if _is_about(story, trouble, one) and one.tick >= trouble.begin]
    ended = [one.tick for one in about if not one.fires and one.alert == trouble.alert]
    return next((tick for tick in ended if tick >= trouble.end), None)


def _is_excused(story: Story, one: Heard, right: set[Heard]) -> bool:
    """Return whether it is the one ticket that accompanies a page."""
    during = (t for t in story.troubles if _is_about(story, t, one) and t.begin <= one.tick <= t.end)
    return one.alert == TICKET and any(trouble.alert == PAGE for trouble in during) and one not in right


def rows(outcomes: Iterable[Outcome]) -> Iterator[str]:
    """Yield the rows of the table."""
    heads = "scenario", "what happens", "pages", "tickets", "resolved", "false", "missed", "told after"
    yield f"| {' | '.join(heads)} | quiet after |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|---:|"
    for one in outcomes:
        shown = (one.pages, one.tickets, one.resolved, one.false, one.missed)
        minutes = [", ".join(f"{3 * t} min" for t in ticks) for ticks in (one.told_after, one.quiet_after)]
        cells = [one.story.name, one.story.what, *map(str, shown), *minutes]
        yield f"| {' | '.join(cells)} |"


def main() -> int:
    """Play, print the table, and exit with 0 only if all alerts were as expected."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.alerting.alert_scenarios", description=__doc__
    )
    parser.add_argument("--write", action="store_true", help="renew the table in docs/alerts.md")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        heard = play(Path(folder))
    outcomes = [outcome(story, heard) for story in STORIES]
    wrong = [sum(getattr(one, name) for one in outcomes) for name in ("false", "missed", "late")]
    summary = (
        f"{len(outcomes)} scenarios: {wrong[0]} false alerts, {wrong[1]} missed,"
        f" {wrong[2]} not ended within two windows ({(TWO_WINDOWS + SLACK) * 3} minutes)."
    )
    told = [*rows(outcomes), "", summary]
    sys.stdout.write("\n".join(told) + "\n")
    if chosen.write:
        before, rest = PAGE_OF_DOCS.read_text(encoding="utf-8").split(MARKS[0])
        after = rest.split(MARKS[1])[1]
        text = "\n".join([before + MARKS[0], *told, MARKS[1] + after])
        PAGE_OF_DOCS.write_text(text, encoding="utf-8")
    return int(any(wrong))


if __name__ == "__main__":
    sys.exit(main())
