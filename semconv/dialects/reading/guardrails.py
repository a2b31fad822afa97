"""Checks on a run: guardrails, and evaluators' results recorded in its trace.

A guardrail checks an agent's input or output and is not an agent's turn. One that lets everything pass is not
a step in any dialect. One that stops something is a step of kind ``other`` and an error, even if its span
says OK, because it may have ended the run. Where this is recorded depends on the instrumentation: in an
attribute (openai-agents' ``triggered``, copied by Logfire, MLflow, LangSmith, OpenTelemetry's contrib and
OpenLIT), in the span's status, or only in the error of the stopped agent (OpenInference).

Sources of evaluations: log or span event ``gen_ai.evaluation.result`` (OpenTelemetry GenAI); OpenInference's
``evaluations.N.evaluation.*`` and, with the same meaning, ``annotations.N.annotation.*`` of a span,
``trace.annotations.N.annotation.*`` of its trace and ``session.annotations.N.annotation.*`` of its session
(Arize-ai/openinference, spec/annotations.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from semconv.attributes import ERROR_TYPE, FAILURE_ID, GEN_AI_RESPONSE_FINISH_REASONS, SCOPE_ANALYZER
from semconv.dialects.reading.action import Action, ActionKind, Judgement, Surroundings
from semconv.dialects.reading.usage import model_call
from semconv.dialects.reading.values import below, error_of, events_of, structured, text, words
from semconv.model import Attributes, Outcome, Span, SpanStatus
from semconv.record import replace

GUARDRAIL_NAME: Final = "gen_ai.guardrail.name"
GUARDRAIL_TRIGGERED: Final = "gen_ai.guardrail.triggered"
TRIGGERED: Final = "triggered"

_TRIPWIRE: Final = "tripwire"
"""In openai-agents' error: ``Guardrail tripwire triggered: {'guardrail': 'amount_check'}``."""
_NEAREST: Final = 4
"""Levels to search upwards for the stopped agent: a turn and a task may lie between."""
RESULT_EVENT: Final = "gen_ai.evaluation.result"
RESULT_NAME: Final = "gen_ai.evaluation.name"
RESULT_LABEL: Final = "gen_ai.evaluation.score.label"
RESULT_SCORE: Final = "gen_ai.evaluation.score.value"
EVALUATOR_TYPE: Final = "gen_ai.evaluation.evaluator.type"
"""Proposed (semantic-conventions-genai #359): ``human``, ``llm_judge`` or ``deterministic``."""
_LISTS: Final[tuple[tuple[str, str, bool], ...]] = (
    ("evaluations", "evaluation", False),
    ("annotations", "annotation", False),
    ("trace.annotations", "annotation", True),
    ("session.annotations", "annotation", True),
)
"""Flattened lists, the prefix of their entries' fields, and whether they are about the run."""
_LISTED: Final = re.compile(r"^(?:evaluations|(?:trace\.|session\.)?annotations)\.\d", re.MULTILINE)
_PERSON: Final = "human"
"""Both ``gen_ai.evaluation.evaluator.type`` and OpenInference's ``annotator_kind`` (HUMAN, LLM, CODE)."""
_OWN_IDENTIFIER: Final = SCOPE_ANALYZER
"""Identifier of blamespan's own annotations; like its own events they are never read back."""

# Words of labels: those of Phoenix's, MLflow's, Azure's and OpenAI's evaluators, and of feedback buttons.
_PASSED: Final = frozenset(
    {"pass", "passed", "success", "successful", "correct", "true", "yes", "resolved", "factual", "completed"}
    | {"thumbs up", "thumb up", "👍", "like", "liked", "good", "helpful", "satisfied", "accepted", "approved"}
)
_FAILED: Final = frozenset(
    {"fail", "failed", "failure", "incorrect", "wrong", "false", "no", "unresolved", "error", "hallucinated"}
    | {"thumbs down", "thumb down", "👎", "dislike", "disliked", "bad", "unhelpful", "not helpful"}
    | {"unsatisfied", "dissatisfied", "frustrated", "rejected", "incomplete"}
)
_UNSCALED: Final = re.compile(r"hallucin|error|fail|frustrat|refus|rating|stars?\b|likert", re.IGNORECASE)
"""Names whose score says nothing alone: 0 is the best of an error rate, 1 the worst of five stars."""
_SEPARATORS: Final = str.maketrans("_-", "  ")


def as_guardrail(action: Action, *, name: str, tripped: bool) -> Action:
    """Return the action as a guardrail check, failed if it stopped something or its span says so."""
    failed = tripped or action.failed
    return replace(
        action,
        kind=ActionKind.GUARDRAIL,
        tool=name,
        failed=failed,
        error=action.error or (f"guardrail {name} tripped" if failed else ""),
    )


def stopped_what_it_guards(span: Span, surroundings: Surroundings) -> bool:
    """Say whether the enclosing agent failed with a tripwire error that names this guardrail."""
    for above in islice(surroundings.ancestors(span), _NEAREST):
        if above.status is SpanStatus.ERROR:
            error = error_of(above)
            return _TRIPWIRE in error and span.name in error
    return False


