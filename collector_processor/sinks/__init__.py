"""Sinks: scores of runs in evaluation backends, over their REST APIs. Only ``client`` has sockets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from collector_processor.core.scores import ScoreBackend
from collector_processor.sinks.exchange import Sink
from collector_processor.sinks.langfuse import LANGFUSE
from collector_processor.sinks.mlflow import MLFLOW
from collector_processor.sinks.phoenix import PHOENIX

SINKS: Final[Mapping[ScoreBackend, Sink]] = {
    ScoreBackend.PHOENIX: PHOENIX,
    ScoreBackend.MLFLOW: MLFLOW,
    ScoreBackend.LANGFUSE: LANGFUSE,
}
