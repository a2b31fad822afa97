"""Failures that come again: how they are counted, kept and shown."""
