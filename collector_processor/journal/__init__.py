"""The durable buffer between acknowledging and forwarding: SQLite segments, one writer, group commit.

``journal`` is the door; ``writer`` commits, ``keeper`` reads and tends, ``accounts``
knows what waits where, ``directory`` says where segments lie, ``segments`` is one file,
``chunks`` is what is stored.
"""

from collector_processor.journal.chunks import JournalError, JournalLimits
from collector_processor.journal.journal import Journal, is_in_use, open_journal

__all__ = ["Journal", "JournalError", "JournalLimits", "is_in_use", "open_journal"]
