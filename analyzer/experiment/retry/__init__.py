"""Retrying failed runs in production: when a retry pays, and the pilot that measures it."""
