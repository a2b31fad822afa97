"""Runs ``blamespan`` with changed constants: ``fixed_values.py JSON COMMAND…``."""

from __future__ import annotations

import json
import sys

from analyzer.__main__ import main
from collector_processor.settings import Settings

if __name__ == "__main__":
    for name, value in json.loads(sys.argv.pop(1)).items():
        Settings.model_fields[name].default_factory = None
        Settings.model_fields[name].default = value
    Settings.model_rebuild(force=True)
    main()
