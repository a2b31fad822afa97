"""langgraph, traced by MLflow, which exports to ``OTEL_EXPORTER_OTLP_ENDPOINT``."""

import mlflow
from langgraph_story import answer
from mlflow.tracing.provider import provider

mlflow.set_tracking_uri("sqlite:///:memory:")
mlflow.langchain.autolog()
try:
    print(answer())
finally:
    provider.get().force_flush()
