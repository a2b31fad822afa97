"""Durable buffer between acknowledging and forwarding: an append-only log in segments, with group commit.

``journal`` is the entry point, created by ``opening``. ``dispatch`` sends commands to the thread of
``writer``, which commits; ``keeper`` reads, thins and deletes on a thread of its own. ``recovery`` reads what
an earlier process left. ``accounts`` counts the bytes of each queue and trace, ``segment_accounts`` knows
where each row is; ``reclaiming`` decides when segments are thinned or deleted. ``directory`` manages the
files, and ``log_format`` defines their records.
"""

from collector_processor.journal.chunks import JournalError, JournalLimits
from collector_processor.journal.directory import Disk, RelaxedDisk, is_in_use
from collector_processor.journal.journal import Journal
from collector_processor.journal.opening import clear_journal, open_journal, require_known_kind

__all__ = [
    "Disk", "Journal", "JournalError", "JournalLimits", "RelaxedDisk", "clear_journal", "is_in_use",
    "open_journal", "require_known_kind",
]  # fmt: skip
