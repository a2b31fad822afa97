"""Plans: sets of rows for each question, a few minutes each. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from benchmarks.ingest.measuring import Case

GRPC, HTTP = "grpc", "http"
_BOTH: Final = (GRPC, HTTP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A plan; every combination of its values is a row."""

    subjects: tuple[str, ...]
    spans: tuple[int, ...]
    protocols: tuple[str, ...] = _BOTH
    agents: tuple[int, ...] = (0,)
    gzip: tuple[bool, ...] = (False,)
    signs: tuple[str, ...] = ("agent",)
    """What the traces of ``agents`` carry; traces without it are a row of their own."""

    def cases(self, round_number: int) -> Iterator[Case]:
        """Iterate over the rows of a round; compared rows are side by side, alternating in order."""
        turn = 1 if round_number % 2 == 0 else -1
        for protocol in self.protocols:
            for spans in self.spans:
                for is_gzip in self.gzip:
                    for agents, sign in self._shares()[::turn]:
                        for subject in self.subjects[::turn]:
                            yield Case(
                                subject=subject,
                                protocol=protocol,
                                spans=spans,
                                agents=agents,
                                is_gzip=is_gzip,
                                sign=sign,
                            )

    def _shares(self) -> list[tuple[int, str]]:
        return [(share, sign) for share in self.agents for sign in (self.signs if share else ("agent",))]


PLANS: Final[Mapping[str, Plan]] = {
    "speed": Plan(subjects=("blamespan", "collector+fsync", "collector", "passthrough"), spans=(16, 512)),
    "sizes": Plan(subjects=("blamespan", "collector+fsync", "passthrough"), spans=(1, 4096)),
    "gzip": Plan(subjects=("blamespan", "collector+fsync", "passthrough"), spans=(16, 512), gzip=(True,)),
    "agents": Plan(subjects=("blamespan", "fast lane"), spans=(512,), agents=(0, 1, 100)),
    "signs": Plan(subjects=("blamespan",), spans=(16, 512), agents=(0, 100), signs=("count", "text")),
}
