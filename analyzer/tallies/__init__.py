"""What is counted of verdicts, from the moment they are durable. Pure."""

from __future__ import annotations

from analyzer.tallies.series import Bucket, Counter, Exemplar, Histogram, Point
from analyzer.tallies.verdicts import Move, RunCount, VerdictTallies

__all__ = ["Bucket", "Counter", "Exemplar", "Histogram", "Move", "Point", "RunCount", "VerdictTallies"]
