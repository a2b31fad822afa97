"""Any litellm model as a ``Model``. The only importer of litellm, and lazily: the import takes seconds.

What goes wrong is told as ``ModelError``. Our own calls must not come back to us
as agent traffic: local instrumentation is switched off around each call, and the
call carries an unsampled ``traceparent`` whose trace id begins with
``OWN_CALL_TRACE_PREFIX``, by which the fast lane knows it in raw bytes.

A call takes some milliseconds of the caller's loop, most of them litellm's own. On a loop in a
thread of its own it takes them of the same interpreter: a page beside ten calls a second took
as long in the middle and longer at its worst, so there is none.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import math
import os
import re
import secrets
import sys
import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from opentelemetry import context

from analyzer.errors import ModelError, ModelFailure
from analyzer.method import Prompt, Reply
from collector_processor.redaction import redact
from semconv.markers import OWN_CALL_TRACE_PREFIX

LONGEST_REPLY: Final = 1_000_000
"""Characters; no answer we ask for is a hundredth of it."""

_DEFAULT_CONTEXT_TOKENS: Final = 32_000
"""For models that litellm has no entry for."""
_REASONING_TOKENS: Final = 8_000
"""Room beside the answer for models that think first; it counts as output."""
_BYTES_PER_TOKEN: Final = 3
_MOST_TOKENS: Final = 10**9
"""No call has as many; a server that says so cannot count, and databases would trip over it."""
_SAMPLING_TEMPERATURE: Final = 0.7
"""For a further answer to the same question; what self-consistency was measured with (arXiv:2203.11171)."""
_SUPPRESSED: Final = (
    # How OpenTelemetry's, OpenInference's and Traceloop's instrumentations are told to be still.
    "suppress_instrumentation",
    "suppress_http_instrumentation",
    "suppress_language_model_instrumentation",
)
_RETRYABLE_STATUS: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_CLIENT_SHARE: Final = 0.9
"""Of the time for an attempt, what the HTTP client gets to give up by itself, and tidily."""
_RETRYABLE: Final = frozenset(
    {ModelFailure.TIMEOUT, ModelFailure.RATE_LIMITED, ModelFailure.CONNECTION, ModelFailure.UNAVAILABLE}
)
_DENIED_STATUS: Final = frozenset({401, 402, 403, 404})
_LAYERS: Final = re.compile(r"^(?:(?:litellm\.)?\w+(?:Error|Timeout): |\w+Exception - )+")
"""What litellm wraps around a provider's words."""

