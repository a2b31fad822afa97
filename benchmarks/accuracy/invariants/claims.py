"""A workflow of two agents that settles claims for parcels, less regular than most: with branches and faults.

Branches decide where an amount comes from; a call may time out and be repeated; one tool is optional, another
is called at any place; values change their format on the way; texts vary. Rare paths occur in one to three of
a hundred good runs.
"""

from __future__ import annotations

import random
from typing import Any, Final

_NAMES: Final = ("Aiko", "Bela", "Chidi", "Dunja", "Emre", "Fatou", "Gustav", "Hana", "Ivo", "Jamal", "Kaja")
_GREETINGS: Final = ("Dear {0},", "Hello {0},", "Good day {0},", "{0},")
_PAID: Final = (
    "we have transferred {1} for your parcel {2}.",
    "your claim for parcel {2} is settled: {1} is on its way to you.",
    "{1} will reach your account soon; this closes the claim about {2}.",
)
_GIVEN: Final = (
    "for parcel {2} we have sent you a voucher of {1}.",
    "please find a voucher worth {1} in your account, for parcel {2}.",
)
_REFUSED: Final = (
    "we are sorry: nothing is payable for parcel {2}.",
    "after a check of parcel {2} we cannot pay this claim.",
)
_CLOSINGS: Final = ("Kind regards", "Best wishes", "Thank you for your patience.", "Yours, the claims team")
FAULTS: Final = (
    "wrong_amount",
    "wrong_entity",
    "skipped_check",
    "wrong_tool",
    "stopped_early",
    "wrong_branch",
    "paid_twice",
    "wrong_outcome",
    "false_claim",
)


