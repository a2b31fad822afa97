"""The equality command reports a change in its part and in no other."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from collector_processor.core.analysis import Analysis
from collector_processor.core.runs import Run
from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.redaction import omit
from collector_processor.rebuild.stages import rebuild
from semconv.model import Attribution, Blame, Resource, SpanStatus, Status, Trajectory
from tests.equality.__main__ import main
from tests.equality.inputs import recorded_inputs
from tests.equality.parts import PARTS, Line, hashes_of, open_line
from tests.factories import agent, chat, workflow
from tests.frameworks.catalogue import FOLDER

(RUN,) = rebuild(
    [
        encode(
            [
                workflow(1, error="it failed"),
                agent(2, "planner", parent=1),
                chat(3, answer="I cannot do that.", agent_name="planner", parent=2),
                agent(4, "writer", parent=1),
                chat(5, answer="There is nothing to write.", agent_name="writer", parent=4),
            ]
        )
    ]
)
LINE = open_line()


def changed_parts(run: Run = RUN, line: Line = LINE) -> set[str]:
    before, after = hashes_of([RUN], LINE), hashes_of([run], line)
    return {part for part in PARTS if before[part] != after[part]}


def saying(change: Callable[[Blame], Blame], **document: object) -> Line:
    """Return a service whose verdicts are changed, in the records and in the JSON."""

    def analyse(trajectory: Trajectory) -> Analysis:
        found = LINE.analyses[0](trajectory)
        assert found is not None
        assert isinstance(found.attribution.verdict, Blame)
        attribution: Attribution = replace(found.attribution, verdict=change(found.attribution.verdict))
        return Analysis(
            attribution=attribution, document=json.dumps({**json.loads(found.document), **document})
        )

    return replace(LINE, analyses=(analyse, LINE.analyses[1]))


def test_another_version_of_the_same_rules_changes_no_part() -> None:
    def analyse(trajectory: Trajectory) -> Analysis:
        found = LINE.analyses[0](trajectory)
        assert found is not None
        assert found.attribution.rules
        return replace(found, attribution=replace(found.attribution, rules="another"))

    assert not changed_parts(line=replace(LINE, analyses=(analyse, LINE.analyses[1])))


def test_the_same_run_has_the_same_hashes_and_another_has_not() -> None:
    assert hashes_of([RUN], open_line()) == hashes_of([RUN], LINE)
    assert changed_parts(replace(RUN, trajectory=replace(RUN.trajectory, steps=()))) >= {"steps", "triage"}


def test_fields_of_a_step_that_no_verdict_reads_change_the_steps_only() -> None:
    first, *rest = RUN.trajectory.steps
    steps = (replace(first, instructions="Be brief."), *rest)
    assert changed_parts(replace(RUN, trajectory=replace(RUN.trajectory, steps=steps))) == {"steps"}


def test_a_change_of_prose_changes_the_prose_only() -> None:
    line = saying(
        lambda blame: replace(blame, reason="Else.", fix="Do."), reason="Else.", fix="Do.", error="E"
    )
    assert changed_parts(line=line) == {"prose"}


def test_a_change_of_prose_in_carriers_counts_as_prose() -> None:
    assert changed_parts(line=saying(lambda blame: replace(blame, fix="Do."))) == {"prose"}


def test_a_duration_changes_nothing() -> None:
    assert changed_parts(line=saying(lambda blame: blame, duration_s=9.0)) == set()


def test_another_probability_changes_the_ranking_only() -> None:
    assert changed_parts(line=saying(lambda blame: blame, ranking=[{"step": 1, "probability": 0.5}])) == {
        "ranking"
    }


def test_a_number_that_differs_in_its_last_digits_is_the_same() -> None:
    one, other = (saying(lambda blame: blame, ranking=[number]) for number in (0.3, 0.1 + 0.2))
    assert hashes_of([RUN], one) == hashes_of([RUN], other)


def test_another_agent_in_the_verdict_changes_the_triage() -> None:
    assert changed_parts(line=saying(lambda blame: blame, agent="somebody")) == {"triage"}


def test_an_additional_attribute_changes_the_carriers_only() -> None:
    default, to_all = LINE.policies
    policies = (default, replace(to_all, web_url="https://blame.example"))
    assert changed_parts(line=replace(LINE, policies=policies)) == {"carriers"}


def test_a_users_attribute_named_like_a_verdicts_prose_is_compared() -> None:
    resource = Resource(attributes={"service.name": "test", "error": "none", "reason": "none"})
    spans = tuple(replace(span, resource=resource) for span in RUN.trace.spans)
    changed = changed_parts(replace(RUN, trace=replace(RUN.trace, spans=spans)))
    assert changed == {"carriers", "logs", "kept"}


def test_a_run_that_did_not_fail_is_blamed_too() -> None:
    trajectory = replace(RUN.trajectory, root_status=SpanStatus.OK, root_error="")
    rebuilt = replace(RUN, trajectory=trajectory)
    assert [analysis.attribution.status for each in LINE.analyses if (analysis := each(trajectory))] == [
        Status.NO_FAILURE,
        Status.ATTRIBUTED,
    ]
    policies = tuple(replace(policy, logs=False) for policy in LINE.policies)
    before, after = hashes_of([rebuilt], LINE), hashes_of([rebuilt], replace(LINE, policies=policies))
    assert before["logs"] != after["logs"]


def test_evaluation_logs_are_a_part_of_their_own() -> None:
    policies = tuple(replace(policy, logs=False) for policy in LINE.policies)
    assert changed_parts(line=replace(LINE, policies=policies)) == {"logs", "prose"}


def test_the_kept_run_is_a_part_of_its_own() -> None:
    assert changed_parts(line=replace(LINE, kept=omit)) == {"kept"}


def test_a_trace_file_is_an_input_and_so_is_each_line_of_a_data_set(tmp_path: Path) -> None:
    line = json.dumps({"history": [{"role": "assistant", "name": "planner", "content": "I plan."}]})
    (tmp_path / "runs.jsonl").write_text(f"{line}\n{line}\n")
    (tmp_path / "ag2.json.gz").write_bytes((FOLDER / "fixtures" / "ag2_native.json.gz").read_bytes())
    (tmp_path / "INDEX.json").write_text("{}")
    said: list[str] = []
    sources = [(tmp_path / "away", "*"), (tmp_path, "*")]
    inputs = dict(recorded_inputs(said.append, sources))
    folder = tmp_path.name
    assert list(inputs) == [f"{folder}/ag2.json.gz", f"{folder}/runs.jsonl:1", f"{folder}/runs.jsonl:2"]
    assert all(run.trajectory.steps for runs in inputs.values() for run in runs)
    assert said == ["away: absent, skipped", f"{folder}: 2 files"]


def test_log_records_are_read_along_with_their_spans(tmp_path: Path) -> None:
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": [_record()]}]}]}
    (tmp_path / "run.json").write_bytes(encode(RUN.trace.spans))
    (tmp_path / "run.logs.json").write_text(json.dumps(logs))
    ((name, (run,)),) = recorded_inputs(lambda _text: None, [(tmp_path, "*.json")])
    assert name == f"{tmp_path.name}/run.json"
    assert any(span.logs for span in run.trace.spans)


def _record() -> dict[str, object]:
    ids = {"traceId": RUN.trace.spans[0].trace_id, "spanId": RUN.trace.spans[2].span_id}
    return {**ids, "timeUnixNano": "1", "eventName": "gen_ai.choice", "body": {"stringValue": "I cannot."}}


def written(folder: Path, name: str, **rows: dict[str, str]) -> str:
    file = folder / name
    file.write_text("".join(json.dumps({"name": key, **row}) + "\n" for key, row in rows.items()))
    return str(file)


def test_compare_says_which_input_differs_in_what(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = dict.fromkeys(PARTS, "a")
    before = written(tmp_path, "before", same=row, gone=row, other=row)
    after = written(tmp_path, "after", same=row, new=row, other={**row, "ranking": "b", "prose": "b"})
    assert main(["compare", before, before]) == 0
    assert (
        capsys.readouterr().out == "equal: 3 inputs in steps, triage, ranking, carriers, logs, kept, prose\n"
    )
    assert main(["compare", before, after]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "gone   only in BEFORE",
        "new    only in AFTER",
        "other  ranking, prose",
        "3 of 4 inputs differ",
    ]


def test_prose_can_be_ignored(tmp_path: Path) -> None:
    row = dict.fromkeys(PARTS, "a")
    before = written(tmp_path, "before", one=row)
    after = written(tmp_path, "after", one={**row, "prose": "b"})
    assert main(["compare", before, after]) == 1
    assert main(["compare", before, after, "--ignore", "prose"]) == 0


@pytest.mark.parametrize("content", ["", "no JSON", "{}"])
def test_a_file_that_write_did_not_make_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "file").write_text(content)
    with pytest.raises(SystemExit, match="2"):
        main(["compare", str(tmp_path / "file"), str(tmp_path / "file")])
