"""Any litellm model as a ``Model``. The only importer of litellm, and lazily: the import takes seconds.

litellm is in the extra ``models``; without it no model is asked and no price is known.

Failures become ``ModelError``, without secrets. The analyzer's own calls must not come back as agent
traffic: local instrumentation is switched off around each call, and the call carries
an unsampled ``traceparent`` whose trace id begins with ``OWN_CALL_TRACE_PREFIX``, by
which the forwarder recognises it in raw bytes.

A call takes some milliseconds of the caller's event loop, most of them in litellm. A separate loop
on its own thread would share the interpreter lock: with ten calls a second, pages took as long in
the median and longer in the worst case, so there is none.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import logging
import math
import os
import re
import secrets
import sys
import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from opentelemetry import context

from analyzer.inquiry.errors import ModelError, ModelFailure, ModelNeeded
from analyzer.inquiry.method import Prompt, Reply
from collector_processor.rebuild.redaction import redact
from semconv.markers import OWN_CALL_TRACE_PREFIX

INSTALL_MODELS: Final = "pip install '.[models]' in the checkout"
"""The line to type where litellm is missing."""
LONGEST_REPLY: Final = 1_000_000
"""Longest reply in characters; expected answers are under a hundredth of it."""

_LOCAL_PRICES: Final = "LITELLM_LOCAL_MODEL_COST_MAP"
"""litellm's variable: with "True" its prices are those in its package, not those on the network."""
_NOWHERE: Final = "http://127.0.0.1:1"
"""A loopback port that refuses connections at once."""
_DEFAULT_CONTEXT_TOKENS: Final = 32_000
"""Context in tokens of models that litellm does not list."""
_REASONING_TOKENS: Final = 8_000
"""Extra output tokens for the reasoning of models that think first."""
_BYTES_PER_TOKEN: Final = 3
_MOST_TOKENS: Final = 10**9
"""Largest plausible token count; higher counts from a server are wrong, and overflow databases."""
_TEMPLATE_TOKENS: Final = 1_000
"""Tokens that providers add to a prompt for roles, tools and schemas; measured: some dozens."""
_DEAREST_TOKEN_USD: Final = 0.001
"""Price per token above that of any listed model (600 USD a million); bounds calls of unlisted models."""
_SAMPLING_TEMPERATURE: Final = 0.7
"""Temperature of further samples, as in the self-consistency paper (arXiv:2203.11171)."""
_SUPPRESSED: Final = (
    # Suppression keys of OpenTelemetry's, OpenInference's and Traceloop's instrumentations.
    "suppress_instrumentation",
    "suppress_http_instrumentation",
    "suppress_language_model_instrumentation",
)
_CLIENT_SHARE: Final = 0.9
"""Share of an attempt's time limit at which the HTTP client itself gives up."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Timeout and retries of a call."""

    timeout_s: float = 120.0
    """Timeout of one attempt."""
    attempts: int = 4
    first_wait_s: float = 1.0
    """First wait before a retry; doubled each time, plus up to half at random."""
    longest_wait_s: float = 60.0
    """Longest wait, also for ``Retry-After``; a model that asks for more has failed."""


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
    """Context in tokens; overrides litellm's entry."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _plain: bool = False
    """Set once the model has refused a response schema."""

    @property
    def context_tokens(self) -> int:
        """Return the model's context as configured, as listed by litellm, or a conservative default."""
        known = self.context_limit or _price_list(self.name).get("max_input_tokens")
        return int(known) if known else _DEFAULT_CONTEXT_TOKENS

    def price(self, prompt: Prompt) -> float | None:
        """Return the price of the prompt and the longest answer; ``None`` without a listed price."""
        return self._cost(_tokens_of(prompt), self._output_tokens(prompt))

    def missing_settings(self) -> tuple[str, ...]:
        """Return the environment variables that litellm requires for this model and that are not set."""
        found = _litellm().validate_environment(model=self.name)
        return () if found.get("keys_in_environment") else tuple(found.get("missing_keys") or ())

    async def prepare(self) -> None:
        """Import litellm in a thread, because the import would block the event loop for seconds."""
        await asyncio.to_thread(_warm_up)

    async def complete(self, prompt: Prompt) -> Reply:
        """Call the model, with retries if it is busy or unreachable.

        Raises:
            ModelError: every attempt failed, or one failed in a way that a retry cannot fix.
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
        """Return the seconds until the next attempt; ``None`` if there should be none."""
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
        # Many servers support no JSON schema or temperature; the prompt also describes the format.
        self._plain = True
        return await self._call(prompt, with_schema=False)

    async def _call(self, prompt: Prompt, *, with_schema: bool) -> Reply:
        litellm = _litellm()
        temperature = _SAMPLING_TEMPERATURE if prompt.sample else prompt.temperature
        options: dict[str, Any] = {} if self._plain or temperature is None else {"temperature": temperature}
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
            raise translated(error, litellm.exceptions, self.patience.timeout_s) from error
        return self._counted(prompt, _reply(response))

    def _counted(self, prompt: Prompt, reply: Reply) -> Reply:
        """Return the reply with a plausible cost for its call.

        Estimated if the server reported no tokens, or fewer than none; otherwise calls would seem free, and
        budgets would have no effect. Usage beyond what the request could have cost is capped: one wrong
        report must not spend the hour's budget for all.
        """
        sent = reply.input_tokens or _tokens_of(prompt)
        received = reply.output_tokens or _tokens_in(reply.text)
        is_told = (sent, received) == (reply.input_tokens, reply.output_tokens)
        most_sent, most_received = _most_tokens(prompt), self._output_tokens(prompt)
        most_usd = self._cost(most_sent, most_received)
        if most_usd is None:
            most_usd = _DEAREST_TOKEN_USD * (most_sent + most_received)
        known = replace(reply, input_tokens=min(sent, most_sent), output_tokens=min(received, most_received))
        usd = reply.cost_usd if is_told else None
        usd = self._cost(known.input_tokens, known.output_tokens) if usd is None else min(usd, most_usd)
        known = replace(known, cost_usd=usd)
        is_capped = reply.input_tokens > most_sent or reply.output_tokens > most_received
        if not is_capped and (reply.cost_usd or 0.0) <= most_usd:
            return known
        logger.warning(
            "the model reported more usage than the request could have; the excess is not counted",
            extra={
                "reported_tokens": reply.input_tokens + reply.output_tokens,
                "most_tokens": most_sent + most_received,
                "reported_usd": reply.cost_usd,
                "most_usd": most_usd,
            },
        )
        return replace(known, is_usage_suspect=True)

    def _cost(self, sent: int, received: int) -> float | None:
        """Return the cost of these token counts in USD; ``None`` if the model has no listed price."""
        return price_of(self.name, sent, received)

    def _output_tokens(self, prompt: Prompt) -> int:
        thinks = bool(_price_list(self.name).get("supports_reasoning"))
        return prompt.max_output_tokens + (_REASONING_TOKENS if thinks else 0)


def is_litellm_installed() -> bool:
    """Return whether models can be asked; imports nothing."""
    return find_spec("litellm") is not None


def require_litellm(model: str) -> None:
    """Refuse a model that cannot be asked, before anything starts.

    Raises:
        ModelNeeded: litellm is not installed.
    """
    if not is_litellm_installed():
        raise ModelNeeded(
            f"the model {model} cannot be asked: litellm is not installed; it is in the extra models:"
            f" {INSTALL_MODELS}"
        )


def price_of(model: str, sent: int, received: int) -> float | None:
    """Return the most that these tokens may cost in USD; ``None`` without a listed price, or without litellm.

    Some of DeepSeek's models cost half as much in off-peak hours (``off_peak_pricing``), and litellm takes
    that price for a call made then. A budget must hold at any hour, so this is the full price.
    """
    prices = _price_list(model)
    per_input, per_output = prices.get("input_cost_per_token"), prices.get("output_cost_per_token")
    if not isinstance(per_input, int | float) or not isinstance(per_output, int | float):
        return None
    return float(sent * per_input + received * per_output)


def _litellm() -> Any:
    """Import litellm as a quiet library: no telemetry, no callbacks, no price list from the network."""
    os.environ.setdefault(_LOCAL_PRICES, "True")
    if "litellm" not in sys.modules:
        with _uncollected():
            importlib.import_module("litellm")
    import litellm  # noqa: PLC0415 - takes seconds; needed only for model calls

    litellm.telemetry = False
    litellm.suppress_debug_info = True
    # litellm's types cause a pydantic warning during the first call,
    warnings.filterwarnings("ignore", message=r"Item '\w+' on TypedDict class", category=UserWarning)
    # and another for every reply that deviates from OpenAI's format.
    warnings.filterwarnings("ignore", message="Pydantic serializer warnings", category=UserWarning)
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy", "httpx"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return litellm


def _warm_up() -> None:
    """Import litellm, and call an unreachable server to trigger the first call's lazy imports (0.4 s)."""
    litellm = _litellm()
    with suppress(*litellm.LITELLM_EXCEPTION_TYPES), _unobserved():
        asyncio.run(_call_nobody(litellm))


