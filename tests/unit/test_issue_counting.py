"""Each run is counted once and in the right place, despite crashes, later verdicts and corrections."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from analyzer.issues.agent_counts import FEWEST_RUNS, Place
from analyzer.issues.beside_verdicts import AnalysedRun, BesideVerdicts
from analyzer.issues.counting import CountingRules
from analyzer.issues.labels.label_store import PackedRun
from analyzer.issues.labels.run_label import LabelKind
from analyzer.issues.recurrence import Count, IssueState, NoticeKind
from analyzer.issues.report import NO_RUNS, SAMPLED, IssueReports, Wanted, checked, share_text, to_json
from collector_processor.core.disk import StoreError
from collector_processor.core.records import Commit
from collector_processor.otlp import NO_TENANT, Tenant
from collector_processor.store.small_tables import KeptSpansRows, PackedSpans
from semconv.model import Abstention, Ranked, Status
from tests.issues import DAY, START, Bench, judged
from tests.verdicts import stored

OTHER = Tenant("x-scope-orgid=b")
TOLD = CountingRules(targets=("hook",))
CLERK = Place(tenant=NO_TENANT, service="shop", agent="clerk")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    opened = Bench(folder=tmp_path, rules=TOLD, clean=str)
    yield opened
    opened.close()


def told(bench: Bench) -> list[tuple[NoticeKind, str]]:
    return [(owed.notice.kind, owed.notice.agent) for owed in bench.issues.unsent("hook")]


def test_a_repeated_failure_is_one_issue_with_one_notice(bench: Bench) -> None:
    for number in range(3):
        bench.judge(number, "clerk")
    assert bench.counted() == {"clerk": 3}
    assert told(bench) == [(NoticeKind.NEW, "clerk")]
    (issue,) = bench.all()
    assert issue.fingerprint.title == "clerk: ValueError in add"
    assert issue.fingerprint.service == "shop"


def test_a_run_that_did_its_task_opens_no_issue(bench: Bench) -> None:
    bench.judge(1, None)
    assert (bench.counted(), told(bench)) == ({}, [])


def test_the_same_run_never_counts_twice_also_after_a_restart(bench: Bench) -> None:
    bench.judge(1, "clerk")
    bench.judge(1, "clerk")
    bench = bench.again()
    bench.judge(1, "clerk")
    assert bench.counted() == {"clerk": 1}
    assert bench.counting.counts.window(CLERK, 0, 99_999) == Count(hits=1, n=1)
    bench.close()


def test_a_run_without_a_verdict_is_not_counted(bench: Bench) -> None:
    bench.note(1, "clerk")
    assert bench.counted() == {}


def test_a_verdict_that_cannot_be_committed_counts_nothing_until_it_can(bench: Bench) -> None:
    bench.note(1, "clerk")
    with pytest.raises(ZeroDivisionError), bench.verdicts.transaction():  # noqa: PT012 - of a transaction
        bench.commit(1, "clerk")
        _ = 1 / 0
    assert (bench.counted(), bench.counting.take_moves(), bench.counting.repetitions) == ({}, [], 0)
    bench.commit(1, "clerk")
    assert bench.counted() == {"clerk": 1}
    assert len(bench.counting.take_moves()) == 1


def test_runs_whose_verdicts_never_come_make_room_for_others(bench: Bench) -> None:
    beside = BesideVerdicts(bench.db, bench.labels, bench.counting, lambda: START, most_bytes=250)
    for number in range(5):
        noted = bench.noted(NO_TENANT, *judged(number, "clerk"))
        packed = PackedRun(tenant=NO_TENANT, run_id=noted.run_id, is_failure=True, packed=b"x" * 100)
        beside.add(AnalysedRun(noted=noted, packed=packed))
    bench.verdicts.also = beside.write
    for number in range(5):
        bench.commit(number, "clerk")
    kept = [number for number in range(5) if bench.labels.kept(NO_TENANT, f"run-{number}")]
    assert (kept, bench.counted()) == ([3, 4], {"clerk": 2})


def test_runs_lose_their_spans_before_a_run_is_dropped(bench: Bench) -> None:
    rows = KeptSpansRows(bench.db)
    beside = BesideVerdicts(bench.db, bench.labels, bench.counting, lambda: START, spans=rows, most_bytes=600)
    for number in range(3):
        noted = bench.noted(NO_TENANT, *judged(number, "clerk"))
        packed = PackedRun(tenant=NO_TENANT, run_id=noted.run_id, is_failure=True, packed=b"x" * 100)
        spans = PackedSpans(tenant=NO_TENANT, run_id=noted.run_id, is_failure=True, packed=b"y" * 200)
        beside.add(AnalysedRun(noted=noted, packed=packed, spans=spans))
    bench.verdicts.also = beside.write
    for number in range(3):
        bench.commit(number, "clerk")
    assert bench.counted() == {"clerk": 3}
    has_spans = [rows.packed(NO_TENANT, f"run-{number}") is not None for number in range(3)]
    assert has_spans == [False, False, True]


def test_runs_of_one_commit_count_as_if_each_were_committed_alone(tmp_path: Path) -> None:
    blamed = [*[None] * 40, *["clerk"] * 50]
    judgements = [(number, agent, 1, START + number) for number, agent in enumerate(blamed)]
    judgements += [(90, "planner", 1, START + 40 * DAY), (50, "planner", 2, START + 40 * DAY + 1)]
    found: list[dict[str, list[tuple[object, ...]]]] = []
    for most in (1, 7, 100):
        (tmp_path / str(most)).mkdir()
        bench = Bench(folder=tmp_path / str(most), rules=TOLD, clean=str)
        for start in range(0, len(judgements), most):
            decided = [bench.decided(*one) for one in judgements[start : start + most]]
            with bench.issues.transaction():
                bench.counting.count(decided)
        tables = ("issue", "counted_run", "agent_day", "watch")
        found.append({name: sorted(bench.db.execute(f"SELECT * FROM {name}")) for name in tables})
        assert NoticeKind.FAILS_MORE in {kind for kind, _ in told(bench)}
        found[-1]["told"] = sorted(told(bench))
        bench.close()
    assert found[0] == found[1] == found[2]


def test_a_provisional_verdict_is_not_counted(bench: Bench) -> None:
    bench.judge(1, "clerk", is_provisional=True)
    assert bench.counted() == {}
    bench.commit(1, "clerk")
    assert bench.counted() == {"clerk": 1}


def test_a_superseded_verdict_is_withdrawn_from_its_issue(bench: Bench) -> None:
    bench.judge(1, "clerk")
    bench.judge(2, "clerk")
    bench.judge(1, "planner", version=2)
    assert bench.counted() == {"clerk": 1, "planner": 1}
    assert bench.counting.counts.window(CLERK, 0, 99_999) == Count(hits=1, n=2)
    bench.judge(2, None, version=2)
    assert bench.counted() == {"planner": 1}


def test_an_issue_whose_only_run_was_withdrawn_sends_no_notice(bench: Bench) -> None:
    bench.judge(1, "clerk")
    bench.judge(1, None, version=2)
    assert told(bench) == []


@pytest.mark.parametrize(
    ("kind", "agent", "counted"),
    [
        pytest.param(LabelKind.CONFIRMED, "clerk", {"clerk": 1}, id="confirmed"),
        pytest.param(LabelKind.CORRECTED, "Clerk", {"clerk": 1}, id="corrected to the same"),
        pytest.param(LabelKind.CORRECTED, "planner", {}, id="corrected to another"),
        pytest.param(LabelKind.REJECTED, None, {}, id="rejected"),
        pytest.param(LabelKind.NOT_A_FAILURE, None, {}, id="no failure"),
    ],
)
def test_a_label_withdraws_what_it_contradicts(
    bench: Bench, kind: LabelKind, agent: str | None, counted: dict[str, int]
) -> None:
    bench.judge(1, "clerk")
    bench.say(1, kind, agent)
    assert bench.counted() == counted


@pytest.mark.parametrize(
    ("kind", "agent", "blamed"),
    [
        pytest.param(LabelKind.CONFIRMED, "clerk", "clerk", id="confirmed"),
        pytest.param(LabelKind.CORRECTED, "Planner", "planner", id="corrected to another"),
        pytest.param(LabelKind.REJECTED, None, None, id="rejected"),
        pytest.param(LabelKind.NOT_A_FAILURE, None, None, id="no failure"),
    ],
)
def test_a_label_moves_a_run_in_the_metrics(
    bench: Bench, kind: LabelKind, agent: str | None, blamed: str | None
) -> None:
    bench.judge(1, "clerk")
    bench.say(1, kind, agent)
    moves = bench.counting.take_moves()
    assert (moves[0].before, moves[0].after.blamed, moves[-1].after.blamed) == (None, "clerk", blamed)
    assert moves[-1].after.agents == ("clerk", "planner")
    assert bench.counting.take_moves() == []


def test_a_later_verdict_moves_a_run_in_the_metrics_from_what_it_counted_as(bench: Bench) -> None:
    bench.judge(1, "clerk")
    bench = bench.again()
    bench.judge(1, "planner", version=2, at=START + 60)
    (move,) = bench.counting.take_moves()
    assert move.before is not None
    assert (move.before.blamed, move.after.blamed) == ("clerk", "planner")
    bench.judge(1, "planner", version=2, at=START + 60)
    assert bench.counting.take_moves() == []
    bench.close()


def test_a_verdict_moved_by_newer_rules_opens_no_issue_and_sends_no_notice(bench: Bench) -> None:
    bench.judge(1, None, judged_by="1")
    bench.judge(1, "clerk", version=2, judged_by="2")
    bench.judge(1, "clerk", version=3, judged_by="2")
    assert (bench.counted(), told(bench)) == ({}, [])
    bench.judge(2, "clerk", judged_by="2")
    assert (bench.counted(), told(bench)) == ({"clerk": 1}, [(NoticeKind.NEW, "clerk")])


def test_a_verdict_that_newer_rules_move_is_counted_in_an_open_issue_and_reopens_none(bench: Bench) -> None:
    bench.judge(1, "clerk", judged_by="1")
    bench.judge(2, "planner", judged_by="1")
    bench.judge(2, "clerk", version=2, judged_by="2")
    assert bench.counted() == {"clerk": 2}
    (issue,) = bench.all()
    bench.counting.resolve(NO_TENANT, issue.fingerprint.id, START)
    bench.judge(3, None, judged_by="1")
    bench.judge(3, "clerk", version=2, at=START + 60, judged_by="2")
    (issue,) = bench.all(START + 60)
    assert (issue.state, issue.count) == (IssueState.RESOLVED, 2)
    assert NoticeKind.REGRESSED not in {kind for kind, _ in told(bench)}


def test_a_verdict_moves_its_run_if_the_rules_are_unchanged_or_a_person_decides(bench: Bench) -> None:
    bench.judge(1, None, judged_by="2")
    bench.judge(1, "clerk", version=2, judged_by="2")
    assert told(bench) == [(NoticeKind.NEW, "clerk")]
    bench.judge(2, None, judged_by="1")
    bench.judge(2, "planner", version=2, judged_by="2")
    bench.say(2, LabelKind.CONFIRMED, "planner")
    assert bench.counted() == {"clerk": 1, "planner": 1}


def test_a_correction_of_a_run_of_yesterday_moves_issues_and_no_counter_which_has_no_past(
    bench: Bench,
) -> None:
    bench.judge(1, "clerk", at=START - 2 * DAY)
    bench.counting.take_moves()
    bench.say(1, LabelKind.CORRECTED, "planner")
    bench.judge(1, "planner", version=2)
    assert bench.counting.take_moves() == []
    assert bench.counted() == {"planner": 1}


def test_corrections_move_an_alarm_to_the_agent_they_blame(bench: Bench) -> None:
    for number in range(100):
        bench.judge(number, None, at=START + number)
    for number in range(100, 120):
        bench.judge(number, "planner", at=START + number)
    assert [one.place.agent for one in bench.counting.counts.alarms()] == ["planner"]
    for number in range(100, 120):
        bench.judge(number, "clerk", version=2, at=START + number)
    assert [one.place.agent for one in bench.counting.counts.alarms()] == ["clerk"]
    alarms = {(kind, agent) for kind, agent in told(bench) if kind is not NoticeKind.NEW}
    assert alarms >= {(NoticeKind.CALM_AGAIN, "planner"), (NoticeKind.FAILS_MORE, "clerk")}


def test_an_alarm_ends_when_people_reject_the_verdicts_that_raised_it(bench: Bench) -> None:
    for number in range(100):
        bench.judge(number, None, at=START + number)
    for number in range(100, 120):
        bench.judge(number, "planner", at=START + number)
    for number in range(100, 120):
        bench.say(number, LabelKind.CORRECTED, "clerk")
    assert bench.counting.counts.alarms() == [], "a label takes a failure away and adds none"


def test_a_label_given_before_the_run_was_counted_takes_effect(bench: Bench) -> None:
    bench.note(1, "clerk")
    bench.say(1, LabelKind.REJECTED)
    bench.commit(1, "clerk")
    assert bench.counted() == {}


def test_a_label_taken_back_counts_the_run_again_and_labels_are_read_once(bench: Bench) -> None:
    bench.judge(1, "clerk")
    bench.say(1, LabelKind.REJECTED)
    bench.say(1, LabelKind.CONFIRMED, "clerk", 0)
    assert bench.counted() == {"clerk": 1}
    assert bench.counting.apply_labels() == 0


def test_a_resolved_issue_that_comes_back_sends_another_notice(bench: Bench) -> None:
    bench.judge(1, "clerk")
    (issue,) = bench.all()
    assert bench.counting.resolve(NO_TENANT, issue.fingerprint.id, START + 1) is not None
    bench.judge(2, "clerk", at=START + 2)
    assert told(bench) == [(NoticeKind.NEW, "clerk"), (NoticeKind.REGRESSED, "clerk")]
    assert bench.all()[0].state is IssueState.REGRESSED


def test_a_muted_issue_is_counted_without_a_notice(bench: Bench) -> None:
    bench.judge(1, "clerk")
    (issue,) = bench.all()
    bench.counting.mute(NO_TENANT, issue.fingerprint.id, START + DAY)
    bench.counting.resolve(NO_TENANT, issue.fingerprint.id, START + 1)
    bench.judge(2, "clerk", at=START + 2)
    assert told(bench) == [(NoticeKind.NEW, "clerk")]
    assert bench.counted() == {"clerk": 2}


def test_a_missing_issue_and_one_of_another_tenant_cannot_be_closed(bench: Bench) -> None:
    bench.judge(1, "clerk", tenant=OTHER)
    (issue,) = bench.all()
    assert bench.counting.resolve(NO_TENANT, issue.fingerprint.id, START) is None
    assert bench.counting.mute(OTHER, "0" * 16, START) is None


def test_tenants_do_not_see_each_other(bench: Bench) -> None:
    bench.judge(1, "clerk")
    bench.judge(1, "clerk", tenant=OTHER)
    assert [issue.count for issue in bench.all()] == [1, 1]
    assert [issue.count for issue in bench.all(tenant=OTHER)] == [1]


def test_an_agent_that_begins_to_fail_sends_a_notice_and_another_when_it_recovers(bench: Bench) -> None:
    number = 0
    for agent, times in ((None, 300), ("clerk", 20), (None, 400), ("clerk", 20)):
        for _ in range(times):
            number += 1
            bench.judge(number, agent, at=START + number * 60 * 10**9)
    alarms = [(kind, agent) for kind, agent in told(bench) if kind is not NoticeKind.NEW]
    assert alarms == [
        (NoticeKind.FAILS_MORE, "clerk"),
        (NoticeKind.CALM_AGAIN, "clerk"),
        (NoticeKind.FAILS_MORE, "clerk"),
    ]
    assert [watched.place.agent for watched in bench.counting.counts.alarms()] == ["clerk"]


def test_a_watch_without_findings_restarts_after_four_weeks_which_become_its_past(bench: Bench) -> None:
    """With a shorter history, the change would become part of the usual share before it is found."""
    place = Place(tenant=NO_TENANT, service="shop", agent="clerk")
    begun = {}
    for number, day in enumerate((0, 1, 8, 27, 28, 29)):
        bench.judge(number, "clerk" if day == 8 else None, at=START + day * DAY)
        watched = bench.counting.counts.watched(place)
        assert watched is not None
        begun[day] = watched.begun_day - START // DAY
    assert begun == {0: 0, 1: 0, 8: 0, 27: 0, 28: 28, 29: 28}
    renewed = bench.counting.counts.watched(place)
    assert renewed is not None
    assert renewed.watch.known == Count(hits=1, n=6)


def test_an_agents_lower_bound_follows_from_labels_and_is_absent_without_any(bench: Bench) -> None:
    for number in range(100):
        bench.judge(number, "clerk" if number % 2 else None)
    reports = IssueReports(bench.issues, is_fair_sample=True)
    assert list(reports.lows(START)) == []
    for number in range(1, 41, 2):
        bench.say(number, LabelKind.CONFIRMED, "clerk", 0)
    for number in range(0, 40, 2):
        bench.say(number, LabelKind.CONFIRMED)
    ((service, agent, low),) = reports.lows(START)
    assert (service, agent, 0.3 < low < 0.5) == ("shop", "clerk", True), low
    assert list(IssueReports(bench.issues, is_fair_sample=False).lows(START)) == []


def test_too_few_runs_raise_no_alarm(bench: Bench) -> None:
    for number in range(FEWEST_RUNS):
        bench.judge(number, "clerk")
    assert bench.counting.counts.alarms() == []


def test_with_tail_sampling_there_are_issues_and_no_shares(tmp_path: Path) -> None:
    bench = Bench(folder=tmp_path, rules=replace(TOLD, is_fair_sample=False), clean=str)
    for number in range(60):
        bench.judge(number, None if number < 40 else "clerk")
    (report,) = IssueReports(bench.issues, is_fair_sample=False).reports(Wanted(), START)
    document = to_json(report, START)
    assert (document["share"], document["share_off"], document["count"]) == (None, SAMPLED, 20)
    assert bench.counting.counts.watched(CLERK) is None
    bench.close()


def test_labels_say_how_often_the_method_is_right_about_an_agent(bench: Bench) -> None:
    for number, agent in enumerate(("clerk", "clerk", "clerk", "planner", "planner", None)):
        bench.judge(number, agent)
    bench.say(0, LabelKind.CONFIRMED, "clerk", 0)
    bench.say(1, LabelKind.CORRECTED, "planner")
    bench.say(2, LabelKind.REJECTED)
    bench.say(3, LabelKind.CORRECTED, "clerk")
    bench.say(4, LabelKind.REJECTED)
    bench.say(5, LabelKind.NOT_A_FAILURE)
    runs = bench.issues.labelled_runs(NO_TENANT, "shop")
    assert checked(runs, "clerk") == (Count(hits=1, n=3), Count(hits=1, n=2))


def test_a_report_says_share_trend_and_examples(bench: Bench) -> None:
    for number in range(40):
        bench.judge(number, None, at=START - 10 * DAY)
    for number in range(40, 60):
        bench.judge(number, "clerk" if number % 2 else None)
    (report,) = IssueReports(bench.issues, is_fair_sample=True).reports(Wanted(agent="Clerk"), START)
    document = to_json(report, START)
    assert document["trend"][-1] == {"day": "2024-10-04", "count": 10}
    assert len(document["trend"]) == 14
    assert document["examples"][0] == "run-59"
    assert (document["share"]["blamed"], document["share"]["runs"], document["share"]["labelled"]) == (
        10,
        20,
        0,
    )
    assert document["share"]["against_past"]["low"] > 1
    assert document["share"]["against_fellows"]["low"] > 1
    assert document["share"]["low"] < document["share"]["estimate"] < document["share"]["high"]


def test_without_labels_of_its_service_a_share_is_the_methods_own(bench: Bench) -> None:
    for number in range(7):
        bench.judge(number, "clerk")
        bench.judge(100 + number, "clerk", service="other shop")
        bench.say(100 + number, LabelKind.CONFIRMED, "clerk", 0)
    reports = IssueReports(bench.issues, is_fair_sample=True)
    (mine,) = reports.reports(Wanted(service="shop"), START)
    (others,) = reports.reports(Wanted(service="other shop"), START)
    assert mine.agent is not None
    assert mine.agent.labelled == 0
    document = to_json(mine, START)["share"]
    assert (document["estimate"], document["high"]) == (1.0, 1.0)
    assert 0.6 < document["low"] < 0.8, "seven of seven"
    assert document["told"] == share_text(mine.agent)
    assert document["told"].endswith("by the method alone")
    assert to_json(others, START)["share"]["told"].endswith("corrected by 7 labels")
    low = {service: low for service, _, low in reports.lows(START)}
    assert low == {"other shop": pytest.approx(to_json(others, START)["share"]["low"], abs=1e-4)}


def test_an_agent_without_runs_this_week_has_no_share(bench: Bench) -> None:
    bench.judge(1, "clerk")
    (report,) = IssueReports(bench.issues, is_fair_sample=True).reports(Wanted(), START + 8 * DAY)
    document = to_json(report, START + 8 * DAY)
    assert (document["share"], document["share_off"]) == (None, NO_RUNS)


def test_an_undetermined_run_opens_no_issue_and_blames_no_agent(bench: Bench) -> None:
    trajectory, analysis = judged(1, "clerk")
    candidates = (Ranked(step=0, agent="clerk", probability=0.1),)
    doubtful = Abstention(status=Status.UNDETERMINED, reason="too weak", ranking=candidates)
    attribution = replace(analysis.attribution, verdict=doubtful)
    noted = bench.noted(NO_TENANT, trajectory, replace(analysis, attribution=attribution))
    verdict = stored(run_id="run-1", agent=None, status="undetermined", decided_ns=START, step=None)
    bench.beside.add(AnalysedRun(noted=noted, packed=None))
    bench.verdicts.commit(Commit(analysed=(), verdicts=(verdict,)))
    assert (bench.counted(), told(bench)) == ({}, [])
    counts = bench.counting.counts
    assert counts.window(CLERK, START // DAY, START // DAY) == Count(hits=0, n=1), "it took part"


def test_filters_choose(bench: Bench) -> None:
    bench.judge(1, "clerk")
    bench.judge(2, "planner")
    reports = IssueReports(bench.issues, is_fair_sample=True)
    assert len(reports.issues(Wanted(), START)) == 2
    assert [one.fingerprint.agent for _, one in reports.issues(Wanted(agent="planner"), START)] == ["planner"]
    assert reports.issues(Wanted(service="bank"), START) == []
    assert reports.issues(Wanted(state=IssueState.RESOLVED), START) == []
    assert len(reports.issues(Wanted(state=IssueState.RESOLVED), START + 15 * DAY)) == 2


def test_a_full_disk_fails_one_write_and_loses_no_earlier_data(bench: Bench) -> None:
    bench.judge(1, "clerk")
    pages = bench.issues.db.execute("PRAGMA page_count").fetchone()[0]
    bench.issues.db.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(StoreError, match="cannot write"):
        judge_many(bench)
    before = bench.counted()["clerk"]
    bench.issues.db.execute(f"PRAGMA max_page_count={pages * 100}")
    bench.judge(5_000, "clerk")
    assert bench.counted()["clerk"] == before + 1


def judge_many(bench: Bench) -> None:
    for number in range(2, 2_000):
        bench.judge(number, "clerk")


def test_entries_that_are_too_old_are_deleted(bench: Bench) -> None:
    bench.judge(1, "clerk")
    bench.issues.prune(START + 100 * DAY)
    assert bench.counting.counts.window(CLERK, 0, 99_999) == Count()
    assert bench.counting.counts.watched(CLERK) is None