_KEY_NAMES: Final = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_CREDENTIALS")
"""Ends of the names of variables that litellm and its providers take secrets from."""
_SHORTEST_KEY: Final = 8

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a call may take, and how it is tried again."""

    timeout_s: float = 120.0
    """For one attempt."""
    attempts: int = 4
    first_wait_s: float = 1.0
    """Doubled each time, and lengthened by up to a half at random."""
    longest_wait_s: float = 60.0
    """Also the most that a ``Retry-After`` is obeyed; a model that asks for more has failed."""


@dataclass(slots=True, kw_only=True)
class LiteLLM:
    """One model by its litellm name: ``gpt-4o``, ``ollama/llama3``, ``openai/…`` with a base URL.

    Keys and base URLs are read by litellm from its own environment variables.
    """

    name: str
    patience: Patience = field(default_factory=Patience)
    api_base: str | None = None
    api_key: str | None = None
    context_limit: int | None = None
    """Tokens; overrides what litellm knows of the model."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _plain: bool = False
    """Set once the model has refused a response schema."""

    @property
    def context_tokens(self) -> int:
        """Return the model's context as set, as litellm knows it, or a careful guess."""
        known = self.context_limit or _price_list(self.name).get("max_input_tokens")
        return int(known) if known else _DEFAULT_CONTEXT_TOKENS

    def price(self, prompt: Prompt) -> float | None:
        """Return the price of the prompt and the longest answer; ``None`` if it is in no price list."""
        return self._cost(_tokens_of(prompt), self._output_tokens(prompt))

    def missing_settings(self) -> tuple[str, ...]:
        """Return the environment variables that litellm wants for this model and does not find."""
        found = _litellm().validate_environment(model=self.name)
        return () if found.get("keys_in_environment") else tuple(found.get("missing_keys") or ())

    async def prepare(self) -> None:
        """Import litellm beside the event loop, which the import would hold up for seconds."""
        await asyncio.to_thread(_litellm)

    async def complete(self, prompt: Prompt) -> Reply:
        """Ask the model, again after a while if it is busy or away.

        Raises:
            ModelError: every attempt failed, or the first in a way that trying again cannot mend.
        """
        for attempt in range(1, self.patience.attempts + 1):
            try:
                return await self._attempt(prompt)
            except ModelError as error:
                wait_s = self._wait(error, attempt)
                if wait_s is None:
                    raise
                logger.info(
                    "model call will be retried",
                    extra={"kind": error.kind, "attempt": attempt, "wait_s": round(wait_s, 3)},
                )
            await self.sleep(wait_s)
        raise AssertionError("the last attempt either returns or raises")

    def _wait(self, error: ModelError, attempt: int) -> float | None:
        """Seconds until the next attempt; ``None`` if there should be none."""
        if not error.retryable or attempt >= self.patience.attempts:
            return None
        if error.retry_after_s is not None:
            return error.retry_after_s if error.retry_after_s <= self.patience.longest_wait_s else None
        wait_s = self.patience.first_wait_s * 2.0 ** (attempt - 1) * (1 + secrets.randbelow(500) / 1000)
        return min(wait_s, self.patience.longest_wait_s)

    async def _attempt(self, prompt: Prompt) -> Reply:
        with_schema = prompt.response_schema is not None and not self._plain
        try:
            return await self._call(prompt, with_schema=with_schema)
        except ModelError as error:
            if not with_schema or error.kind is not ModelFailure.REFUSED:
                raise
        # Many servers know no JSON schema, or no temperature; the prompt says the shape in words too.
        self._plain = True
        return await self._call(prompt, with_schema=False)

    async def _call(self, prompt: Prompt, *, with_schema: bool) -> Reply:
        litellm = _litellm()
        temperature = _SAMPLING_TEMPERATURE if prompt.sample else 0.0
        options: dict[str, Any] = {"temperature": temperature} if not self._plain else {}
        if with_schema and prompt.response_schema is not None:
            options["response_format"] = {
                "type": "json_schema",
                "json_schema": {
                    "name": prompt.response_schema.name,
                    "schema": dict(prompt.response_schema.schema),
                    "strict": True,
                },
            }
        try:
            with _unobserved():
                async with asyncio.timeout(self.patience.timeout_s):
                    response = await litellm.acompletion(
                        model=self.name,
                        messages=[{"role": m.role, "content": m.content} for m in prompt.messages],
                        max_tokens=self._output_tokens(prompt),
                        timeout=self.patience.timeout_s * _CLIENT_SHARE,
                        max_retries=0,
                        num_retries=0,
                        drop_params=True,
                        api_base=self.api_base,
                        api_key=self.api_key,
                        extra_headers={"traceparent": _own_traceparent()},
                        **options,
                    )
        except TimeoutError as error:
            raise ModelError(
                f"no reply within {self.patience.timeout_s:g} s", kind=ModelFailure.TIMEOUT, retryable=True
            ) from error
        except tuple(litellm.LITELLM_EXCEPTION_TYPES) as error:
            raise _translated(error, self.patience.timeout_s) from error
        return self._counted(prompt, _reply(response))

    def _counted(self, prompt: Prompt, reply: Reply) -> Reply:
        """Return the reply with an estimate of what it took where the server has not counted.

        Without, its calls would seem free, and no budget would hold.
        """
        if reply.input_tokens > 0:
            return reply
        sent, received = _tokens_of(prompt), _tokens_in(reply.text)
        cost = self._cost(sent, received)
        return replace(reply, input_tokens=sent, output_tokens=received, cost_usd=cost)

    def _cost(self, sent: int, received: int) -> float | None:
        """Return what so many tokens cost in USD; ``None`` if the model is in no price list."""
        prices = _price_list(self.name)
        per_input, per_output = prices.get("input_cost_per_token"), prices.get("output_cost_per_token")
        if per_input is None or per_output is None:
            return None
        return float(sent * per_input + received * per_output)

    def _output_tokens(self, prompt: Prompt) -> int:
        thinks = bool(_price_list(self.name).get("supports_reasoning"))
        return prompt.max_output_tokens + (_REASONING_TOKENS if thinks else 0)


def _litellm() -> Any:
    """Import litellm as a quiet library: no telemetry, no callbacks, no price list from the network."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    if "litellm" not in sys.modules:
        with _uncollected():
            importlib.import_module("litellm")
    import litellm  # noqa: PLC0415 - seconds; only those who ask a model pay for it

    litellm.telemetry = False
    litellm.suppress_debug_info = True
    # litellm's types make pydantic complain, once, in the middle of the first call.
    warnings.filterwarnings("ignore", message=r"Item '\w+' on TypedDict class", category=UserWarning)
    # ... and of every reply whose shape is not quite OpenAI's.
    warnings.filterwarnings("ignore", message="Pydantic serializer warnings", category=UserWarning)
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy", "httpx"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return litellm


@contextmanager
def _uncollected() -> Iterator[None]:
    """Spare the garbage collector an import of which all stays: a quarter of its time, and of each call's."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()


