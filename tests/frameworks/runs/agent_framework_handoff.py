"""Microsoft's agent-framework with its own instrumentation, as a handoff."""

from agent_framework_story import answer, hand_over
from telemetry import logs, traces

with traces(), logs():
    print(answer(hand_over()))
