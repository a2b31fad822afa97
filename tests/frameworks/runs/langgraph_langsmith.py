"""langgraph, traced by LangSmith, which exports through OpenTelemetry only."""

from langchain_core.tracers.langchain import wait_for_all_tracers
from langgraph_story import answer
from telemetry import traces

with traces():
    try:
        print(answer())
    finally:
        wait_for_all_tracers()
