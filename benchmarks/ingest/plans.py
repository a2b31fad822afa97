"""Plans: sets of rows for each question, a few minutes each. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from benchmarks.ingest.measuring import Case

GRPC, HTTP = "grpc", "http"
_BOTH: Final = (GRPC, HTTP)
_LARGE: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A plan; every combination of its values is a row."""

    subjects: tuple[str, ...]
    spans: tuple[int, ...]
    protocols: tuple[str, ...] = _BOTH
    agents: tuple[int, ...] = (0,)
    gzip: tuple[bool, ...] = (False,)

    def cases(self, round_number: int) -> Iterator[Case]:
        """Iterate over the rows of a round; compared rows are side by side, alternating in order."""
        turn = 1 if round_number % 2 == 0 else -1
        return (case for case in self._all(turn) if says_nothing(case) is None)

    def left_out(self) -> Iterator[tuple[Case, str]]:
        """Iterate over the rows that are not run, each with the reason."""
        return ((case, reason) for case in self._all(1) if (reason := says_nothing(case)) is not None)

    def _all(self, turn: int) -> Iterator[Case]:
        for protocol in self.protocols:
            for spans in self.spans:
                for is_gzip in self.gzip:
                    for agents in self.agents[::turn]:
                        for subject in self.subjects[::turn]:
                            yield Case(
                                subject=subject,
                                protocol=protocol,
                                spans=spans,
                                agents=agents,
                                is_gzip=is_gzip,
                            )


def says_nothing(case: Case) -> str | None:
    """Return why a row would be meaningless, if it would be."""
    if case.subject == "rotel" and case.spans >= _LARGE:
        return "it sends the spans of such requests up to twice"
    return None


PLANS: Final[Mapping[str, Plan]] = {
    "speed": Plan(
        subjects=("blamespan", "collector+fsync", "collector", "rotel", "passthrough"), spans=(16, 512)
    ),
    "sizes": Plan(subjects=("blamespan", "collector+fsync", "passthrough"), spans=(1, 4096)),
    "gzip": Plan(subjects=("blamespan", "collector+fsync", "passthrough"), spans=(16, 512), gzip=(True,)),
    "agents": Plan(subjects=("blamespan", "fast lane"), spans=(512,), agents=(0, 1, 100)),
    "stores": Plan(subjects=("blamespan", "phoenix", "passthrough"), spans=(16,)),
}
