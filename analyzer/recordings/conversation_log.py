"""Conversation logs → trajectories: ``{"history": [{"role", "name", "content"}…], "question", …}``.

Three shapes are read, told apart by their keys and not by their file names:
ag2tracer's (``history`` or ``conversation``), Who&When's (hand-crafted logs have
no ``name``: the role carries the agent), and uniform JSON lines
(``history[{index, agent, role, content}]``, ``label``). Step *n* is the n-th entry
of the list, whatever its role or its own ``index``: labels count that way.

What is missing stays missing: a step without content is empty, a step without
a speaker is ``unknown``. Only what is no conversation at all is refused.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from analyzer.agent_names import handover_target, strip_suffix
from analyzer.errors import UnreadableInput
from semconv.model import UNKNOWN_AGENT, AgentSource, ContentState, Step, StepKind, Trajectory

_LISTS: Final = ("history", "conversation")
_QUESTIONS: Final = ("question", "task", "query")
_REFERENCES: Final = ("ground_truth", "groundtruth", "reference")
_RUN_IDS: Final = ("id", "run_id", "question_ID", "question_id")
_FINAL_ANSWER: Final = re.compile(
    r"FINAL[^\S\n]{1,3}ANSWER[^\S\n]?[*_]{0,2}[:\uff1a][*_]{0,2}[^\S\n]{0,9}(\S.*)", re.IGNORECASE
)
_TOOL_WORDS: Final = re.compile(
    r"terminal$|interpreter$|executor(?:[ _-]?agent)?$|^environment$|^tools?\b|^function$", re.IGNORECASE
)
_HUMAN_WORDS: Final = re.compile(r"^(?:human|user|user[ _-]?proxy|customer|admin)$", re.IGNORECASE)
_SPAN_KINDS: Final[Mapping[str, StepKind]] = {
    # How logs made from span exports name an entry's kind; containers are no one's action.
    "LLM": StepKind.LLM,
    "TOOL": StepKind.TOOL,
    "AGENT": StepKind.OTHER,
    "CHAIN": StepKind.OTHER,
    "INTERNAL": StepKind.OTHER,
}
_SIGN_OFF: Final = re.compile(r"[\s*`.]*(?:TERMINATE|EXIT|DONE)[\s*`.!]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """Who was to blame, as an annotator says; ``None`` where the annotator does not."""

    agent: str | None
    step: int | None
    """0-based index into the conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One recorded run, with its label where it has one."""

    trajectory: Trajectory
    label: Label | None = None
    source: str = ""
    subset: str = ""


def is_conversation(document: object) -> bool:
    """Tell whether a JSON document is a conversation log."""
    return isinstance(document, Mapping) and any(isinstance(document.get(key), list) for key in _LISTS)


def read_conversation(document: object) -> Conversation:
    """Read one conversation log.

    Raises:
        UnreadableInput: the document has neither a ``history`` nor a ``conversation`` list.
    """
    if not isinstance(document, Mapping) or not is_conversation(document):
        message = 'not a conversation log: expected an object with a "history" or "conversation" list'
        raise UnreadableInput(message)
    entries: list[Any] = next(document[key] for key in _LISTS if isinstance(document.get(key), list))
    instructions = _instructions(document)
    steps = tuple(_step(index, entry, instructions) for index, entry in enumerate(entries))
    task = _first_text(document, _QUESTIONS)
    trajectory = Trajectory(
        run_id=_first_text(document, _RUN_IDS) or _content_id(document),
        steps=steps,
        task=task or _first_request(steps),
        output=_final_answer(steps),
        reference=_first_text(document, _REFERENCES) or None,
        agents=tuple(dict.fromkeys(step.agent for step in steps)),
        warnings=() if steps else ("the conversation is empty",),
        is_recorded_conversation=True,
    )
    return Conversation(
        trajectory=trajectory,
        label=_label(document),
        source=_first_text(document, ("source",)),
        subset=_first_text(document, ("subset",)),
    )


def _step(index: int, entry: object, instructions: Mapping[str, str]) -> Step:
    fields: Mapping[str, Any] = entry if isinstance(entry, Mapping) else {"content": entry}
    role = _text(fields.get("role"))
    speaker = _text(fields.get("agent")) or _text(fields.get("name")) or role
    agent = strip_suffix(speaker) or UNKNOWN_AGENT
    content = _content(fields)
    return Step(
        index=index,
        agent=agent,
        kind=_kind(agent, role),
        agent_source=AgentSource.UNKNOWN if agent == UNKNOWN_AGENT else AgentSource.SPAN,
        name=role,
        output=content,
        target=handover_target(role) or handover_target(speaker),
        content=ContentState.COMPLETE if content else ContentState.ABSENT,
        instructions=instructions.get(agent, ""),
    )


def _kind(agent: str, role: str) -> StepKind:
    """Guess what a step was from who spoke: logs do not say, unless the role is ``KIND:name``."""
    recorded = _SPAN_KINDS.get(role.partition(":")[0]) if ":" in role else None
    if recorded:
        return recorded
    if handover_target(role):
        return StepKind.HANDOFF
    if role.lower() in {"tool", "function"} or _TOOL_WORDS.search(agent):
        return StepKind.TOOL
    if role.lower() == "system":
        return StepKind.OTHER
    # "user" as a role says nothing: AG2 gives it to every agent but the one whose log it is.
    return StepKind.HUMAN if _HUMAN_WORDS.match(agent) else StepKind.LLM


def _content(fields: Mapping[str, Any]) -> str:
    content = fields.get("content")
    parts = content if isinstance(content, list) else [content]
    texts = [_text(part.get("text", part) if isinstance(part, Mapping) else part) for part in parts]
    calls = fields.get("tool_calls")
    texts += [_text(call) for call in calls] if isinstance(calls, list) else []
    return "\n".join(text for text in texts if text)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def _first_text(document: Mapping[str, Any], keys: Sequence[str]) -> str:
    return next((_text(document[key]) for key in keys if document.get(key) not in (None, "")), "")


def _first_request(steps: Sequence[Step]) -> str:
    return next((step.output for step in steps if step.kind is StepKind.HUMAN), "")


def _instructions(document: Mapping[str, Any]) -> Mapping[str, str]:
    """System prompts by agent, which Who&When's algorithm-generated logs carry."""
    meta = document.get("meta")
    prompts = document.get("system_prompt") or (
        meta.get("system_prompt") if isinstance(meta, Mapping) else None
    )
    if not isinstance(prompts, Mapping):
        return {}
    return {strip_suffix(str(agent)): _text(prompt) for agent, prompt in prompts.items()}


