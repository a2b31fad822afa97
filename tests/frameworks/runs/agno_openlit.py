"""Agno, instrumented by OpenLIT, which instruments OpenAI's client beside it."""

import os

import openlit
from agno_story import answer

# Without batches every span is sent as it ends, so there is nothing to flush.
openlit.init(
    otlp_endpoint=os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"], disable_metrics=True, disable_batch=True
)
print(answer())
