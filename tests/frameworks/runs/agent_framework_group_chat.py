"""Microsoft's agent-framework with its own instrumentation, as a group chat."""

from agent_framework_story import answer, in_a_group_chat
from telemetry import logs, traces

with traces(), logs():
    print(answer(in_a_group_chat()))
