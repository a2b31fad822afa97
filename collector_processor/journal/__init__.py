"""Durable buffer between acknowledging and forwarding: SQLite segments, one writer, group commit.

``journal`` is the entry point, created by ``opening``. ``dispatch`` sends commands to the thread of
``writer``, which commits; ``keeper`` recovers, reads, compacts and deletes on a thread of its own.
``accounts`` counts the bytes of each queue and trace, ``segment_accounts`` those of each segment;
``reclaiming`` decides when segments are compacted or deleted. ``directory`` manages the segments' files and
the registers of their rows, ``segments`` and ``connection`` read and write one segment, and ``chunks``
defines the stored records.
"""

from collector_processor.journal.chunks import JournalError, JournalLimits
from collector_processor.journal.directory import is_in_use
from collector_processor.journal.journal import Journal
from collector_processor.journal.opening import clear_journal, open_journal, relaxed_segment

__all__ = [
    "Journal", "JournalError", "JournalLimits", "clear_journal", "is_in_use", "open_journal",
    "relaxed_segment",
]  # fmt: skip
