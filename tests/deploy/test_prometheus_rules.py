"""The shipped alert rules, run by promtool over hours of simulated time."""

from __future__ import annotations

import subprocess
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from analyzer.telemetry.metric_table import METRICS
from tests.backends.debian import insist_on_debian
from tools.monitoring.alert_rules import CHART_FILE, FILE, SHIPPED, Durations, rule_file, write

RULES: Final = rule_file()
MINUTE: Final = "1m"
CALCULATOR: Final = '{service="shop", agent="calculator", mode="loop"}'
RECURRING, SHARE = "BlamespanAgentKeepsFailing", "BlamespanAgentFailureShare"
SUSPECTED = "BlamespanAgentKeepsBeingSuspected"
ONE: Final = {"service": "shop", "agent": "calculator"}


@pytest.fixture(scope="session")
def promtool() -> Path:
    return insist_on_debian("promtool")


Story = dict[str, str]
"""Series with their values per minute, in promtool's notation."""


class Play:
    """Runs one scenario; each checkpoint lists the alerts that fire and their labels."""

    def __init__(self, promtool: Path, folder: Path) -> None:
        self.promtool, self.folder = promtool, folder

    def __call__(self, story: Story, alert: str, moments: dict[str, list[dict[str, str]]]) -> None:
        (severity,) = {rule["labels"]["severity"] for rule in _rules() if rule["alert"] == alert}
        tests = [
            {
                "eval_time": moment,
                "alertname": alert,
                "exp_alerts": [{"exp_labels": {**labels, "severity": severity}} for labels in firing],
            }
            for moment, firing in moments.items()
        ]
        self.run(story, {"alert_rule_test": tests}, without_annotations())

    def run(self, story: Story, tests: dict[str, Any], rules: dict[str, Any]) -> None:
        (self.folder / "rules.yaml").write_text(yaml.safe_dump(rules))
        series = [{"series": name, "values": values} for name, values in story.items()]
        case = {"interval": MINUTE, "input_series": series, **tests}
        test = {"rule_files": ["rules.yaml"], "evaluation_interval": "30s", "tests": [case]}
        (self.folder / "test.yaml").write_text(yaml.safe_dump(test))
        ask(self.promtool, "test", "rules", str(self.folder / "test.yaml"))


@pytest.fixture
def play(promtool: Path, tmp_path: Path) -> Play:
    return Play(promtool, tmp_path)


