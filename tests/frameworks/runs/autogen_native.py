"""AutoGen's own spans, a trace for every message."""

from autogen_story import answer
from telemetry import traces

with traces():
    print(answer())