async def _call_nobody(litellm: Any) -> None:
    await litellm.acompletion(
        model="openai/none",
        messages=[{"role": "user", "content": ""}],
        api_base=_NOWHERE,
        api_key="none",
        timeout=1.0,
        max_retries=0,
        num_retries=0,
    )


@contextmanager
def _uncollected() -> Iterator[None]:
    """Disable garbage collection during the import, whose objects all stay: saves a quarter of its time."""
    was_on, is_own_process = gc.isenabled(), gc.get_freeze_count() > 0
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if not is_own_process:
            gc.unfreeze()  # into the oldest generation: what the caller drops later is still found
        if was_on:
            gc.enable()


def _price_list(model: str) -> Mapping[str, Any]:
    """Return a model's entry in litellm's bundled list; empty if there is none, or no litellm."""
    if not is_litellm_installed():
        return {}
    known = _bundled_prices()
    known = _litellm().model_cost if known is None else known
    entry = known.get(model) or known.get(model.partition("/")[2])
    return entry if isinstance(entry, Mapping) else {}


@cache
def _bundled_prices() -> Mapping[str, Any] | None:
    """Return the price list in litellm's package without importing it.

    ``None`` if another list is wanted or there is none: litellm knows then. Empty if the file is broken.
    """
    found = find_spec("litellm")
    folder = next(iter(found.submodule_search_locations or ()), None) if found else None
    file = Path(folder or "", "model_prices_and_context_window_backup.json")
    if os.environ.get(_LOCAL_PRICES, "True").lower() != "true" or not folder or not file.exists():
        return None
    try:
        listed = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return listed if isinstance(listed, dict) else {}


