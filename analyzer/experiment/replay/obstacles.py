"""Obstacles to a replay, found before anything starts, with the line that fixes the next recording. Pure."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from analyzer.experiment.replay.tape import NotReplayable, Obstacle, Tape
from analyzer.experiment.replay.trial_tools import ToolRules, Undeclared, undeclared
from analyzer.inquiry.present import plain
from collector_processor.lint import content_lines, limit_line
from collector_processor.trajectory.acts import Act
from semconv.dialects.reading.action import Message
from semconv.dialects.reading.usage import CallFacts
from semconv.dialects.support import lines_of
from semconv.model import Span, SpanId

_UNREACHABLE: Final[Mapping[str, str]] = {
    "bedrock": "Amazon Bedrock",
    "vertex": "Google Vertex AI",
    "gemini": "Google Gemini",
    "google": "Google",
    "azure": "Azure OpenAI",
    "az.ai": "Azure AI",
    "cohere": "Cohere",
    "ollama": "Ollama's own API",
}
"""Parts of the names of providers whose clients do not use OpenAI's or Anthropic's API at a base URL."""
_STATUS: Final = re.compile(r"\b(?:Error code|status(?: code)?|HTTP)[: ]+([45]\d\d)\b", re.IGNORECASE)
_BEFORE_ERROR: Final = re.compile(r"\A(?:[A-Za-z_.]+: )?Error code: [45]\d\d - ")
_CUT_MARK: Final = re.compile(
    r"(?:\[cut, \d+ characters\]|\[truncated\]|\(truncated\)|<truncated>)$", re.IGNORECASE
)
_ONLY_SOUND: Final = "no setting, if other calls hold texts: choose a run whose model calls all succeeded"
_LEAST_LIMIT: Final = 128
_NAME: Final = 60
_SHOWN: Final = 80
"""Characters of a tool's name, and of its arguments or result, that an obstacle quotes."""
_ROUND: Final = (50, 64)
"""A configured limit is usually a multiple of one of these."""


def error_status(error: str) -> int:
    """Return the HTTP status that an error's text names; 500 if there is none."""
    found = _STATUS.search(error)
    return int(found[1]) if found else 500


def said_by_provider(error: str) -> str:
    """Return an error's text as the provider sent it, without the prefix that SDKs add in every run."""
    return _BEFORE_ERROR.sub("", error, count=1) or error


def obstacle_of_call(
    act: Act, facts: CallFacts, messages: Sequence[Message], allow_tools: frozenset[str]
) -> NotReplayable | None:
    """Return the obstacle to replaying a model call, if any."""
    found = next(chain(_in_its_texts(act, messages), _at_the_provider(act, facts, allow_tools)), None)
    if found is None:
        return None
    return NotReplayable(
        obstacle=found.obstacle,
        reason=f"span {act.span.span_id}: {found.reason}",
        mend=found.mend,
        span_id=act.span.span_id,
    )


def _in_its_texts(act: Act, messages: Sequence[Message]) -> Iterator[NotReplayable]:
    action, span = act.action, act.span
    if action.redacted:
        yield NotReplayable(
            obstacle=Obstacle.REDACTED, reason="the model call's texts are redacted", mend=content_lines(act)
        )
    if span.dropped_attributes:
        reason = "the model call lost attributes to a limit"
        yield NotReplayable(obstacle=Obstacle.CUT, reason=reason, mend=(limit_line([span]),))
    if not messages and action.failed:
        reason = "the model call failed, and its span holds no request, as with some instrumentations"
        mend = (_ONLY_SOUND, *(replay_lines([act]) or content_lines(act)))
        yield NotReplayable(obstacle=Obstacle.NO_CONTENT, reason=reason, mend=mend)
    if not messages or not (action.output_messages or action.output or action.failed):
        reason = f"the model call holds no {'answer' if messages else 'request'}"
        mend = replay_lines([act]) or content_lines(act)
        yield NotReplayable(obstacle=Obstacle.NO_CONTENT, reason=reason, mend=mend)
    if any(_CUT_MARK.search(message.text) for message in (*messages, *action.output_messages)):
        yield NotReplayable(obstacle=Obstacle.CUT, reason="texts of the model call are cut")


def no_model_calls(acts: Iterable[Act]) -> NotReplayable:
    """Return the obstacle of a run without model calls, with what would record them."""
    return NotReplayable(
        obstacle=Obstacle.NO_MODEL_CALLS,
        reason="the trace shows no model call with a request and an answer",
        mend=replay_lines(acts) or ("blamespan lint FILE  # says what the trace lacks",),
    )


