from __future__ import annotations

import json
from typing import Any

import pytest

from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.conversation_log import is_conversation, read_conversation
from analyzer.recordings.read_files import read_recording
from semconv.model import UNKNOWN_AGENT, ContentState, Step, StepKind


def steps(*history: object, **document: Any) -> tuple[Step, ...]:
    return read_conversation({"history": list(history), **document}).trajectory.steps


def test_a_hand_crafted_log_names_its_agents_in_the_role() -> None:
    said = steps(
        {"role": "human", "content": "find it"},
        {"role": "Orchestrator (thought)", "content": "plan"},
        {"role": "Orchestrator (-> WebSurfer)", "content": "go"},
        {"role": "WebSurfer", "content": "found"},
    )
    assert [s.agent for s in said] == ["human", "Orchestrator", "Orchestrator", "WebSurfer"]
    assert [s.kind for s in said] == [StepKind.HUMAN, StepKind.LLM, StepKind.HANDOFF, StepKind.LLM]
    assert said[2].target == "WebSurfer"


def test_a_generated_log_names_its_agents_beside_the_role() -> None:
    said = steps(
        {"role": "assistant", "name": "Planner", "content": "plan"},
        {"role": "user", "name": "Computer_terminal", "content": "exitcode: 0"},
        {"role": "user", "name": "Environment_Expert", "content": "so"},
    )
    assert [s.agent for s in said] == ["Planner", "Computer_terminal", "Environment_Expert"]
    assert [s.kind for s in said] == [StepKind.LLM, StepKind.TOOL, StepKind.LLM]


def test_a_uniform_line_is_read_with_its_label() -> None:
    read = read_conversation(
        {
            "id": "x/1",
            "source": "who",
            "subset": "Hand",
            "question": "how many?",
            "ground_truth": 8,
            "history": [{"index": 7, "agent": "A", "role": "assistant", "content": "4"}],
            "label": {"agent": "A", "step": 0, "reason": "…", "category": None},
        }
    )
    assert read.trajectory.run_id == "x/1"
    assert read.trajectory.reference == "8"
    assert (read.source, read.subset) == ("who", "Hand")
    assert read.label is not None
    assert (read.label.agent, read.label.step) == ("A", 0)
    assert read.trajectory.steps[0].index == 0, "position counts, whatever the entry says"
    assert read.trajectory.is_recorded_conversation


def test_the_annotations_of_the_original_files_are_a_label_too() -> None:
    read = read_conversation({"history": [], "mistake_agent": "A", "mistake_step": "12"})
    assert read.label is not None
    assert (read.label.agent, read.label.step) == ("A", 12)


@pytest.mark.parametrize("value", [None, True, "soon", "-1", 1.5, ""])
def test_a_label_without_a_step_has_none(value: object) -> None:
    label = read_conversation({"history": [], "label": {"agent": None, "step": value}}).label
    assert label is not None
    assert label.step is None
    assert label.agent is None


def test_none_as_content_is_an_empty_step() -> None:
    (said,) = steps({"role": "assistant", "name": "A", "content": None})
    assert said.output == ""
    assert said.content is ContentState.ABSENT


def test_the_key_conversation_is_read_like_history() -> None:
    read = read_conversation({"conversation": [{"role": "A", "content": "x"}]})
    assert [s.agent for s in read.trajectory.steps] == ["A"]


def test_an_empty_history_is_a_run_without_steps_and_says_so() -> None:
    read = read_conversation({"history": []})
    assert read.trajectory.steps == ()
    assert read.trajectory.warnings


def test_missing_keys_leave_a_gap_and_no_more() -> None:
    said = steps({}, {"content": "x"}, {"role": "A"}, "just text", None, 7)
    assert [s.agent for s in said] == [UNKNOWN_AGENT, UNKNOWN_AGENT, "A", *[UNKNOWN_AGENT] * 3]
    assert [s.output for s in said] == ["", "x", "", "just text", "", "7"]


def test_content_in_parts_and_tool_calls_becomes_text() -> None:
    (said,) = steps(
        {
            "role": "A",
            "content": [{"type": "text", "text": "one"}, {"type": "image_url"}, "two"],
            "tool_calls": [{"function": {"name": "f"}}],
        }
    )
    assert said.output.startswith("one\n")
    assert "two" in said.output
    assert '"name": "f"' in said.output


@pytest.mark.parametrize("document", [{}, [], None, "text", {"history": "no list"}, {"history": None}])
def test_what_is_no_conversation_is_refused_with_what_was_expected(document: object) -> None:
    assert not is_conversation(document)
    with pytest.raises(UnreadableInput, match="expected"):
        read_conversation(document)


def test_the_same_content_gives_the_same_id_and_other_content_another() -> None:
    one, same, other = ({"history": [{"role": "A", "content": text}]} for text in ("x", "x", "y"))
    ids = [read_conversation(d).trajectory.run_id for d in (one, same, other)]
    assert ids[0] == ids[1] != ids[2]


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        pytest.param(("hm", "noise\nFINAL ANSWER: 42\nbye"), "42", id="marked"),
        pytest.param(("So then.\n**Final Answer:** 42\nbye",), "42", id="its mark in bold"),
        pytest.param(("So then.\n**FINAL ANSWER**: **42**\nbye",), "42", id="both in bold"),
        pytest.param(("So then.\nFinal\u00a0answer: 42\nbye",), "42", id="a blank that does not break"),
        pytest.param(("it is 42", " ", "TERMINATE"), "it is 42", id="followed by a sign-off"),
    ],
)
def test_the_output_is_the_final_answer(said: tuple[str, ...], answer: str) -> None:
    read = read_conversation({"history": [{"role": "A", "content": text} for text in said]})
    assert read.trajectory.output == answer


