"""What an analyzer half spent within the hour, in a file of its own: a crash begins no new hour. A shell.

Only where a directory is set: any number of analyzers may run on one machine, and each has
money of its own. So a directory is one process's.
"""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Final

from analyzer.budget import HourlyBudget
from analyzer.serving.lifetime import Lifetime
from analyzer.spending import StoredSpending
from collector_processor.journal.keeper import DirectoryLock
from collector_processor.otlp import CollectorError
from collector_processor.spending import SPENDING_TABLE, SpendingRows
from collector_processor.store_thread import StoreThread
from collector_processor.stores import open_store

FOLDER: Final = "analyzer"
"""In the data directory: a collector may have the rest."""
FILE: Final = "spending.sqlite"


async def keep_spending(data_dir: Path, budget: HourlyBudget, lifetime: Lifetime) -> None:
    """Go on with the hour that an earlier process began, and note each call from now on.

    Raises:
        CollectorError: another analyzer uses the directory, or it cannot be written to.
    """
    folder = data_dir / FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = DirectoryLock(folder)
    except OSError as error:
        raise CollectorError(f"{folder}: cannot keep what models cost: {error.strerror}") from error
    lifetime.stack.callback(lock.release)
    db = lifetime.stack.enter_context(closing(open_store(folder / FILE, (SPENDING_TABLE,))))
    thread = StoreThread(name="spending")
    lifetime.stack.callback(thread.close)
    rows = SpendingRows(db, "the store of what models cost")
    await budget.keep_in(StoredSpending(rows=rows, in_db=thread.run, wall_ns=time.time_ns))
