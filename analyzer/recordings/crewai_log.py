"""Reader of CrewAI's ``output_log_file`` and of a crew's output. Pure.

The log has an entry when a task starts and one when it is done, as lines of text or as a JSON list. Calls of
tools are not in it. A crew's output lists its tasks' outputs, since version 1.15 with the failures of tools.
Source: crewai 1.15.30, ``utilities/file_handler.py``, ``tasks/task_output.py`` (2026).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from analyzer.recordings.dialogue import Message, Speaker, dialogue_spans
from analyzer.recordings.fields import all_have, json_text, nanoseconds, unwrapped
from analyzer.recordings.file_text import CUT
from analyzer.recordings.message_parts import Result, call_of, listed, turn
from analyzer.recordings.recording import FileFormat, Records, Spans
from semconv.record import replace

_ENTRY: Final = ("timestamp", "task", "agent", "status")
_OUTPUT: Final = ("description", "raw", "agent")
_STARTED, _COMPLETED = "started", "completed"
_NONE: Final = "None"
"""What the log says of an agent or a task without a name."""
_UNFINISHED: Final = "the log has no end of this task: it failed, or was stopped"


def is_crewai(records: Records) -> bool:
    """Tell whether records are entries of the log, or hold the outputs of tasks."""
    return _is_log(records) or all_have(unwrapped(records, "tasks_output"), *_OUTPUT)


def _is_log(records: Records) -> bool:
    """Tell whether records are entries; what was completed has an output."""
    whole = records[:-1] if records and _is_cut(records[-1]) else records
    return all_have(whole, *_ENTRY) and all(
        one["status"] == _STARTED or "output" in one or "error" in one for one in whole
    )


def _is_cut(one: Any) -> bool:
    return isinstance(one, dict) and one.keys() == {CUT}


def read_crewai(records: Records) -> Spans:
    """Read one run, or several if the log has the first task again."""
    if not _is_log(records):
        tasks = listed(list(unwrapped(records, "tasks_output")))
        return _run([message for task in tasks for message in _of_output(task)], key="")
    runs: list[list[Mapping[str, Any]]] = []
    for one in listed(list(records)):
        if not runs or (not _is_cut(one) and one["status"] == _STARTED and _key(one) == _key(runs[-1][0])):
            runs.append([])
        runs[-1].append(one)
    return (
        span
        for place, run in enumerate(runs)
        for span in _run([*_of_run(run)], key=f"crewai {place} {run[0]['timestamp']} {run[0]['task']}")
    )


def _run(messages: Sequence[Message], key: str) -> Spans:
    tasks = dict.fromkeys(message.text for message in messages if message.speaker is Speaker.USER)
    return dialogue_spans(messages, name="crewai", key=key, task="\n".join(tasks))


def _key(one: Mapping[str, Any]) -> str:
    """Return what tells a task from others: its name, or else its text, which may hold the crew's inputs."""
    name = json_text(one.get("task_name"))
    return name if name not in {"", _NONE} else json_text(one["task"])


def _of_run(entries: Sequence[Mapping[str, Any]]) -> Iterator[Message]:
    """Yield the messages of a run; last, for each task that was started and has no end, that it failed.

    CrewAI logs no errors: a task that raises one, which ends the run, has no entry but the first. Of a log
    that is cut short, the end may be missing for another reason.
    """
    begun: dict[str, Mapping[str, Any]] = {}
    for one in entries:
        if _is_cut(one):
            return
        if one["status"] == _STARTED:
            begun[_key(one)] = one
        else:
            begun.pop(_key(one), None)
        yield _of_entry(one)
    for one in begun.values():
        yield _turn(one, _UNFINISHED, failed=True)


def _of_entry(one: Mapping[str, Any]) -> Message:
    if one["status"] == _STARTED:
        return Message(
            speaker=Speaker.USER, text=json_text(one["task"]), time_ns=nanoseconds(one["timestamp"])
        )
    error = json_text(one.get("error"))
    text = error or json_text(one.get("output", one.get("message")))
    message = _turn(one, text, failed=bool(error) or one["status"] != _COMPLETED)
    return replace(message, time_ns=nanoseconds(one["timestamp"]))


def _turn(one: Mapping[str, Any], text: str, *, failed: bool = False) -> Message:
    """Return what an agent made of a task."""
    agent = json_text(one["agent"])
    agent = "" if agent == _NONE else agent
    return Message(speaker=Speaker.AGENT, text=text, agent=agent, failed=failed, is_whole_turn=True)


def _of_output(one: Mapping[str, Any]) -> Iterator[Message]:
    message = _turn(one, json_text(one["raw"]))
    yield Message(speaker=Speaker.USER, text=json_text(one["description"]))
    for place, failure in enumerate(listed(one.get("tool_failures"))):
        tool, call_id = json_text(failure.get("tool_name")), f"{message.agent} {place}"
        told = failure.get("failure")
        text = json_text(told.get("message", told) if isinstance(told, dict) else told)
        yield from turn(
            Message(speaker=Speaker.AGENT, agent=message.agent),
            [
                call_of(tool, failure.get("tool_args"), call_id),
                Result(text=text, call_id=call_id, failed=True),
            ],
        )
    yield message


CREWAI: Final = FileFormat(
    name="a CrewAI log",
    example="crewai-log.txt",
    source="crewai, `utilities/file_handler.py`",
    how='`Crew(…, output_log_file="crew.txt")`, or `crew.json`',
    records_tools=False,
    recognizes=is_crewai,
    read=read_crewai,
)
