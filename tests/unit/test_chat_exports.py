"""Exports of ChatGPT and claude.ai: the branch that their pages show is a run; other trees are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analyzer.api.local import attribute
from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.read_files import read_recording
from semconv.model import Status
from tests.message_runs import ANSWER, ERROR, TASK, run, runs, told, tools

EXAMPLES = Path(__file__).parents[2] / "examples" / "files"
NAMES = ("chatgpt-export.json", "claude-export.json")
each_export = pytest.mark.parametrize("name", NAMES)
TABLE = "Dover, tomorrow: low 08:05, high 14:20"
SAID = {"uuid": "m", "sender": "human", "text": TASK}


def conversation(name: str) -> Any:
    (only,) = json.loads((EXAMPLES / name).read_text(encoding="utf-8"))
    return only


def node(message: Any, parent: str | None = None, children: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"id": "n", "message": message, "parent": parent, "children": list(children)}


def says(role: str, content: Any) -> dict[str, Any]:
    return {"id": role, "author": {"role": role}, "content": content}


@pytest.mark.parametrize(
    "document",
    [
        {"mapping": {"properties": {"message": {"type": "text"}}}},
        {"mapping": {"a": node("Nice harbour!"), "b": node("Indeed.", "a")}},
        {"mapping": {"a": {"message": says("user", {"parts": [TASK]})}}},
        {"mapping": {"a": node(None)}},
        {"mapping": [node(says("user", {"parts": [TASK]}))]},
        {"uuid": "c", "chat_messages": []},
        {"uuid": "c", "chat_messages": {"harbour_desk": [SAID]}},
        {"uuid": "c", "chat_messages": [{**SAID, "sender": "Jo Smith"}]},
        {"chat_messages": [{"sender": "human", "text": TASK}]},
    ],
    ids=[
        *("an index's", "comments", "no tree", "nobody", "a list", "empty", "by agent", "people", "no ids"),
    ],
)
def test_what_only_resembles_an_export_is_refused(document: Any) -> None:
    for text in (json.dumps(document), json.dumps([document])):
        with pytest.raises(UnreadableInput, match="unknown format"):
            read_recording(text.encode())


@each_export
def test_a_conversation_whose_tool_works_accuses_nobody(name: str) -> None:
    text = (
        json.dumps([conversation(name)])
        .replace(ERROR, TABLE)
        .replace('"is_error": true', '"is_error": false')
    )
    verdict = attribute(text.replace("system_error", "execution_output").encode())
    assert verdict.status is Status.NO_FAILURE


@each_export
def test_each_conversation_is_a_run_also_alone_or_one_a_line(name: str) -> None:
    one = conversation(name)
    other = json.loads(json.dumps(one).replace("Dover", "Deal").replace("0000-4000", "0000-4001"))
    empty = one | ({"mapping": {}} if "mapping" in one else {"chat_messages": []})
    assert {found.task for found in runs([empty, one, other])} == {TASK, TASK.replace("Dover", "Deal")}
    assert runs(one, other) == runs([one, other])
    assert told(run(one)) == told(run([one]))


def test_a_prompt_that_was_edited_is_left_out() -> None:
    found = json.loads(json.dumps(conversation(NAMES[0])))
    (edited,) = [
        key
        for key, one in found["mapping"].items()
        if "Deal" in json.dumps(one["message"]) and one["children"]
    ]
    assert run(found).task == TASK
    found["current_node"] = found["mapping"][edited]["children"][0]
    assert run(found).task == TASK.replace("Dover", "Deal")


def test_a_tree_without_its_last_node_or_with_a_circle_is_read_from_the_newest_node() -> None:
    asked, answered = says("user", {"parts": [TASK]}), says("assistant", {"parts": [ANSWER]})
    tree = {"a": node(asked, "b", ("b",)), "b": node(answered, "a")}
    for document in ({"mapping": tree}, {"mapping": tree, "current_node": "gone"}):
        assert told(run(document)) == [("ChatGPT", "llm", ANSWER)]


@each_export
def test_a_result_that_the_export_leaves_out_accuses_nobody(name: str) -> None:
    text = json.dumps([conversation(name)]).replace(ERROR, "")
    text = text.replace('[{"type": "text", "text": ""}]', "[]").replace(
        '"is_error": true', '"is_error": false'
    )
    assert attribute(text.encode()).status is Status.NO_FAILURE


def test_images_are_named_and_thoughts_and_instructions_of_the_account_left_out() -> None:
    image = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://x"}
    found = {
        "a": node(says("user", {"content_type": "user_editable_context", "user_profile": "I sail."})),
        "b": node(says("user", {"content_type": "multimodal_text", "parts": [image, TASK]}), "a"),
        "c": node(says("assistant", {"content_type": "thoughts", "thoughts": [{"content": "Dover…"}]}), "b"),
        "d": node(says("assistant", {"content_type": "text", "parts": [ANSWER]}), "c"),
    }
    assert run({"mapping": found}).task == f"[image_asset_pointer]\n{TASK}"
    assert told(run({"mapping": found})) == [("ChatGPT", "llm", ANSWER)]


def test_the_newest_branch_of_a_claude_conversation_is_read_with_its_files() -> None:
    files = [{"file_name": "tides.csv", "extracted_content": TABLE}]
    said = [
        {**SAID, "uuid": "1", "text": "Hello?", "parent_message_uuid": "root"},
        {**SAID, "uuid": "2", "attachments": files, "parent_message_uuid": "root"},
        {"uuid": "3", "sender": "assistant", "text": ANSWER, "parent_message_uuid": "2"},
    ]
    found = run({"uuid": "c", "chat_messages": said})
    assert (found.task, told(found)) == (f"{TASK}\ntides.csv:\n{TABLE}", [("Claude", "llm", ANSWER)])
    with pytest.raises(UnreadableInput, match="no agent speaks"):
        run({"uuid": "c", "chat_messages": said, "current_leaf_message_uuid": "1"})


@each_export
def test_a_call_and_its_result_need_no_ids(name: str) -> None:
    assert [each[:2] for each in tools(run(conversation(name)))] == [
        (run(conversation(name)).steps[0].agent, "tide_table")
    ]
