"""Microsoft's agent-framework with its own instrumentation, the agents one after the other."""

from agent_framework_story import answer, one_after_the_other
from telemetry import logs, traces

with traces(), logs():
    print(answer(one_after_the_other()))
