"""Reader of CrewAI's ``output_log_file`` and of a crew's output. Pure.

The log has an entry when a task starts and one when it is done, as lines of text or as a JSON list. Calls of
tools are not in it. A crew's output lists its tasks' outputs, since version 1.15 with the failures of tools.
Source: crewai 1.15.30, ``utilities/file_handler.py``, ``tasks/task_output.py`` (2026).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from analyzer.recordings.dialogue import Message, Speaker, dialogue_spans
from analyzer.recordings.file_format import (
    FileFormat,
    Recording,
    Records,
    all_have,
    json_text,
    merged,
    nanoseconds,
    of_spans,
    unwrapped,
)
from analyzer.recordings.message_parts import Result, call_of, listed, turn

_ENTRY: Final = ("timestamp", "task", "agent", "status")
_OUTPUT: Final = ("description", "raw", "agent")
_STARTED, _COMPLETED = "started", "completed"


def is_crewai(records: Records) -> bool:
    """Tell whether records are entries of the log, or hold the outputs of tasks."""
    return _is_log(records) or all_have(unwrapped(records, "tasks_output"), *_OUTPUT)


def _is_log(records: Records) -> bool:
    """Tell whether records are entries; what was completed has an output."""
    return all_have(records, *_ENTRY) and all(
        one["status"] == _STARTED or "output" in one or "error" in one for one in records
    )


def read_crewai(records: Records) -> Recording:
    """Read one run, or several if the log has the first task again."""
    if not _is_log(records):
        tasks = listed(list(unwrapped(records, "tasks_output")))
        return _recording([message for one in tasks for message in _of_output(one)], key="")
    runs: list[list[Mapping[str, Any]]] = []
    for one in listed(list(records)):
        is_first = bool(runs) and one["status"] == _STARTED and one["task"] == runs[-1][0]["task"]
        if not runs or (is_first and len(runs[-1]) > 1):
            runs.append([])
        runs[-1].append(one)
    return merged(
        _recording(
            [message for one in run for message in _of_entry(one)],
            key=f"crewai {run[0]['timestamp']} {run[0]['task']}",
        )
        for run in runs
    )


def _recording(messages: Sequence[Message], key: str) -> Recording:
    tasks = dict.fromkeys(one.text for one in messages if one.speaker is Speaker.USER)
    return of_spans(dialogue_spans(messages, name="crewai", key=key, task="\n".join(tasks)))


def _of_entry(one: Mapping[str, Any]) -> Iterator[Message]:
    time_ns, status = nanoseconds(one["timestamp"]), one["status"]
    if status == _STARTED:
        yield Message(speaker=Speaker.USER, text=json_text(one["task"]), time_ns=time_ns)
        return
    error = json_text(one.get("error"))
    yield Message(
        speaker=Speaker.AGENT,
        text=error or json_text(one.get("output", one.get("message"))),
        agent=json_text(one["agent"]),
        failed=bool(error) or status != _COMPLETED,
        time_ns=time_ns,
    )


def _of_output(one: Mapping[str, Any]) -> Iterator[Message]:
    agent = json_text(one["agent"])
    yield Message(speaker=Speaker.USER, text=json_text(one["description"]))
    for place, failure in enumerate(listed(one.get("tool_failures"))):
        tool, call_id = json_text(failure.get("tool_name")), f"{agent} {place}"
        told = failure.get("failure")
        text = json_text(told.get("message", told) if isinstance(told, Mapping) else told)
        yield from turn(
            Message(speaker=Speaker.AGENT, agent=agent),
            [
                call_of(tool, failure.get("tool_args"), call_id),
                Result(text=text, call_id=call_id, failed=True),
            ],
        )
    yield Message(speaker=Speaker.AGENT, agent=agent, text=json_text(one["raw"]))


CREWAI: Final = FileFormat(
    name="a CrewAI log",
    example="crewai-log.txt",
    source="crewai, `utilities/file_handler.py`",
    records_tools=False,
    recognizes=is_crewai,
    read=read_crewai,
)
