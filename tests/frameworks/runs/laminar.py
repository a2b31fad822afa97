"""OpenAI's client in functions that Laminar observes."""

import os
from urllib.parse import urlsplit

from laminar_story import answer
from lmnr import Instruments, Laminar

COLLECTOR = urlsplit(os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"])
Laminar.initialize(
    project_api_key="dummy",
    base_url=f"http://{COLLECTOR.hostname}",
    http_port=COLLECTOR.port,
    instruments={Instruments.OPENAI},
    force_http=True,
)
try:
    print(answer())
finally:
    Laminar.shutdown()