def _reply(response: Any) -> Reply:
    choices = getattr(response, "choices", None) or []
    said = (choices[0].message.content if choices else None) or ""
    text = said.encode(errors="replace").decode()  # lone surrogates cannot be stored as UTF-8
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


def _most_tokens(prompt: Prompt) -> int:
    """Return an upper bound: no tokeniser makes more than one token of a byte."""
    schema = json.dumps(dict(prompt.response_schema.schema)) if prompt.response_schema else ""
    texts = [schema, *(message.content for message in prompt.messages)]
    return _TEMPLATE_TOKENS + sum(len(text.encode(errors="replace")) for text in texts)


def _tokens_of(prompt: Prompt) -> int:
    return sum(_tokens_in(message.content) for message in prompt.messages)


def _tokens_in(text: str) -> int:
    """Estimate conservatively the tokens of a text."""
    return -(-len(text.encode(errors="replace")) // _BYTES_PER_TOKEN)


@contextmanager
def _unobserved() -> Iterator[None]:
    """Suppress local instrumentation inside the block."""
    current = context.get_current()
    for key in _SUPPRESSED:
        current = context.set_value(key, True, current)
    token = context.attach(current)
    try:
        yield
    finally:
        context.detach(token)


def _own_traceparent() -> str:
    """Return an unsampled W3C trace context with our own prefix."""
    return f"00-{OWN_CALL_TRACE_PREFIX}{secrets.token_hex(8)}-{secrets.token_hex(8)}-00"


_RETRYABLE_STATUS: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_RETRYABLE: Final = frozenset(
    {ModelFailure.TIMEOUT, ModelFailure.RATE_LIMITED, ModelFailure.CONNECTION, ModelFailure.UNAVAILABLE}
)
_DENIED_STATUS: Final = frozenset({401, 402, 403, 404})
_LAYERS: Final = re.compile(r"^(?:(?:litellm\.)?\w+(?:Error|Timeout): |\w+Exception - )+")
"""Prefixes that litellm adds to a provider's message."""

_KEY_NAMES: Final = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_CREDENTIALS")
"""Name endings of environment variables with secrets for litellm and its providers."""
_SHORTEST_KEY: Final = 8


def translated(error: Exception, known: Any, timeout_s: float) -> ModelError:
    """Return our error for a litellm error, which may carry a status or a response.

    Args:
        error: what litellm raised.
        known: litellm's module of exceptions.
        timeout_s: the attempt's timeout.
    """
    kind = _kind(error, known, getattr(error, "status_code", None))
    first_part, _, _ = str(error).partition(
        "Traceback (most recent call last)"
    )  # litellm's own, with our paths
    message = _without_keys(_LAYERS.sub("", " ".join(first_part.split())))[:300]
    if kind is ModelFailure.TIMEOUT:
        message = f"no reply within {timeout_s:g} s"
    retryable = kind in _RETRYABLE
    after = _retry_after(error) if retryable else None
    return ModelError(message, kind=kind, retryable=retryable, retry_after_s=after)


def _without_keys(message: str) -> str:
    """Remove secrets from a message: providers quote rejected keys, and messages reach logs and pages."""
    for name, value in os.environ.items():
        if name.endswith(_KEY_NAMES) and len(value) >= _SHORTEST_KEY:
            message = message.replace(value, "[key]")
    return redact(message)


def _kind(error: Exception, known: Any, status: int | None) -> ModelFailure:
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
    """Return the seconds of a ``Retry-After`` header; dates are ignored (no model API sends them)."""
    response = getattr(error, "response", None)
    headers = getattr(error, "litellm_response_headers", None) or getattr(response, "headers", None) or {}
    value = str(headers.get("retry-after", "")).strip()
    return float(value) if value.replace(".", "", 1).isdigit() else None