def read_judgements(span: Span) -> tuple[Judgement, ...]:
    """Return evaluators' results on ``span``: from its events, joined logs and flattened attributes."""
    has_lists = _LISTED.search("\n".join(span.attributes))  # one search is faster than one for each name
    if not has_lists and not span.events and not span.logs:
        return ()
    judgements = [
        Judgement(
            name=text(event.attributes, RESULT_NAME) or "",
            outcome=_outcome(event.attributes, RESULT_NAME, RESULT_LABEL, RESULT_SCORE),
            is_by_person=_is_person(event.attributes, EVALUATOR_TYPE),
        )
        for event in events_of(span, RESULT_EVENT)
        if FAILURE_ID not in event.attributes
        and ERROR_TYPE not in event.attributes  # an evaluator's own error
    ]
    if has_lists:
        judgements.extend(_listed(span))
    return tuple(judgements)


def _listed(span: Span) -> Iterator[Judgement]:
    for prefix, entry, is_of_run in _LISTS:
        for fields in below(span.attributes, prefix).values():
            if text(fields, f"{entry}.identifier") == _OWN_IDENTIFIER:
                continue
            yield Judgement(
                name=text(fields, f"{entry}.name") or "",
                outcome=_outcome(fields, f"{entry}.name", f"{entry}.label", f"{entry}.score"),
                is_of_run=is_of_run,
                is_by_person=_is_person(fields, f"{entry}.annotator_kind"),
            )


def _is_person(fields: Attributes, kind: str) -> bool:
    return (text(fields, kind) or "").casefold() == _PERSON


def _outcome(fields: Attributes, name: str, label: str, score: str) -> Outcome | None:
    verdict = (text(fields, label) or "").strip().casefold().translate(_SEPARATORS)
    value = None if verdict or _UNSCALED.search(text(fields, name) or "") else fields.get(score)
    if verdict in _PASSED or value == 1:
        return Outcome.SUCCESS
    return Outcome.FAILURE if verdict in _FAILED or value == 0 else None


# --- why a model stopped ---
#
# Why a model stopped, where that means that it did not answer: a provider's filter, the model's refusal, or
# the limit of its length.
#
# Such a call ends without an error. Sources: OpenAI's ``finish_reason`` (``content_filter``, ``length``) and
# refusal parts, Anthropic's ``stop_reason`` (``refusal``, ``max_tokens``), Gemini's ``FinishReason``
# (``SAFETY``, ``MAX_TOKENS``, …), Bedrock's ``stopReason`` (``content_filtered``), Vercel's
# ``content-filter``, Mistral's ``model_length``. A
# filter of the application (Bedrock's ``guardrail_intervened``) is a guardrail: it did its job.
#
# A model may write about filters and refusals, also in JSON: only the fields of a provider's response or of a
# message count, never text.


_REASONS: Final = (
    GEN_AI_RESPONSE_FINISH_REASONS,
    "gen_ai.completion.0.finish_reason",
    "gen_ai.response.finish_reason",
    "llm.finish_reason",
    "ai.response.finishReason",
)
_MESSAGES: Final = ("gen_ai.output.messages", "output.value")
_OWN_WORDS: Final = ("llm.output_messages.0.message.content", "gen_ai.completion.0.content")
"""What the model said: an ``output.value`` that is the same is no response, whatever JSON it shows."""
_STOPPED: Final = frozenset(
    {"content_filter", "content_filtered", "refusal", "safety", "prohibited_content", "blocklist"}
    | {"spii", "recitation"}
)
_CUT: Final = frozenset(
    {"length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded"}
)
_ENDED_EARLY: Final = _STOPPED | _CUT
_SHORTEST_CUT: Final = 80
"""Least characters of an answer that was cut: a limit of a few tokens asks for a word, and gets it."""
_FEWEST_TOKENS: Final = 20
"""The same in tokens, for spans without texts: a little above 16, the least limit that every API accepts."""
_SENTENCE_END: Final = re.compile(
    r"""(?<!\.)[.!?\u2026\u3002\uff01\uff1f\u061f\u0964]["'\u201d\u2019»)*_\]\u300d]*\Z"""
)
_ENTRY: Final = re.compile(r"(?:\A|\n)\W*\d+\.\W*\Z")
"""The number of an entry that was to follow: no sentence ends there."""
_JSON: Final = re.compile(r'\{|\[\s*[\[{"\d]')
_CODE_FENCE: Final = "```"
_WORD: Final = re.compile(r"[a-z]+(?:[_-][a-z]+)*")
_FINISHED: Final = ("finish_reason", "stop_reason", "finishReason")
_OF_RESPONSE: Final = frozenset({"choices", "candidates", "model", "id"})
"""What a provider's response has; the object that a model was told to write may name a reason too."""
_OF_MODEL: Final = ("assistant", "model", "ai")
_HINT: Final = re.compile(
    rf'(?:{"|".join(_FINISHED)})"\s*:\s*"[^"]{{0,40}}(?:{"|".join(sorted(_ENDED_EARLY))})'.replace(
        "_", "[_-]"
    )
    + r'|"refusal"\s*:\s*"|:\s*"refusal"',
    re.IGNORECASE,
)
"""What stands in the JSON of a stopped answer: nothing else is parsed."""
_MOST: Final = 200_000
"""Characters of recorded messages that are parsed."""


