"""Runs in ag2tracer's own environment: attributes every run of a data set and reports the result."""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from pathlib import Path

from ag2tracer import all_at_once  # type: ignore[import-not-found]

said: Counter[str] = Counter()
for line in gzip.decompress(Path(sys.argv[1]).read_bytes()).splitlines():
    log = json.loads(line)
    history = [{"name": entry["agent"], "content": entry["content"]} for entry in log["history"]]
    try:
        found = all_at_once({"history": history, "question": log["question"]}, model="openai/slow")
    except (AttributeError, KeyError, IndexError, ValueError) as error:
        said[type(error).__name__] += 1
    else:
        said[f"answers of step {found.step_number}"] += 1
print(", ".join(f"{number} {what}" for what, number in said.items()))
