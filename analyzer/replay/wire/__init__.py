"""Wire formats of the providers' APIs: they read requests and write recorded answers.

To add one, write its file and add a line to ``WIRES``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from analyzer.replay.wire.anthropic_messages import ANTHROPIC
from analyzer.replay.wire.chat_completions import CHAT
from analyzer.replay.wire.embeddings import EMBEDDINGS
from analyzer.replay.wire.format import Asked, Provider, UnreadableRequest, Wire
from analyzer.replay.wire.responses import RESPONSES

WIRES: Final[Mapping[str, Wire]] = {
    "chat/completions": CHAT,
    "responses": RESPONSES,
    "embeddings": EMBEDDINGS,
    "messages": ANTHROPIC,
}
"""Wire formats by the end of the path, below ``/v1/``."""

__all__ = ["WIRES", "Asked", "Provider", "UnreadableRequest", "Wire"]
