"""The store: verdicts, their outbox, spending and learned facts, in SQLite or PostgreSQL."""
