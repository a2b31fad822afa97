"""The API as OpenAPI 3.1 describes it. Pure data; a test holds it against the routes and real answers."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, Final

from analyzer.web.openapi.paths import PATHS
from analyzer.web.openapi.schemas import GIVEN, ISSUE, LABEL, LABELLED_RUN, RUN

OPENAPI: Final[dict[str, Any]] = {
    "openapi": "3.1.0",
    "info": {
        "title": "blamespan",
        "version": version("blamespan"),
        "description": "Which agent broke the run, at which step and why.",
    },
    "security": [{"bearer": []}, {}],
    "components": {
        "securitySchemes": {
            "bearer": {
                "type": "http",
                "scheme": "bearer",
                "description": "`BLAMESPAN_TOKEN`.",
            }
        },
        "schemas": {
            "Run": RUN,
            "LabelledRun": LABELLED_RUN,
            "Label": LABEL,
            "GivenLabel": GIVEN,
            "Issue": ISSUE,
        },
    },
    "paths": PATHS,
}