def ask(tool: Path, *arguments: str) -> str:
    done = subprocess.run([tool, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _rules() -> list[dict[str, Any]]:
    return [rule for group in RULES["groups"] for rule in group["rules"] if "alert" in rule]


def without_annotations() -> dict[str, Any]:
    rules = deepcopy(RULES)
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule.pop("annotations", None)
    return rules


def failures(values: str, labels: str = CALCULATOR, withdrawn: str = "0x999") -> Story:
    name = "blamespan_agent_failures"
    return {f"{name}_total{labels}": values, f"{name}_withdrawn_total{labels}": withdrawn}


def tasks(values: str, labels: str = '{service="shop", agent="calculator"}') -> Story:
    name = "blamespan_agent_tasks"
    return {f"{name}_total{labels}": values, f"{name}_withdrawn_total{labels}": "0x999"}


def test_the_rule_file_is_what_its_template_makes() -> None:
    for file in (FILE, CHART_FILE):
        assert file.read_text(encoding="utf-8") == write(SHIPPED), "run tools.monitoring.alert_rules"


def test_promtool_takes_the_rule_file(promtool: Path) -> None:
    rules = [rule for group in yaml.safe_load(FILE.read_text())["groups"] for rule in group["rules"]]
    assert f"SUCCESS: {len(rules)} rules found" in ask(promtool, "check", "rules", str(FILE))


def test_rules_ask_only_for_metrics_there_are() -> None:
    known = {metric.name for metric in METRICS}
    words = "".join(char if char.isalnum() or char == "_" else " " for char in write()).split()
    asked = {word for word in words if word.startswith("blamespan_") and word != "blamespan_url"}
    bare = {name.removesuffix("_total").removesuffix("_bucket") for name in asked}
    recorded = {rule["record"] for group in RULES["groups"] for rule in group["rules"] if "record" in rule}
    assert {word for word in _series_names() if ":" in word} == recorded
    assert bare
    assert bare <= known


def _series_names() -> set[str]:
    words = "".join(char if char.isalnum() or char in "_:" else " " for char in write()).split()
    return {word.rstrip(":") for word in words if word.startswith("blamespan") and "link" not in word}


@pytest.mark.parametrize("wrong", [0, -5])
def test_durations_that_prometheus_would_misread_are_refused(wrong: int) -> None:
    with pytest.raises(ValueError, match="pending: expected whole seconds"):
        Durations(pending=wrong)


def test_five_failures_of_a_sparse_agent_alert_within_minutes(play: Play) -> None:
    values = "0 0 1 1 2 3 3 4 5 _x0 5x100"
    play(failures(values) | tasks(values), RECURRING, {"8m": [], "12m": [ONE], "14m": [ONE]})


def test_an_alert_has_a_name_a_number_and_a_link(play: Play) -> None:
    expected = {
        "summary": "calculator & co of shop keeps failing",
        "description": "It broke about 5 runs within 1h, over 30% of its own, and some within the last 15m.",
        "link": "http://localhost:8500/runs?status=attributed&service=shop&agent=calculator+%26+co",
    }
    labels = {"service": "shop", "agent": "calculator & co", "severity": "ticket"}
    told = {
        "eval_time": "10m",
        "alertname": RECURRING,
        "exp_alerts": [{"exp_labels": labels, "exp_annotations": expected}],
    }
    values = "0 0 5x100"
    story = failures(values, '{service="shop", agent="calculator & co", mode="loop"}')
    story |= tasks(values, '{service="shop", agent="calculator & co"}')
    play.run(story, {"alert_rule_test": [told]}, RULES)


def test_the_link_begins_with_the_configured_address(play: Play) -> None:
    lost = {"blamespan_items_lost_total{signal='traces'}": "0 3x20"}
    expected = {
        "summary": "acknowledged traces were damaged on blamespan's disk",
        "description": "Look at the disk under BLAMESPAN_DATA_DIR.",
        "link": "https://blame.example/health",
    }
    url = {"blamespan_url": "https://blame.example"}
    labels = {"signal": "traces", "severity": "page"}
    told = {
        "eval_time": "3m",
        "alertname": "BlamespanItemsLost",
        "exp_alerts": [{"exp_labels": labels, "exp_annotations": expected}],
    }
    play.run(lost, {"external_labels": url, "alert_rule_test": [told]}, RULES)


def test_a_series_that_begins_at_six_never_alerts_so_ours_begin_at_zero(play: Play) -> None:
    play(failures("_x3 6x100") | tasks("0 6x100"), RECURRING, {"30m": [], "60m": []})


def test_failures_of_several_modes_add_up(play: Play) -> None:
    other = failures("0 0 3x100", CALCULATOR.replace("loop", "bad_plan"))
    play(failures("0 0 2x100") | other | tasks("0 0 9x100"), RECURRING, {"10m": [ONE]})


def test_four_failures_do_not_alert(play: Play) -> None:
    play(failures("0 0 4x100") | tasks("0 0 4x100"), RECURRING, {"4m": [], "10m": [], "30m": []})


def test_it_ends_half_an_hour_after_the_last_failure_and_a_regression_alerts(play: Play) -> None:
    story = failures("0 0 5x118 10x100") | tasks("0+1x220")  # the second five come two hours after the first
    moments = {"8m": [ONE], "25m": [ONE], "35m": [], "60m": [], "119m": [], "125m": [], "130m": []}
    play(story, RECURRING, moments)
    story = failures("0 0 5x118 10x100") | tasks("0 0 5x118 10x100")
    play(story, RECURRING, {"8m": [ONE], "25m": [ONE], "35m": [], "119m": [], "126m": [ONE]})


def test_a_corrected_failure_is_taken_back(play: Play) -> None:
    rightly = failures("0 0 6x100") | tasks("0 0 6x100")
    play(rightly, RECURRING, {"8m": [ONE]})
    taken_back = failures("0 0 6x100", withdrawn="0 0 0 6x100") | tasks("0 0 6x100")
    play(taken_back, RECURRING, {"8m": [], "20m": []})


BEFORE: Final = 300
"""Minutes until an agent's share becomes its usual one."""


def test_a_usual_share_does_not_alert_and_a_doubled_one_does(play: Play) -> None:
    usual = tasks("0+5x999")
    play(usual | failures("0+1x999"), SHARE, {f"{hour}h": [] for hour in (1, 2, 5, 7)})
    doubled = failures(f"0+1x{BEFORE} {BEFORE}+4x120")
    play(usual | doubled, SHARE, {"5h": [], "6h": [ONE], "7h": [ONE]})


@pytest.mark.parametrize(("tasks_now", "told"), [(15, []), (25, [ONE])])
def test_a_share_of_few_tasks_does_not_alert(play: Play, tasks_now: int, told: list[dict[str, str]]) -> None:
    """Three hours of successful tasks, an hour without any, then a few that all fail."""
    story = tasks(f"0+1x180 180x60 180+1x{tasks_now} {180 + tasks_now}x99")
    story |= failures(f"0x240 0+1x{tasks_now} {tasks_now}x99")
    play(story, SHARE, {"4h": [], "270m": told})


def test_a_page_does_not_end_before_the_ticket_that_it_inhibits(play: Play) -> None:
    """The tasks before the failures leave the hour first; then too few are left for a page to begin."""
    story = tasks(f"0+1x{BEFORE} {BEFORE}+8x2 {BEFORE + 16}+0.3x53 {BEFORE + 32}x200")
    story |= failures(f"0x{BEFORE + 2} 0+0.3x53 16x200")
    moments = [f"{minute}m" for minute in range(350, 385, 5)]
    play(story, RECURRING, {moment: [ONE] for moment in moments} | {"390m": []})
    play(story, SHARE, {moment: [ONE] for moment in moments} | {"390m": []})


def test_an_agent_that_is_suspected_again_and_again_gets_a_ticket(play: Play) -> None:
    suspected = {
        name.replace("failures", "suspicions"): values for name, values in failures("0 0 5x118").items()
    }
    moments: dict[str, list[dict[str, str]]] = {"3m": [], "8m": [ONE], "25m": [ONE], "40m": []}
    play(suspected | tasks("0 0 9x118"), SUSPECTED, moments)
    play(suspected | tasks("0 0 99x118"), SUSPECTED, {"8m": [], "25m": []})


def test_suspicions_that_were_withdrawn_tell_nothing(play: Play) -> None:
    story = failures("0 0 6x100", withdrawn="0 0 0 6x100")
    suspected = {name.replace("failures", "suspicions"): values for name, values in story.items()}
    play(suspected | tasks("0 0 9x100"), SUSPECTED, {"8m": [], "20m": []})


def test_labelling_old_runs_pages_no_one(play: Play) -> None:
    """Twenty failures move from the planner to the calculator within minutes; none of their runs is new."""
    planner = CALCULATOR.replace("calculator", "planner")
    story = tasks("0+1x999") | failures(f"0x{BEFORE} 20x99")
    play(story, SHARE, {"310m": [ONE]})
    story |= failures("20x999", planner, f"0x{BEFORE} 20x99")
    play(story, SHARE, {"310m": [], "330m": []})
    play(story, RECURRING, {"310m": [], "330m": []})


def issue(state: str, values: str, known_by: str = "0011223344556677") -> Story:
    labels = f'service="shop", agent="calculator", mode="loop", issue="{known_by}", state="{state}"'
    return {f"blamespan_issue_standing{{{labels}}}": values}


ISSUE: Final = ONE | {"mode": "loop", "issue": "0011223344556677"}
NEW, BACK, MORE = "BlamespanNewIssue", "BlamespanRegressedIssue", "BlamespanAgentFailsMore"


def test_a_new_issue_alerts_from_its_first_failure_until_it_is_old(play: Play) -> None:
    story = issue("new", "_x3 1x60 stale")
    play(story, NEW, {"2m": [], "4m": [ISSUE], "60m": [ISSUE], "64m": [ISSUE], "90m": []})
    play(story, BACK, {"4m": [], "60m": []})


def test_an_issue_that_came_back_alerts_again_under_another_name(play: Play) -> None:
    story = issue("new", "1x10 stale") | issue("regressed", "_x60 1x30")
    play(story, NEW, {"5m": [ISSUE], "59m": [], "70m": []})
    play(story, BACK, {"5m": [], "59m": [], "61m": [ISSUE]})


def test_a_second_issue_of_the_same_agent_is_an_alert_of_its_own(play: Play) -> None:
    story = issue("new", "1x30") | issue("new", "_x9 1x20", "8899aabbccddeeff")
    second = ISSUE | {"issue": "8899aabbccddeeff"}
    play(story, NEW, {"5m": [ISSUE], "10m": [ISSUE, second]})


def test_an_agents_alarm_alerts_while_it_lasts_on_any_replica(play: Play) -> None:
    agent = '{service="shop", agent="calculator", instance="%s"}'
    story = {
        f"blamespan_agent_alarm{agent % 'a'}": "_x4 1x30 stale",
        f"blamespan_agent_alarm{agent % 'b'}": "_x9 1x10 stale",
    }
    play(story, MORE, {"3m": [], "6m": [ONE], "12m": [ONE], "60m": []})


def test_a_workflow_that_a_release_broke_alerts_until_it_is_fixed(play: Play) -> None:
    workflow = {"service": "shop", "workflow": "refunds", "release": "1.4"}
    series = 'blamespan_workflow_regressed{service="shop", workflow="refunds", release="1.4"}'
    moments: dict[str, list[dict[str, str]]] = {"8m": [], "12m": [workflow], "60m": []}
    play({series: "0x4 1x20 stale"}, "BlamespanWorkflowRegressed", moments)


def test_a_share_is_told_by_its_lower_bound_where_labels_tell_the_methods_errors(
    play: Play,
) -> None:
    agent = 'blamespan_agent_share_low{service="shop", agent="calculator"}'
    moments: dict[str, list[dict[str, str]]] = {"9m": [], "14m": [], "16m": [ONE], "60m": []}
    play({agent: "0.04x9 0.12x20 0.09x60"}, "BlamespanAgentSurelyFails", moments)


def test_an_alarm_ends_without_traffic(play: Play) -> None:
    alarm = {'blamespan_agent_alarm{service="shop", agent="calculator"}': "1x400"}
    play(alarm | tasks("0+1x60 60x300"), MORE, {"30m": [ONE], "100m": [ONE], "150m": [], "300m": []})


def test_a_short_burst_after_hours_without_failure_does_not_alert(play: Play) -> None:
    story = tasks("0+1x400") | failures("0x350 0+0.8x7 5.6x50")
    play(story, SHARE, {"352m": [], "358m": [], "375m": []})


@pytest.mark.parametrize(
    ("alert", "series", "labels"),
    [
        ("BlamespanItemsRejected", "blamespan_items_rejected_total{signal='logs'}", {"signal": "logs"}),
        (
            "BlamespanVerdictsRefused",
            "blamespan_verdicts_refused_total{signal='traces'}",
            {"signal": "traces"},
        ),
        ("BlamespanCertificateNotRenewed", "blamespan_tls_renewals_failed_total", {}),
        ("BlamespanBudgetExhausted", "blamespan_budget_refusals_total", {}),
    ],
)
def test_a_single_fault_alerts_at_once_and_not_for_ever(
    play: Play, alert: str, series: str, labels: dict[str, str]
) -> None:
    play({series: "0 0 2x300"}, alert, {"1m": [], "3m": [labels], "200m": []})


def test_a_store_that_refuses_for_minutes_alerts_until_it_takes_work_again(play: Play) -> None:
    faulty, told = "blamespan_store_faulty{store='journal'}", [{"store": "journal"}]
    play({faulty: "0 0 1x60 0x60"}, "BlamespanStoreFaulty", {"3m": [], "20m": told, "90m": []})
    play({faulty: "0 0 1 0x60"}, "BlamespanStoreFaulty", {"3m": [], "20m": []})


def test_repeated_restarts_alert_and_a_single_one_does_not(play: Play) -> None:
    deaths, alert = "blamespan_analysis_process_deaths_total", "BlamespanAnalysisProcessDies"
    play({deaths: "0 0 3x300"}, alert, {"3m": [], "30m": []})
    play({deaths: "0+1x20 20x300"}, alert, {"2m": [], "10m": [{}], "300m": []})


def test_late_verdicts_alert(play: Play) -> None:
    name = "blamespan_analysis_lag_seconds_bucket"
    story = {
        f'{name}{{le="300.0"}}': "0+1x60",
        f'{name}{{le="600.0"}}': "0+2x60",
        f'{name}{{le="+Inf"}}': "0+2x60",
    }
    play(story, "BlamespanAnalysisLag", {"4m": [], "20m": [{}]})


AWAY: Final = "blamespan_send_failures_total{cause='away', signal='traces'}"
FORWARDED: Final = "blamespan_items_forwarded_total{signal='traces'}"


def test_an_unreachable_backend_alerts_until_it_is_back(play: Play) -> None:
    story = {AWAY: "0x5 0+2x15 30x30", FORWARDED: "0+100x5 500x15 500+100x30"}
    told = [{"signal": "traces"}]
    play(story, "BlamespanBackendAway", {"5m": [], "9m": [], "20m": told, "30m": []})


def test_a_restarted_backend_does_not_alert(play: Play) -> None:
    story = {AWAY: "0x5 0+2x2 4x30", FORWARDED: "0+100x5 500x2 500+100x30"}
    play(story, "BlamespanBackendAway", {"7m": [], "12m": [], "20m": []})


@pytest.mark.parametrize("cause", ["asked_to_wait", "failing", "rejected", "no_service"])
def test_a_backend_that_answers_is_not_away(play: Play, cause: str) -> None:
    story = {AWAY.replace("away", cause): "0+5x60", FORWARDED: "0x60"}
    play(story, "BlamespanBackendAway", {"10m": [], "30m": [], "60m": []})


def test_logs_without_a_home_are_no_rejection(play: Play) -> None:
    story = {
        "blamespan_items_unsupported_total{signal='logs'}": "0+10x60",
        "blamespan_items_rejected_total{signal='logs'}": "0x60",
    }
    play(story, "BlamespanItemsRejected", {"10m": [], "30m": [], "60m": []})


def test_long_waits_alert(play: Play) -> None:
    story = {"blamespan_queue_oldest_age_seconds{signal='traces'}": "0x5 0+60x30 0x20"}
    moments: dict[str, list[dict[str, str]]] = {"14m": [], "25m": [{"signal": "traces"}], "40m": []}
    play(story, "BlamespanForwardingBehind", moments)


def test_a_queue_alerts_before_it_is_full(play: Play) -> None:
    story = {
        "blamespan_queue_fullness{signal='traces'}": "0.5x5 0.85x10 0.1x60",
        "blamespan_queue_fullness{signal='logs'}": "0.79x75",
    }
    told = [{"signal": "traces"}]
    play(story, "BlamespanQueueFilling", {"5m": [], "8m": told, "40m": []})


@pytest.mark.parametrize(
    ("reason", "is_told"), [("full", True), ("loop", True), ("broken", True), ("unauthorized", False)]
)
def test_requests_refused_for_our_own_fault_alert(play: Play, reason: str, *, is_told: bool) -> None:
    story = {f"blamespan_refused_requests_total{{reason='{reason}'}}": "0x5 0+6x20 120x30"}
    told = [{"reason": reason}] if is_told else []
    play(story, "BlamespanRefusing", {"5m": [], "9m": [], "20m": told, "35m": []})


def test_a_service_that_does_not_answer_alerts(play: Play) -> None:
    for job in ("blamespan", "prod-blamespan", "blamespan-analyzer"):
        down = {"job": job, "instance": "blamespan:8500"}
        series = f"up{{job='{job}', instance='blamespan:8500'}}"
        play({series: "1 1 0x30"}, "BlamespanDown", {"4m": [], "10m": [down]})


def test_a_service_that_vanished_from_prometheus_alerts(play: Play) -> None:
    ours, other = "up{job='blamespan', instance='blamespan:8500'}", "up{job='prometheus'}"
    play({ours: "1x10 stale", other: "1x60"}, "BlamespanDown", {"9m": [], "14m": [], "17m": [{}]})
    play({other: "1x60"}, "BlamespanDown", {"4m": [], "6m": [{}]})
