"""AG2 1.x with its own telemetry middleware."""

from ag2_1_story import answer
from telemetry import traces

with traces() as provider:
    print(answer(provider))