def replay_lines(acts: Iterable[Act]) -> tuple[str, ...]:
    """Return the settings that this instrumentation needs for replayable runs; empty if it needs none."""
    found = (lines_of(act.action.dialect, act.span.scope.name, lambda each: each.replay) for act in acts)
    return next(filter(None, found), ())


def _at_the_provider(act: Act, facts: CallFacts, allow_tools: frozenset[str]) -> Iterator[NotReplayable]:
    if provider := _unreachable(facts.provider):
        yield NotReplayable(
            obstacle=Obstacle.UNREACHABLE_PROVIDER,
            reason=f"the model call went to {provider}, whose client ignores OpenAI's base URL",
            mend=("call the model through an OpenAI-compatible URL",),
        )
    if facts.has_reasoning and act.action.requested:
        yield NotReplayable(
            obstacle=Obstacle.ENCRYPTED_REASONING,
            reason="the tools that the model asked for need its encrypted reasoning or signed thinking",
            mend=("switch extended thinking off, or reasoning.encrypted_content, for this workflow",),
        )
    if facts.in_conversation:
        yield NotReplayable(
            obstacle=Obstacle.STORED_CONVERSATION,
            reason="the model call continues a conversation that the provider keeps",
            mend=("send the messages in place of `conversation`",),
        )
    if facts.is_background:
        reason = "the model call ran in the background"
        yield NotReplayable(obstacle=Obstacle.BACKGROUND, reason=reason, mend=("background=False",))
    if hidden := sorted(set(facts.provider_tools) - allow_tools):
        yield NotReplayable(
            obstacle=Obstacle.PROVIDER_TOOL,
            reason=f"the provider ran `{hidden[0]}` during the model call, which may have side effects",
            mend=(f"--allow-tool {hidden[0]}  # if it only reads",),
        )


def _unreachable(provider: str) -> str:
    lower = provider.lower()
    return next((name for part, name in _UNREACHABLE.items() if part in lower), "")


def obstacle_of_run(spans: Sequence[Span]) -> NotReplayable | None:
    """Return an obstacle if a length limit cut texts: several different texts have the same length."""
    lengths = Counter(
        len(value)
        for value in {value for span in spans for value in span.attributes.values() if isinstance(value, str)}
        if len(value) >= _LEAST_LIMIT
    )
    longest = max(lengths, default=0)
    if lengths[longest] < 2 or all(longest % step for step in _ROUND):
        return None
    return NotReplayable(
        obstacle=Obstacle.CUT,
        reason=f"texts are cut: {lengths[longest]} different ones are exactly {longest} characters long",
        mend=("unset OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT",),
    )


def undeclared_tool(tape: Tape, rules: ToolRules) -> NotReplayable | None:
    """Return all tools that would really run in a trial and are not declared read-only, as one obstacle.

    Each is told with what it did in the recording: whether a tool only reads is for its owner to say.
    """
    found = undeclared(tape, rules)
    if not found:
        return None
    tools = ", ".join(
        f"`{plain(each.name, _NAME)}` would really run in a trial ({_done(each)})" for each in found
    )
    allowed = " ".join(f"--allow-tool {shlex.quote(plain(each.name, _NAME))}" for each in found)
    is_one = len(found) == 1
    name = plain(found[0].name, _NAME) if is_one else "NAME"
    which = "if it only reads" if is_one else "those that only read; for each of the others:"
    return NotReplayable(
        obstacle=Obstacle.UNDECLARED_TOOL,
        reason=f"the tool{'' if is_one else 's'} {tools}, and may have side effects",
        mend=(
            f"{allowed}  # {which}",
            f'@tool("{name}")  # semconv.instrument, on its function: its results come off the tape',
            f"--mcp-tool {name}=VARIABLE  # the workflow finds its MCP server's address in this variable",
            f'--mcp-command {name}="COMMAND"  # this command starts its MCP server over stdio',
            f"--http-tool {name}=VARIABLE  # the same for plain HTTP",
        ),
        span_id=SpanId(found[0].span_id),
    )


def _done(tool: Undeclared) -> str:
    """Say what a tool did in the recording."""
    times = "once" if tool.times == 1 else f"{tool.times} times"
    given = f", first with {plain(tool.arguments, _SHOWN)}" if tool.arguments else ""
    result = f", which gave {plain(tool.result, _SHOWN)}" if tool.result else ""
    return f"recorded {times}{given}{result}"
