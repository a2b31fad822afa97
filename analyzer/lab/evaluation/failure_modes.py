"""Mapping of labels' error categories to our failure modes, so that ``bench`` can score the mode.

Sources of the categories: AgentErrorTaxonomy (AgentDebug, arXiv:2509.25370), TRAIL (arXiv:2505.08638) and
AgentRx's nine categories. Each was written for other systems, so a category may map to several modes; a mode
is correct if it is one of these.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

from analyzer.inquiry.verdict import FailureMode as Mode

_AGENT_ERROR_TAXONOMY: Final = {
    "memory/hallucination": {Mode.UNSUPPORTED_CLAIM},
    "memory/memory_retrieval_failure": {Mode.MISREAD_INPUT, Mode.IGNORED_RESULT},
    "memory/over_simplification": {Mode.INCOMPLETE_WORK, Mode.MISREAD_INPUT},
    "reflection/progress_misjudge": {Mode.UNVERIFIED_RESULT, Mode.INCOMPLETE_WORK},
    "reflection/outcome_misinterpretation": {Mode.MISREAD_INPUT, Mode.IGNORED_RESULT},
    "reflection/causal_misattribution": {Mode.MISREAD_INPUT, Mode.BAD_PLAN},
    "reflection/hallucination": {Mode.UNSUPPORTED_CLAIM},
    "planning/constraint_ignorance": {Mode.BAD_PLAN, Mode.OFF_TASK},
    "planning/impossible_action": {Mode.BAD_PLAN, Mode.WRONG_TOOL_USE},
    "planning/inefficient_plan": {Mode.BAD_PLAN, Mode.LOOP},
    "action/misalignment": {Mode.OFF_TASK, Mode.WRONG_TOOL_USE},
    "action/invalid_action": {Mode.WRONG_TOOL_USE},
    "action/format_error": {Mode.WRONG_TOOL_USE},
    "action/parameter_error": {Mode.WRONG_TOOL_USE},
    "system/step_limit": {Mode.LOOP, Mode.INCOMPLETE_WORK},
    "system/tool_execution_error": {Mode.UNHANDLED_ERROR},
    "system/llm_limit": {Mode.UNHANDLED_ERROR, Mode.INCOMPLETE_WORK},
    "system/environment_error": {Mode.UNHANDLED_ERROR},
}
_AGENTRX: Final = {
    "instruction/plan adherence failure": {Mode.OFF_TASK, Mode.INCOMPLETE_WORK},
    "invention of new information": {Mode.UNSUPPORTED_CLAIM},
    "invalid invocation": {Mode.WRONG_TOOL_USE},
    "misinterpretation of tool output": {Mode.MISREAD_INPUT, Mode.IGNORED_RESULT},
    "misinterpretation of tool output / handoff failure": {
        Mode.MISREAD_INPUT,
        Mode.IGNORED_RESULT,
        Mode.BAD_HANDOFF,
    },
    "intent-plan misalignment": {Mode.BAD_PLAN, Mode.OFF_TASK},
    "underspecified user intent": {Mode.OTHER},
    "intent not supported": {Mode.GAVE_UP, Mode.WRONG_TOOL_USE},
    "guardrails triggered": {Mode.GAVE_UP, Mode.UNHANDLED_ERROR},
    "system failure": {Mode.UNHANDLED_ERROR},
}
_TRAIL: Final = {
    "language-only": {Mode.UNSUPPORTED_CLAIM},
    "tool-related": {Mode.UNSUPPORTED_CLAIM},
    "poor information retrieval": {Mode.INCOMPLETE_WORK, Mode.WRONG_TOOL_USE},
    "tool output misinterpretation": {Mode.MISREAD_INPUT, Mode.IGNORED_RESULT},
    "incorrect problem identification": {Mode.MISREAD_INPUT, Mode.OFF_TASK},
    "tool selection errors": {Mode.WRONG_TOOL_USE},
    "formatting errors": {Mode.WRONG_TOOL_USE, Mode.OFF_TASK},
    "instruction non-compliance": {Mode.OFF_TASK, Mode.INCOMPLETE_WORK},
    "tool definition issues": {Mode.WRONG_TOOL_USE},
    "environment setup errors": {Mode.UNHANDLED_ERROR},
    "rate limiting": {Mode.UNHANDLED_ERROR},
    "authentication errors": {Mode.UNHANDLED_ERROR},
    "service errors": {Mode.UNHANDLED_ERROR},
    "resource not found": {Mode.UNHANDLED_ERROR},
    "resource exhaustion": {Mode.UNHANDLED_ERROR},
    "timeout issues": {Mode.UNHANDLED_ERROR},
    "context handling failures": {Mode.MISREAD_INPUT, Mode.BAD_HANDOFF},
    "resource abuse": {Mode.LOOP, Mode.BAD_PLAN},
    "goal deviation": {Mode.OFF_TASK},
    "task orchestration": {Mode.BAD_PLAN, Mode.BAD_HANDOFF},
}


def _plain(category: str) -> str:
    return re.sub(r"[\s_-]+", " ", category).strip().casefold()


_MODES: Final = {
    _plain(category): frozenset(modes)
    for taxonomy in (_AGENT_ERROR_TAXONOMY, _AGENTRX, _TRAIL)
    for category, modes in taxonomy.items()
}


def accepted_modes(category: str) -> frozenset[Mode]:
    """Return the modes that a label's category maps to; empty if it is unknown or missing."""
    return _MODES.get(_plain(category), frozenset())


def most_accepted(labels: Iterable[frozenset[Mode]]) -> float | None:
    """Return the share of labels that the best constant mode matches: a baseline; ``None`` without labels."""
    wanted = list(labels)
    fits = Counter(mode for modes in wanted for mode in modes)
    return max(fits.values()) / len(wanted) if wanted else None
