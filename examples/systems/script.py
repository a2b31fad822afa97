"""Script of the example systems' model: mostly right, and wrong at random.

Pure, with the standard library alone. A reply depends on the role, the task, the conversation so far, and
chance. Each order has its own difficulty for each role, so that the mistakes fall on different roles. A role
uses the values in the conversation, right or wrong, so mistakes propagate.

``play`` is the same story without a framework: it gives the success rate from any point on.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

MISTAKES = (0.02, 0.02, 0.05, 0.3)
"""Probabilities of a mistake, drawn for each role of each order."""
CATCHES = 0.05
"""Probability that a checking role notices a wrong value."""
OPENINGS = ("Well.", "Let me see.", "Here it is.", "I went through it.", "Done.", "All right.", "As asked.")

_ORDER = re.compile(r"Order (\d+): (\d+) (\w+) at (\d+) and (\d+) (\w+) at (\d+), (\d+) percent off")
_SAID = re.compile(r"\b(\w+) = (-?\d+)")


@dataclass(frozen=True)
class Order:
    """The task: two items, and a discount in percent on both."""

    number: int
    first: tuple[int, str, int]
    second: tuple[int, str, int]
    percent: int

    @property
    def text(self) -> str:
        """The order as text, as the systems get it."""
        (many, name, price), (more, other, cost) = self.first, self.second
        items = f"{many} {name} at {price} and {more} {other} at {cost}"
        return f"Order {self.number}: {items}, {self.percent} percent off. What is the total?"

    @property
    def right(self) -> dict[str, int]:
        """The correct values that the roles may state."""
        sums = {"first": self.first[0] * self.first[2], "second": self.second[0] * self.second[2]}
        subtotal = sums["first"] + sums["second"]
        discount = subtotal * self.percent // 100
        read = {"many": self.first[0], "more": self.second[0], "price": self.first[2], "cost": self.second[2]}
        total = subtotal - discount
        return {**read, **sums, "subtotal": subtotal, "discount": discount, "total": total, "answer": total}


def order(number: int) -> Order:
    """Return an order by its number."""
    coin = random.Random(f"order {number}")
    names = coin.sample(("tickets", "lamps", "chairs", "books", "cables", "mugs"), 2)
    first, second = ((coin.randint(11, 49), name, coin.randint(13, 90)) for name in names)
    return Order(number, first, second, coin.choice((10, 20, 25)))


def read_order(text: str) -> Order | None:
    """Find the order in a text."""
    found = _ORDER.search(text)
    if found is None:
        return None
    number, many, name, price, more, other, cost, percent = found.groups()
    return Order(int(number), (int(many), name, int(price)), (int(more), other, int(cost)), int(percent))


@dataclass(frozen=True)
class Reply:
    """A reply of the model: a text, or one tool call."""

    text: str = ""
    tool: str = ""
    arguments: Mapping[str, str] | None = None


Known = dict[str, int]
Coin = random.Random | None
"""``None`` for a role without mistakes of its own, which notices others' mistakes by chance."""


def _sum(known: Known, order_: Order) -> Known:
    right = order_.right
    many, more = known.get("many", right["many"]), known.get("more", right["more"])
    price, cost = known.get("price", right["price"]), known.get("cost", right["cost"])
    return {"subtotal": many * price + more * cost}


