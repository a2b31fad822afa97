"""Claude Agent SDK, instrumented by OpenInference."""

from __future__ import annotations

from claude_story import answer
from openinference.instrumentation.claude_agent_sdk import ClaudeAgentSDKInstrumentor
from telemetry import traces

with traces() as provider:
    ClaudeAgentSDKInstrumentor().instrument(tracer_provider=provider)
    print(answer())
