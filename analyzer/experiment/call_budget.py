"""Budget of an experiment: reserves live calls before they are made, across all trials. Pure."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from analyzer.experiment.replay.gateway_options import LiveCall, LiveUsage
from analyzer.experiment.sequential import Draw
from semconv.record import record

Price: TypeAlias = Callable[[str, int, int], float | None]
"""Price in USD of a model's input and output tokens; ``None`` if the model has no listed price."""

BUDGET_USD: Final = 5.0
_BYTES_PER_TOKEN: Final = 2
"""Characters per token: low for any language, so that the reservation is an upper bound for text."""
_OUTPUT_TOKENS: Final = 16_384
"""Tokens reserved for an answer whose request sets no limit: the limit of most chat models."""
_MOST_TOKENS: Final = 10**9
"""Bound on the tokens that a request may ask for: far above any answer, and within a float's range."""
_IDS: Final = frozenset({"id", "call_id", "tool_call_id", "tool_use_id"})
_UNPAID: Final = frozenset({"rate_limited", "unavailable"})
"""Failures for which no provider charges."""


@record
class Spent:
    """Usage of trials."""

    calls: int = 0
    cost_usd: float | None = 0.0
    """``None`` if a model's price is unknown."""

    def plus(self, other: Spent) -> Spent:
        """Return the sum; an unknown cost makes the sum unknown."""
        is_known = self.cost_usd is not None and other.cost_usd is not None
        cost = (self.cost_usd or 0.0) + (other.cost_usd or 0.0) if is_known else None
        return Spent(calls=self.calls + other.calls, cost_usd=cost)


class Ledger:
    """Ledger of one experiment; ``reserve`` and ``settle`` are the gateway's hooks."""

    def __init__(self, price: Price, *, budget_usd: float = BUDGET_USD, max_calls: int | None = None) -> None:
        """Create an empty ledger."""
        self._price: Final = price
        self._budget: Final = budget_usd
        self._max_calls: Final = max_calls
        self._spent: Final[dict[str, Spent]] = {}
        self._draws: Final[dict[str, list[Draw]]] = {}
        self._under_way: Final[dict[int, float]] = {}
        self._calls = 0
        self.exhausted = ""
        """Reason why no further call is made; empty while there is budget."""

    @property
    def total(self) -> Spent:
        """Usage of all trials."""
        total = Spent()
        for spent in self._spent.values():
            total = total.plus(spent)
        return total

    def of(self, trial: str) -> Spent:
        """Return the usage of one trial."""
        return self._spent.get(trial, Spent())

    def draws(self, trial: str) -> tuple[Draw, ...]:
        """Return the live answers of one trial."""
        return tuple(self._draws.get(trial, ()))

    async def reserve(self, call: LiveCall) -> str:
        """Reserve a call's highest cost; return the reason for a refusal, or nothing."""
        most = self._most(call)
        if self._max_calls is not None and self._calls >= self._max_calls:
            self.exhausted = f"the {self._max_calls} live calls of --max-calls are used up"
        elif most is None and self._budget <= 0:
            self.exhausted = f"the price of the model {call.model!r} is unknown, and the budget is $0"
        elif most is None and self._max_calls is None:
            self.exhausted = f"the price of the model {call.model!r} is unknown: expected --max-calls"
        elif self._usd + (most or 0.0) > self._budget:
            left = max(0.0, self._budget - self._usd)
            self.exhausted = (
                f"the budget of ${self._budget:g} is used up: ${left:.4f} is left, and a call may cost"
                f" ${most or 0.0:.4f}"
            )
        else:
            self._calls += 1
            self._under_way[id(call)] = most if most is not None else math.nan
            return ""
        return self.exhausted

    async def settle(self, call: LiveCall, usage: LiveUsage) -> None:
        """Replace a call's reservation by its actual usage."""
        most = self._under_way.pop(id(call), math.nan)
        cost = self._cost(call, usage, None if math.isnan(most) else most)
        self._spent[call.trial] = self.of(call.trial).plus(Spent(calls=1, cost_usd=cost))
        if not usage.failure:
            self._draws.setdefault(call.trial, []).append(_draw(call, usage))

    @property
    def _usd(self) -> float:
        reserved = sum(usd for usd in self._under_way.values() if not math.isnan(usd))
        return (sum(spent.cost_usd or 0.0 for spent in self._spent.values())) + reserved

    def _most(self, call: LiveCall) -> float | None:
        body = _object(call.body)
        limits = [body.get(name) for name in ("max_completion_tokens", "max_tokens", "max_output_tokens")]
        limit = next((each for each in limits if isinstance(each, int)), _OUTPUT_TOKENS)
        answers = body.get("n")
        many = answers if isinstance(answers, int) and answers > 0 else 1
        tokens = min(max(limit, 0) * many, _MOST_TOKENS)
        return self._price(call.model, len(call.body) // _BYTES_PER_TOKEN, tokens)

    def _cost(self, call: LiveCall, usage: LiveUsage, most: float | None) -> float | None:
        if usage.failure in _UNPAID or usage.failure.startswith("http_4"):
            return 0.0 if most is not None else None
        sent, received = usage.input_tokens, usage.output_tokens
        if not sent and not received:  # streams report usage only on request
            if usage.failure or not usage.said_bytes:
                return most  # the provider may have charged the full cost
            sent, received = len(call.body) // _BYTES_PER_TOKEN, usage.said_bytes // _BYTES_PER_TOKEN
        return self._price(call.model, sent, received)


def _draw(call: LiveCall, usage: LiveUsage) -> Draw:
    body = _object(call.body)
    parameters = {name: body[name] for name in ("temperature", "top_p", "seed") if name in body}
    return Draw(
        source=f"{call.model} {json.dumps(parameters)}",
        request=hashlib.sha256(json.dumps(_without_ids(body), sort_keys=True).encode()).hexdigest(),
        answer=usage.answer,
        is_greedy=parameters.get("temperature") == 0,
    )


def _without_ids(body: Mapping[str, Any]) -> Any:
    """Return a request without the ids in it, which differ from trial to trial."""
    return json.loads(json.dumps(body), object_hook=_drop_ids)


def _drop_ids(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name not in _IDS}


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
