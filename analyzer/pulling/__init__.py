"""Runs from the API of a running backend: one file a backend, and one client. Only ``client`` has sockets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from analyzer.pulling.backend import Backend
from analyzer.pulling.langfuse import LANGFUSE
from analyzer.pulling.langsmith import LANGSMITH
from analyzer.pulling.mlflow import MLFLOW
from analyzer.pulling.phoenix import PHOENIX

BACKENDS: Final[Mapping[str, Backend]] = {one.name: one for one in (PHOENIX, LANGFUSE, LANGSMITH, MLFLOW)}
