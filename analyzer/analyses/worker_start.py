"""Entry of a worker process: keeps the garbage collector off during the imports. Not pure.

That saves a tenth of the process's start.
"""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # until ``run`` is about to read its first message
    from analyzer.analyses.worker import run

    run()
