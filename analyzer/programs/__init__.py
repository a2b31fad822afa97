"""Programs: run any agent program, and see its spans and its model calls. Used by ``blamespan run``."""