def _discount(known: Known, order_: Order) -> Known:
    subtotal = known.get("subtotal", order_.right["subtotal"])
    return {"discount": subtotal * order_.percent // 100}


def _total(known: Known, order_: Order) -> Known:
    right = order_.right
    return {"total": known.get("subtotal", right["subtotal"]) - known.get("discount", right["discount"])}


def _pick(*names: str) -> Callable[[Known, Order], Known]:
    return lambda _, order_: {name: order_.right[name] for name in names}


def _repeat(known: Known, order_: Order) -> Known:
    return {"total": known.get("total", order_.right["total"])}


def _answer(known: Known, order_: Order) -> Known:
    return {"answer": known.get("total", order_.right["total"])}


ROLES: Mapping[str, Callable[[Known, Order], Known]] = {
    # The pipeline's roles, in order.
    "reader": _pick("many", "more", "price", "cost"),
    "clerk": _sum,
    "discounter": _discount,
    "teller": _total,
    "auditor": _repeat,
    "writer": _answer,
    # The orchestrator's roles: it plans, its workers look up prices with a tool and count, and it answers.
    "planner": _pick("many", "more"),
    "buyer": _pick("price", "cost"),
    "accountant": _sum,
    "treasurer": lambda known, order_: _total({**known, **_discount(known, order_)}, order_),
    "reporter": _answer,
    # The debate's roles.
    "proposer": _repeat,
    "critic": _repeat,
    "defender": _repeat,
    "judge": _answer,
}
CHECKING = frozenset({"auditor", "critic", "defender"})
"""Roles that compute the total themselves, and notice a wrong one with probability ``CATCHES``."""
LOOKING_UP = "buyer"
"""The role that calls the tool ``look_up_price`` before it speaks."""


def difficulty(role: str, order_: Order) -> float:
    """Return the probability that a role makes a mistake in an order."""
    return random.Random(f"{role} {order_.number}").choice(MISTAKES)


def reply(role: str, order_: Order, said: Sequence[str], coin: Coin, *, looked_up: bool = True) -> Reply:
    """Return a role's next reply.

    Args:
        role: one of ``ROLES``.
        order_: the task.
        said: the conversation so far, including tools' results.
        coin: random generator for mistakes and wording.
        looked_up: whether the tool has answered.
    """
    if role == LOOKING_UP and not looked_up:
        return Reply(tool="look_up_price", arguments={"item": order_.first[1]})
    known = {name: int(value) for text in said for name, value in _SAID.findall(text)}
    values = ROLES[role](known, order_)
    right = order_.right
    if coin is None:
        pass
    elif role in CHECKING and values["total"] != right["total"] and coin.random() < CATCHES:
        values = {"total": right["total"]}
    elif coin.random() < difficulty(role, order_):
        name = coin.choice(sorted(values))
        values[name] += coin.choice((-1, 1)) * coin.randint(2, 9)
    words = ", ".join(f"{name} = {value}" for name, value in values.items())
    opening = "" if coin is None else f"{coin.choice(OPENINGS)} {coin.choice(OPENINGS)} "
    return Reply(text=f"{opening}{words}.")


def succeeded(order_: Order, output: str) -> bool:
    """Return whether an output is correct."""
    found = dict(_SAID.findall(output))
    return found.get("answer") == str(order_.right["answer"])


FLOWS: Mapping[str, tuple[str, ...]] = {
    "pipeline": ("reader", "clerk", "discounter", "teller", "auditor", "writer"),
    "orchestrator": ("planner", "buyer", "buyer", "accountant", "treasurer", "reporter"),
    "debate": ("proposer", "critic", "defender", "critic", "judge"),
}
"""The model calls of each system, in order; the first call of a role that looks up only asks the tool."""


def play(system: str, order_: Order, said: Sequence[str], coin: random.Random) -> bool:
    """Continue a conversation to the end; return whether the answer is correct."""
    texts = list(said)
    flow = FLOWS[system]
    for place in range(len(texts), len(flow)):
        role = flow[place]
        looked_up = role != LOOKING_UP or role in flow[:place]
        texts.append(reply(role, order_, texts, coin, looked_up=looked_up).text)
    return succeeded(order_, texts[-1])


def rate(system: str, order_: Order, said: Sequence[str], n: int = 400) -> float:
    """Return the success rate of runs that continue this conversation."""
    coin = random.Random(f"{system} {order_.number} {len(said)}")
    return sum(play(system, order_, said, coin) for _ in range(n)) / n


def decisive(system: str, order_: Order, said: Sequence[str]) -> int | None:
    """Return the decisive call of a failed run, from the script alone; ``None`` if there is none.

    It is the earliest call whose recorded answer leaves a success rate of at most 0.2, and whose correct
    answer leaves one of at least 0.6.
    """
    flow = FLOWS[system]
    for place, role in enumerate(flow):
        before = list(said[:place])
        looked_up = role != LOOKING_UP or role in flow[:place]
        corrected = reply(role, order_, before, None, looked_up=looked_up).text
        is_low = rate(system, order_, [*before, said[place]]) <= 0.2
        if is_low and rate(system, order_, [*before, corrected]) >= 0.6:
            return place
    return None
