"""Forwarding to the backend: journal rows, outbox entries, and the ledger of every item."""
