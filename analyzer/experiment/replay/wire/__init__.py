"""Wire formats of the providers' APIs: they read requests and write recorded answers.

To add one, write its file and add a line to ``WIRES``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from analyzer.experiment.replay.wire.anthropic_messages import ANTHROPIC
from analyzer.experiment.replay.wire.chat_completions import CHAT, EMBEDDINGS
from analyzer.experiment.replay.wire.format import Asked, Provider, UnreadableRequest, Wire
from analyzer.experiment.replay.wire.responses import RESPONSES

WIRES: Final[Mapping[str, Wire]] = {
    "chat/completions": CHAT,
    "responses": RESPONSES,
    "embeddings": EMBEDDINGS,
    "messages": ANTHROPIC,
}
"""Wire formats by the end of the path, below ``/v1/``."""

__all__ = ["WIRES", "Asked", "Provider", "UnreadableRequest", "Wire"]