def with_finish(action: Action, span: Span) -> Action:
    """Return a model call as failed if a filter or a limit ended its answer, or the model refused one."""
    if action.kind is not ActionKind.LLM or action.failed:
        return action
    reason = _reason(span.attributes)
    if not reason or (reason in _CUT and not action.requested and _is_answered(action, span)):
        return action
    return replace(action, failed=True, error=_said(reason))


def _is_answered(action: Action, span: Span) -> bool:
    """Tell whether an answer that a limit ended was given: one of several is enough.

    Some servers report ``length`` for every answer, and a limit may fall behind the last word.
    """
    written = [message.text for message in action.output_messages if message.text] or [action.output]
    if any(written):
        return any(map(_is_whole, written))
    return 0 < (model_call(span).output_tokens or 0) <= _FEWEST_TOKENS


def _is_whole(written: str) -> bool:
    """Tell whether a text is a few words, or ends with a sentence, a fence or the bracket of its JSON."""
    held = written.strip()
    if held.count(_CODE_FENCE) % 2:
        return False
    if _JSON.match(held):
        return not isinstance(structured(held), str)
    if len(held) < _SHORTEST_CUT or held.endswith(_CODE_FENCE):
        return True
    end = held[-_SHORTEST_CUT:]
    return _SENTENCE_END.search(end) is not None and _ENTRY.search(end) is None


def _reason(attributes: Attributes) -> str:
    for name in _REASONS:
        if name in attributes and (reason := _of_choices(map(_ending, _each(attributes[name])))):
            return reason
    own = [attributes[name] for name in _OWN_WORDS if name in attributes]
    for name in _MESSAGES:
        said = attributes.get(name)
        if not isinstance(said, str) or len(said) > _MOST or said in own or not _HINT.search(said):
            continue
        if reason := next(filter(None, _reasons(structured(said))), ""):
            return reason
    return ""


def _reasons(recorded: Any) -> Iterator[str]:
    """Yield why the answers of a response, or of a list of messages or choices, ended."""
    for response in _objects(recorded):
        message = response.get("message")
        if not _OF_RESPONSE.isdisjoint(response) or any(map(_is_models, _objects(message))):
            yield _finished(response)
        for each in (response, *_objects(message), *_objects(response.get("output"))):
            yield _in_message(each)
        for name in ("choices", "candidates"):
            choices = _objects(response.get(name))
            yield _of_choices(map(_finished, choices))
            for choice in choices:
                for each in (*_objects(choice.get("message")), *_objects(choice.get("content"))):
                    yield _in_message(each)


def _of_choices(reasons: Iterable[str]) -> str:
    """Return why the answers of one call ended early: no limit, if it spared one of them."""
    found = list(reasons)
    return next((one for one in found if one and (one in _STOPPED or all(found))), "")


def _each(reasons: Any) -> Sequence[str]:
    """Return the reasons that an attribute lists, itself or as JSON, or the one that it is."""
    listed = structured(reasons) if isinstance(reasons, str) else reasons
    return list(map(words, listed)) if isinstance(listed, list | tuple) else [words(reasons)]


def _in_message(message: Mapping[str, Any]) -> str:
    if not _is_models(message):
        return ""
    if reason := _finished(message):
        return reason
    parts = (*_objects(message.get("parts")), *_objects(message.get("content")))
    refusal = message.get("refusal")
    refused = (isinstance(refusal, str) and refusal) or any(part.get("type") == "refusal" for part in parts)
    return "refusal" if refused else ""


def _is_models(message: Mapping[str, Any]) -> bool:
    return message.get("role") in _OF_MODEL


def _finished(ended: Mapping[str, Any]) -> str:
    return next(filter(None, (_ending(words(ended[name])) for name in _FINISHED if name in ended)), "")


def _objects(value: Any) -> Sequence[Mapping[str, Any]]:
    """Return the object that a value is, or those that it lists."""
    listed = value if isinstance(value, list) else [value]
    return [each for each in listed if isinstance(each, dict)]


def _ending(reasons: str) -> str:
    found = (word.replace("-", "_") for word in _WORD.findall(reasons.lower()))
    return next((word for word in found if word in _ENDED_EARLY), "")


def _said(reason: str) -> str:
    if reason == "refusal":
        return "the model refused to answer (refusal)"
    if reason in _CUT:
        return f"the answer was cut off at the model's output limit ({reason})"
    return f"the provider's filter stopped the answer ({reason})"
