"""Opinions of an analyzer half, for the pages of a collector half. A shell.

What can be chosen is asked for now and then, not for every page: with no analyzer there, a
page says so at once and does not wait for one each time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from analyzer.errors import AnalyzerError
from analyzer.opinion import Called, Choice, Offer
from analyzer.remote.client import AwayError, HttpAsk
from semconv.model import Attribution, Trajectory

FRESH_S: Final = 30.0
AWAY_S: Final = 5.0
"""How long nobody is asked again after nobody answered."""


class RemoteOpinions:
    """``Opinions`` over HTTP."""

    def __init__(self, ask: HttpAsk, clock: Callable[[], float] = time.monotonic) -> None:
        """Remember whom to ask; ``clock`` gives seconds."""
        self._ask: Final = ask
        self._clock: Final = clock
        self._known: Offer | str = "not asked yet"
        self._fresh_until = float("-inf")

    async def offer(self) -> Offer:
        """Return what can be chosen there.

        Raises:
            AwayError: nobody answers.
        """
        if self._clock() >= self._fresh_until:
            try:
                self._known, lasts_s = await self._ask.offer(), FRESH_S
            except AnalyzerError as error:
                self._known, lasts_s = str(error), AWAY_S
            self._fresh_until = self._clock() + lasts_s
        if isinstance(self._known, str):
            raise AwayError(self._known)
        return self._known

    async def ask(self, trajectory: Trajectory, choice: Choice, called: Called) -> Attribution:
        """Have a run analysed there; the calls that it took are told when it is over."""
        attribution = await self._ask(trajectory, choice)
        for _ in range(attribution.effort.calls):
            called()
        return attribution