def _final_answer(steps: Sequence[Step]) -> str:
    """What the run answered: a marked final answer near the end, else the last thing an agent said."""
    for step in reversed(steps[-3:]):
        marked = _FINAL_ANSWER.findall(step.output)
        if marked:
            return str(marked[-1]).strip(" \t\r*")
    speaking = (StepKind.LLM, StepKind.HANDOFF, StepKind.AGENT)
    return next(
        (
            step.output
            for step in reversed(steps)
            if step.kind in speaking and step.output.strip() and not _SIGN_OFF.fullmatch(step.output)
        ),
        "",
    )


def _label(document: Mapping[str, Any]) -> Label | None:
    label = document.get("label")
    if isinstance(label, Mapping):
        return Label(agent=_text(label.get("agent")) or None, step=_integer(label.get("step")))
    if "mistake_agent" in document or "mistake_step" in document:
        return Label(
            agent=_text(document.get("mistake_agent")) or None, step=_integer(document.get("mistake_step"))
        )
    return None


def _integer(value: object) -> int | None:
    """A whole number, as a number or in digits; anything else is no step."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and re.fullmatch(r"\d{1,9}", value.strip()) else None


def _content_id(document: Mapping[str, Any]) -> str:
    """An id for a log that has none: the same content gives the same id."""
    canonical = json.dumps(document, sort_keys=True, ensure_ascii=True, default=str)
    return f"log-{hashlib.sha256(canonical.encode()).hexdigest()[:16]}"
