"""Starts a worker process that looks for no garbage while it imports: a tenth of its start. Not pure."""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # until ``run`` is about to read its first message
    from analyzer.analyses.worker import run

    run()
