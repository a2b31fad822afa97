"""Settings of a replay gateway, and hooks for budgeting its live calls. Types only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import field
from typing import Final, TypeAlias

from analyzer.experiment.replay.tape import RemoteTools
from analyzer.experiment.replay.trial_tools import ToolRules
from analyzer.experiment.replay.wire import Provider
from semconv.record import record


@record
class LiveCall:
    """A live call that is about to be made."""

    trial: str
    model: str
    body: bytes
    """The request as it will be sent."""


@record
class LiveUsage:
    """Usage and outcome of a live call."""

    input_tokens: int = 0
    output_tokens: int = 0
    failure: str = ""
    """``timeout``, ``unavailable``, ``rate_limited``, ``http_<status>``, ``cut`` or ``client_gone``; empty
    for a whole answer."""
    said_bytes: int = 0
    """Length of the answer, for upstreams that report no usage; repetitions in a stream count too."""
    answer: str = ""
    """Digest of the answer without ids and times; equal answers have equal digests."""


Reserve: TypeAlias = Callable[[LiveCall], Awaitable[str]]
"""Called before each live call; returns the reason for a refusal, or an empty string."""
Settle: TypeAlias = Callable[[LiveCall, LiveUsage], Awaitable[None]]
"""Called after each live call that was reserved."""


async def _unlimited(_: LiveCall) -> str:
    return ""


async def _unsettled(_: LiveCall, __: LiveUsage) -> None:
    return None


OPENAI: Final = "https://api.openai.com"
ANTHROPIC: Final = "https://api.anthropic.com"
MAX_REQUEST_BYTES: Final = 64 << 20
"""Largest request: a long conversation with images; OpenAI accepts 50 MB of images in one."""


@record
class GatewayOptions:
    """Settings of a gateway, fixed when it starts: nothing in a trace or a request changes them."""

    host: str = "127.0.0.1"
    port: int = 0
    openai: str = OPENAI
    """Upstream of OpenAI's formats; a path is kept, a trailing ``/v1`` may be left out."""
    anthropic: str = ANTHROPIC
    token: str = ""
    """Required beyond loopback: in ``x-blamespan-token`` or in the path, as ``OpenTrial.base_url`` has it.
    ``Authorization`` belongs to the provider."""
    allowed_hosts: tuple[str, ...] = ()
    """Names of this machine that clients may use, in lower case, besides its addresses and ``localhost``."""
    reserve: Reserve = _unlimited
    settle: Settle = _unsettled
    allow_tools: frozenset[str] = field(default_factory=frozenset)
    """Tools declared read-only: they may run."""
    remotes: tuple[RemoteTools, ...] = ()
    """Tools over HTTP and MCP, whose results also come from the tape; one entry for each variable."""
    upstream_timeout_s: float = 600.0
    """Longest silence of an upstream: the SDKs' own default timeout."""
    max_request_bytes: int = MAX_REQUEST_BYTES

    def rules(self, *, must_announce: bool = False) -> ToolRules:
        """Return the trials' rules for tools."""
        return ToolRules(allowed=self.allow_tools, remotes=self.remotes, must_announce=must_announce)

    def upstream(self, provider: Provider) -> str:
        """Return a provider's base URL, without a trailing ``/v1`` and slash."""
        url = self.openai if provider is Provider.OPENAI else self.anthropic
        return url.rstrip("/").removesuffix("/v1")
