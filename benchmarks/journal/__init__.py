"""Cost of the journal: CPU a row, time of a commit, bytes on disk."""
