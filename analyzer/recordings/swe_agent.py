"""Reader of SWE-agent's trajectories (``.traj``) and of mini-SWE-agent's. Pure.

SWE-agent: ``trajectory`` has a step for each action with its observation; ``history`` repeats it as messages
and is read for the task only. mini-SWE-agent: ``messages`` of the chat API, where what a command printed is a
user's or a tool's message, and a last message of the role ``exit``.
Source: SWE-agent 1.1, ``sweagent/types.py``; mini-swe-agent 2.4, ``agents/default.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from analyzer.recordings.dialogue import Message, Speaker, dialogue_spans
from analyzer.recordings.fields import all_have, json_text, objects
from analyzer.recordings.message_parts import text_of
from analyzer.recordings.recording import FileFormat, Records, Spans
from semconv.model import ToolCall

_NAME: Final = "swe-agent"
_MINI: Final = "mini-swe-agent"
_DONE: Final = frozenset({"", "submitted", "skipped", "Submitted"})
"""Exit states of a run that ended as it should; any other is an error."""


def is_swe_agent(records: Records) -> bool:
    """Tell whether each record is the trajectory of one run."""
    return all(
        isinstance(one, dict)
        and (
            (isinstance(one.get("trajectory"), list) and all_have(one["trajectory"], "action", "observation"))
            or (_is_mini(one) and isinstance(one.get("messages"), list))
        )
        for one in records
    )


def _is_mini(document: Mapping[str, Any]) -> bool:
    return json_text(document.get("trajectory_format")).startswith(_MINI)


def read_swe_agent(records: Records) -> Spans:
    """Read the runs of a file."""
    return (span for record in records for span in _run(record))


def _run(document: Mapping[str, Any]) -> Any:
    info = document.get("info")
    status = json_text(info.get("exit_status")) if isinstance(info, dict) else ""
    error = "" if status in _DONE else f"the run ended with {status}"
    if _is_mini(document):
        return dialogue_spans(list(_of_mini(document)), name=_MINI, error=error)
    return dialogue_spans([*_asked(document), *_steps(document)], name=_NAME, error=error)


def _asked(document: Mapping[str, Any]) -> Iterator[Message]:
    """Yield instructions and task, which stand before the first answer in the history."""
    for entry in objects(document.get("history")):
        if entry.get("role") == "assistant":
            return
        if entry.get("role") in {"system", "user"} and not entry.get("is_demo"):
            yield Message(speaker=Speaker(entry["role"]), text=text_of(entry.get("content")))


def _steps(document: Mapping[str, Any]) -> Iterator[Message]:
    for place, step in enumerate(objects(document.get("trajectory"))):
        text = json_text(step.get("thought") or step.get("response"))
        action = json_text(step.get("action")).strip()
        if not action or action == "submit":
            yield Message(speaker=Speaker.AGENT, text=text, agent=_NAME)
            continue
        call = ToolCall(name=action.split(maxsplit=1)[0], arguments=action, call_id=f"step {place}")
        yield Message(speaker=Speaker.AGENT, text=text, agent=_NAME, calls=(call,))
        yield Message(speaker=Speaker.TOOL, text=json_text(step.get("observation")), call_id=call.call_id)


def _of_mini(document: Mapping[str, Any]) -> Iterator[Message]:
    waiting: list[str] = []
    for place, entry in enumerate(objects(document.get("messages"))):
        role, text, extra = entry.get("role"), text_of(entry.get("content")), entry.get("extra")
        if role == "assistant":
            asked = objects(extra.get("actions")) if isinstance(extra, dict) else []
            calls = tuple(
                ToolCall(
                    name="bash",
                    arguments=json_text(one.get("command")),
                    call_id=json_text(one.get("tool_call_id")) or f"{place}.{number}",
                )
                for number, one in enumerate(asked)
            )
            waiting = [call.call_id for call in calls]
            yield Message(speaker=Speaker.AGENT, text=text, agent=_MINI, calls=calls)
        elif role in {"user", "tool"} and waiting:
            code = extra.get("returncode") if isinstance(extra, dict) else None
            failed = isinstance(code, int) and code != 0
            yield Message(speaker=Speaker.TOOL, text=text, call_id=waiting.pop(0), tool="bash", failed=failed)
        elif role in {"system", "user"}:
            yield Message(speaker=Speaker(role), text=text)


SWE_AGENT: Final = FileFormat(
    name="SWE-agent trajectories",
    example="swe-agent.traj",
    source="SWE-agent 1.1, `sweagent/types.py`; mini-swe-agent 2.4, `agents/default.py`",
    how="`trajectories/…/INSTANCE.traj`; mini-SWE-agent: `mini --output run.traj.json`",
    agent=_NAME,
    recognizes=is_swe_agent,
    read=read_swe_agent,
)
