"""Failure modes: a small, closed vocabulary, so that recurring failures can be counted."""

from __future__ import annotations

from enum import StrEnum


class FailureMode(StrEnum):
    """What kind of mistake a decisive error was."""

    WRONG_COMPUTATION = "wrong_computation"
    UNHANDLED_ERROR = "unhandled_error"
    IGNORED_RESULT = "ignored_result"
    UNSUPPORTED_CLAIM = "unsupported_claim"
    MISREAD_INPUT = "misread_input"
    WRONG_TOOL_USE = "wrong_tool_use"
    BAD_PLAN = "bad_plan"
    BAD_HANDOFF = "bad_handoff"
    INCOMPLETE_WORK = "incomplete_work"
    UNVERIFIED_RESULT = "unverified_result"
    LOOP = "loop"
    GAVE_UP = "gave_up"
    OFF_TASK = "off_task"
    OTHER = "other"
