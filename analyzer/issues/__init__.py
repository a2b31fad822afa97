"""Recurring failures: counted, stored and shown."""