class _Claim:
    """One run, step by step."""

    def __init__(self, number: int, draw: random.Random, fault: str) -> None:
        self.draw, self.fault = draw, fault
        self.id, self.parcel = (
            f"CL-{draw.randint(10000, 99999)}",
            f"{draw.choice('KLMN')}{draw.randint(10**7, 10**8)}",
        )
        self.name, self.number = draw.choice(_NAMES), number
        self.email = f"{self.name.lower()}{draw.randint(10, 99)}@mail.example"
        self.kind = draw.choices(("damaged", "lost", "late"), (5, 3, 3))[0]
        self.declared = round(draw.uniform(40, 700), 2)
        self.steps: list[dict[str, Any]] = []
        self.label: int | None = None

    def call(self, agent: str, tool: str, args: dict[str, Any], data: dict[str, Any] | None) -> None:
        seen = {
            "ok": data is not None,
            "data": data or {},
            "error": None if data is not None else "timed out",
        }
        self.steps.append(
            {"agent": agent, "thought": "", "call": {"tool": tool, "args": args}, "observation": seen}
        )

    def is_(self, fault: str) -> bool:
        """Whether this is the fault; its step is the next one."""
        if self.fault == fault:
            self.label = len(self.steps)
        return self.fault == fault

    def money(self, amount: float) -> Any:
        """Return an amount in one of the ways that systems write it."""
        return self.draw.choice((amount, f"{amount:.2f}", f"{amount:.2f} CHF"))

    def maybe_note(self) -> None:
        if self.draw.random() < 0.08:
            self.call(
                "intake", "leave_note", {"text": f"seen by shift {self.draw.randint(1, 3)}"}, {"ok": True}
            )

    def play(self) -> dict[str, Any]:
        self.open()
        end = self.settle()
        return self.finished(end)

    def open(self) -> None:
        draw = self.draw
        has_parcel = draw.random() > 0.03
        claim = {
            "claim": {"id": self.id, "kind": self.kind, "declared": self.money(self.declared)},
            "customer": {
                "name": self.name,
                "email": self.email,
                "tier": draw.choice(("gold", "basic", "basic")),
            },
            "parcel": self.parcel if has_parcel else None,
        }
        self.call("intake", "fetch_claim", {"claim_id": self.id}, claim)
        self.maybe_note()
        if not has_parcel:
            self.call("intake", "find_parcels", {"email": self.email}, {"parcels": [{"number": self.parcel}]})
        self.carrier = draw.choice(("north", "swift", "post"))
        jobs = [self.track, self.tariff]
        draw.shuffle(jobs)
        for job in jobs:
            job()
            self.maybe_note()

    def track(self) -> None:
        wrong = f"K{self.draw.randint(10**7, 10**8)}"
        parcel = wrong if self.is_("wrong_entity") else self.parcel
        if self.draw.random() < 0.08 and self.fault != "wrong_entity":
            self.call("intake", "track_parcel", {"number": parcel}, None)
        events = [
            {"status": status, "at": f"2026-0{self.draw.randint(1, 9)}-11"} for status in ("sent", self.kind)
        ]
        self.call(
            "intake", "track_parcel", {"number": parcel},
            {"number": parcel, "carrier": self.carrier, "events": events[: self.draw.randint(1, 2)]},
        )  # fmt: skip

    def tariff(self) -> None:
        self.fee = round(self.draw.uniform(5, 25), 2)
        self.call("intake", "get_tariff", {"claim": self.id}, {"late_fee": self.fee, "currency": "CHF"})

    def settle(self) -> str:
        draw = self.draw
        if self.kind == "damaged":
            self.severity = draw.choice(("minor", "major"))
            self.call(
                "settler",
                "view_photos",
                {"claim_id": self.id},
                {"severity": self.severity, "count": draw.randint(1, 6)},
            )
        self.payable = 0.0 if draw.random() < 0.15 else round(self.declared * draw.uniform(0.4, 0.9), 2)
        if self.fault in {"wrong_amount", "skipped_check", "paid_twice"}:
            self.payable = round(self.declared * draw.uniform(0.4, 0.9), 2)
        if self.is_("wrong_tool"):
            self.call("settler", "get_tariff", {"claim": self.id}, {"late_fee": self.fee, "currency": "CHF"})
        elif not self.is_("skipped_check"):
            verdict = {
                "payable": self.money(self.payable),
                "is_payable": self.payable > 0,
                "rule": f"R{draw.randint(1, 9)}",
            }
            self.call("settler", "assess", {"parcel": self.parcel, "kind": self.kind}, verdict)
        self.maybe_note()
        if self.fault == "stopped_early":
            self.label = len(self.steps) - 1
            return "stopped"
        return self.pay()

    def pay(self) -> str:
        draw = self.draw
        way = (
            "none"
            if not self.payable
            else "voucher"
            if self.kind == "damaged" and self.severity == "minor"
            else "money"
        )
        amount = self.fee if self.kind == "late" else self.payable
        if way == "none" and self.is_("wrong_branch"):
            way, amount = "money", self.declared
        elif way != "none" and self.is_("wrong_branch"):
            way = "none"
        if way != "none":
            if self.is_("wrong_amount") or self.fault == "skipped_check":
                amount = self.declared
                self.label = len(self.steps)
            elif amount > 550:
                self.call("settler", "request_approval", {"claim_id": self.id}, {"granted": 550.0})
                amount = 550.0
            for _ in range(2 if self.is_("paid_twice") else 1):
                tool = "offer_voucher" if way == "voucher" else "pay_claim"
                if self.fault == "paid_twice":
                    self.label = len(self.steps)
                self.call(
                    "settler", tool, {"claim_id": self.id, "amount": self.money(amount)}, {"done": True}
                )
        outcome = {"none": "rejected", "voucher": "voucher", "money": "paid"}[way]
        if self.is_("wrong_outcome"):
            outcome = draw.choice([one for one in ("rejected", "voucher", "paid") if one != outcome])
        self.call("settler", "close_claim", {"claim_id": self.id, "outcome": outcome}, {"state": "closed"})
        self.stated = self.declared * 2 if self.is_("false_claim") else amount
        return way

    def finished(self, way: str) -> dict[str, Any]:
        draw = self.draw
        if way == "stopped":
            answer = "I will look at this claim again and come back to you."
        else:
            body = draw.choice({"none": _REFUSED, "voucher": _GIVEN, "money": _PAID}[way])
            if self.fault == "false_claim":
                body = draw.choice(_PAID)
            parts = (draw.choice(_GREETINGS), body, draw.choice(_CLOSINGS))
            answer = " ".join(parts).format(self.name, f"{self.stated:.2f} CHF", self.parcel)
            if self.fault == "false_claim":
                self.label = len(self.steps)
            self.call("settler", "notify", {"to": self.email, "text": answer}, {"sent": True})
            answer = draw.choice((answer, f"Settled. I told the customer: {answer}"))
        label = {"faulty": bool(self.fault), "failure_type": self.fault or None, "failure_step": self.label}
        goal = draw.choice(
            ("Settle claim {}.", "Please handle the claim {} today.", "{}: decide and tell the customer.")
        )
        return {
            "trajectory_id": f"claim-{self.number}-{self.fault or 'clean'}",
            "goal": goal.format(self.id),
            "steps": self.steps,
            "final_answer": answer,
            "label": label if self.label is not None else label | {"faulty": False, "failure_type": None},
        }


def claims(seed: int, good: int, faulty: int) -> list[dict[str, Any]]:
    """Return good runs and ``faulty`` runs of each fault, less those that their branch cannot have."""
    draw = random.Random(seed)
    kinds = [""] * good + [fault for fault in FAULTS for _ in range(faulty)]
    return [_Claim(number, draw, fault).play() for number, fault in enumerate(kinds)]
