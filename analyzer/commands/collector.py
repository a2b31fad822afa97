"""``blamespan collector``: the half of ``serve`` that takes, keeps and passes on; it asks analyzers."""

from __future__ import annotations

import os
from pathlib import Path

import uvloop

from analyzer.commands.output import FormatOption, OutputFormat
from analyzer.commands.serve import (
    DataDirOption,
    keep_to_ourselves,
    serve_until_stopped,
    warn_of_unknown,
)
from analyzer.json_lines import configure_logging
from analyzer.remote.opening import asking, without_model
from collector_processor.settings import load_settings, require_token


def collector(
    data_dir: DataDirOption = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """The half of [bold]serve[/bold] that takes OTLP and writes back; analyzers are asked who broke a run.

    BLAMESPAN_ANALYZER_ENDPOINT says where [bold]blamespan analyzer[/bold] listens. Model and method are
    the analyzer's settings; here, signals answer while no analyzer does. BLAMESPAN_FAILURE_PATTERN
    belongs to both. The token, where there is one, is the same for both.
    """
    settings = load_settings(os.environ, directory=Path.cwd(), data_dir=data_dir)
    require_token(settings)
    keep_to_ourselves()
    configure_logging()
    warn_of_unknown(os.environ)
    uvloop.run(serve_until_stopped(without_model(settings), output, asking(settings)))
