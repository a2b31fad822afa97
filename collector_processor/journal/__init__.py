"""The durable buffer between acknowledging and forwarding: SQLite segments, one writer, group commit.

``journal`` is the door, opened by ``opening``; ``writer`` commits what ``dispatch`` gives it, ``keeper``
reads and tends on the thread of ``reads``; ``accounts`` know what waits where, ``reclaiming`` says what goes,
``held`` lets rows go on; ``directory`` says where segments lie, ``segments`` is one file, ``chunks`` is what
is stored.
"""

from collector_processor.journal.chunks import JournalError, JournalLimits
from collector_processor.journal.journal import Journal
from collector_processor.journal.opening import is_in_use, open_journal

__all__ = ["Journal", "JournalError", "JournalLimits", "is_in_use", "open_journal"]
