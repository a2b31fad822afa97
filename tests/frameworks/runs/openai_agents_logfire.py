"""OpenAI's Agents SDK, instrumented by Logfire, which exports to ``OTEL_EXPORTER_OTLP_ENDPOINT``."""

import logfire
from openai_agents_story import answer

logfire.configure(send_to_logfire=False, console=False)
logfire.instrument_openai_agents()
try:
    print(answer())
finally:
    logfire.shutdown()