def _price_list(model: str) -> Mapping[str, Any]:
    """What litellm's bundled list says of a model; empty if it is not in it."""
    known = _litellm().model_cost
    entry = known.get(model) or known.get(model.partition("/")[2])
    return entry if isinstance(entry, Mapping) else {}


def _reply(response: Any) -> Reply:
    choices = getattr(response, "choices", None) or []
    said = (choices[0].message.content if choices else None) or ""
    text = said.encode(errors="replace").decode()  # half a surrogate pair is no text to whoever keeps it
    if len(text) > LONGEST_REPLY:
        raise ModelError(
            f"the reply has {len(text)} characters, more than the {LONGEST_REPLY} that are read",
            kind=ModelFailure.TOO_LARGE,
        )
    usage = getattr(response, "usage", None)
    cost = (getattr(response, "_hidden_params", None) or {}).get("response_cost")
    return Reply(
        text=text,
        input_tokens=_within_reason(getattr(usage, "prompt_tokens", 0)),
        output_tokens=_within_reason(getattr(usage, "completion_tokens", 0)),
        cost_usd=float(cost) if cost is not None and 0 <= float(cost) < math.inf else None,
    )


def _within_reason(tokens: Any) -> int:
    return min(max(0, int(tokens or 0)), _MOST_TOKENS)


def _tokens_of(prompt: Prompt) -> int:
    return sum(_tokens_in(message.content) for message in prompt.messages)


def _tokens_in(text: str) -> int:
    """How many tokens a text is at most, by a careful estimate."""
    return -(-len(text.encode(errors="replace")) // _BYTES_PER_TOKEN)


def _translated(error: Exception, timeout_s: float) -> ModelError:
    """Our error for one of litellm's, which carry a status, a response, both or neither."""
    kind = _kind(error, getattr(error, "status_code", None))
    told, _, _ = str(error).partition("Traceback (most recent call last)")  # litellm's own, with our paths
    message = _without_keys(_LAYERS.sub("", " ".join(told.split())))[:300]
    if kind is ModelFailure.TIMEOUT:
        message = f"no reply within {timeout_s:g} s"
    retryable = kind in _RETRYABLE
    after = _retry_after(error) if retryable else None
    return ModelError(message, kind=kind, retryable=retryable, retry_after_s=after)


def _without_keys(message: str) -> str:
    """Providers quote what they refuse, keys among it; the message ends in logs, verdicts and pages."""
    for name, value in os.environ.items():
        if name.endswith(_KEY_NAMES) and len(value) >= _SHORTEST_KEY:
            message = message.replace(value, "[key]")
    return redact(message)


def _kind(error: Exception, status: int | None) -> ModelFailure:
    known = _litellm().exceptions
    if isinstance(error, known.ContextWindowExceededError):
        kind = ModelFailure.CONTEXT_TOO_LONG
    elif isinstance(error, known.Timeout):
        kind = ModelFailure.TIMEOUT
    elif status == 429:
        kind = ModelFailure.RATE_LIMITED
    elif status in _DENIED_STATUS:
        kind = ModelFailure.DENIED
    elif isinstance(error, known.APIConnectionError) or "Connection error" in str(error)[:200]:
        kind = ModelFailure.CONNECTION
    elif status in _RETRYABLE_STATUS:
        kind = ModelFailure.UNAVAILABLE
    else:
        kind = ModelFailure.REFUSED
    return kind


def _retry_after(error: Exception) -> float | None:
    """Seconds from a ``Retry-After`` header; dates are not read (no model API sends them)."""
    response = getattr(error, "response", None)
    headers = getattr(error, "litellm_response_headers", None) or getattr(response, "headers", None) or {}
    value = str(headers.get("retry-after", "")).strip()
    return float(value) if value.replace(".", "", 1).isdigit() else None


@contextmanager
def _unobserved() -> Iterator[None]:
    """Switch local instrumentation off for what happens inside."""
    current = context.get_current()
    for key in _SUPPRESSED:
        current = context.set_value(key, True, current)
    token = context.attach(current)
    try:
        yield
    finally:
        context.detach(token)


def _own_traceparent() -> str:
    """An unsampled W3C trace context of our own."""
    return f"00-{OWN_CALL_TRACE_PREFIX}{secrets.token_hex(8)}-{secrets.token_hex(8)}-00"
