"""langgraph, traced by Langfuse's callback, which exports to ``OTEL_EXPORTER_OTLP_ENDPOINT``."""

import os

from langfuse import Langfuse
from langfuse.langchain import CallbackHandler
from langgraph_story import answer

langfuse = Langfuse(base_url=os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"])
try:
    print(answer(callbacks=[CallbackHandler()]))
finally:
    langfuse.shutdown()