def test_without_a_question_the_first_request_is_the_task() -> None:
    read = read_conversation({"history": [{"role": "human", "content": "count them"}]})
    assert read.trajectory.task == "count them"


def test_system_prompts_become_the_agents_instructions() -> None:
    document = {
        "history": [{"role": "user", "name": "A", "content": "x"}],
        "system_prompt": {"A": "be exact"},
    }
    assert read_conversation(document).trajectory.steps[0].instructions == "be exact"


def test_roles_made_from_span_kinds_are_read_as_such() -> None:
    said = steps(
        {"agent": "m", "role": "CHAIN:Step 1", "content": ""},
        {"agent": "m", "role": "LLM:call", "content": "x"},
        {"agent": "m", "role": "TOOL:Search", "content": "y"},
    )
    assert [s.kind for s in said] == [StepKind.OTHER, StepKind.LLM, StepKind.TOOL]


@pytest.mark.parametrize(
    "log",
    [
        [{"author": "user", "body": "?"}, {"author": "ResearchAgent", "body": "42"}],
        [{"from": "human", "value": "?"}, {"from": "gpt", "value": "42"}],
        [{"speaker": "USER", "utterance": "?"}, {"speaker": "SYSTEM", "utterance": "42"}],
        [{"sender": "customer", "body": "?"}, {"sender": "support AI", "body": "42"}],
        [{"speaker": "customer", "text": "?"}, {"speaker": "gpt-4o", "text": "42"}],
        [{"agent": "user", "body": "?"}, {"agent": "Planner", "body": "42"}],
    ],
)
def test_messages_with_other_plain_names_are_read_if_an_author_is_a_program(log: list[Any]) -> None:
    for form in (log, {"conversations": log}, {"history": log}):
        (read,) = read_recording(json.dumps(form).encode()).conversations
        (asked, answered) = read.trajectory.steps
        assert (asked.kind, answered.kind) == (StepKind.HUMAN, StepKind.LLM) or asked.agent == "customer"
        assert (answered.agent, answered.output) == (next(iter(log[1].values())), "42")


@pytest.mark.parametrize(
    "texts",
    [
        [
            {"author": "ann", "body": "Fails for me.", "created_at": "2026-05-01"},
            {"author": "bob", "body": "+1"},
        ],
        [{"author": "ann", "body": "A bug"}, {"author": "dependabot[bot]", "body": "Bumps x"}],
        [{"author": "ann", "body": "A bug", "html_url": "…"}, {"author": "coding-agent", "body": "Fixed"}],
        [{"from": "ann@example.org", "text": "Hello"}, {"from": "agent@example.org", "text": "Hello"}],
        [
            {"from": "ann", "subject": "Tides", "body": "?"},
            {"from": "assistant", "subject": "Re", "body": "!"},
        ],
        [
            {"author": "ann", "message": "Fix it", "sha": "1"},
            {"author": "release agent", "message": "2", "sha": "2"},
        ],
        [{"from": "Ai Weiwei", "text": "Hello"}, {"from": "A. Model", "text": "Hello"}],
        [{"speaker": "ann", "utterance": "Let us begin."}, {"speaker": "system", "utterance": "…"}],
        [{"author": "Anna Agent", "body": "At five?", "date": "Mon"}, {"author": "Bob", "body": "OK"}],
        [{"author": "Support Agent", "body": "Solved?"}, {"author": "Carol", "body": "Yes"}],
        [{"speaker": "Agent Smith", "utterance": "Hear that?"}, {"speaker": "Neo", "utterance": "No"}],
        [{"author": "github-actions[bot]", "body": "Failed"}, {"author": "gpt-fan", "body": "Again"}],
        [{"author": name, "body": "…"} for name in ("ann", "bob", "coding-agent")],
    ],
)
def test_what_people_write_is_no_conversation_of_agents(texts: list[Any]) -> None:
    for form in (json.dumps(texts), "\n".join(map(json.dumps, texts))):
        with pytest.raises(UnreadableInput, match="comments, e-mails or commits, by their keys and authors"):
            read_recording(form.encode())


def test_a_chat_of_people_in_a_matrix_room_is_no_conversation_of_agents() -> None:
    said = {"msgtype": "m.text", "body": "The agent failed: connection refused"}
    event = {
        "type": "m.room.message",
        "sender": "@bob:x.org",
        "content": said,
        "origin_server_ts": 1,
        "event_id": "$1",
    }
    for found in ([event, event], {"room_name": "Ops", "messages": [event, event]}):
        with pytest.raises(UnreadableInput, match="a chat of people in a Matrix room"):
            read_recording(json.dumps(found).encode())


@pytest.mark.parametrize(
    "log",
    [
        [{"author": "assistant", "body": "alone"}],
        [{"author": "assistant", "body": "x"}, {"body": "y"}],
        [{"author": "assistant", "body": "x"}, {"author": "user", "text": "y"}],
        [{"author": {"name": "assistant"}, "body": "x"}] * 2,
        [{"agent": "Mozilla/5.0", "value": "GET /", "level": 30}] * 2,
        [
            {"agent": "curl/8.5.0", "message": "GET /"},
            {"agent": '"Mozilla/5.0 (X11)"', "message": "GET /x 404"},
        ],
    ],
)
def test_messages_that_do_not_share_their_keys_are_refused(log: list[Any]) -> None:
    with pytest.raises(UnreadableInput, match=r"unknown format|log of an application"):
        read_recording(json.dumps(log).encode())
