"""Lineage of a run: every value that its agents state, and where it came from. Pure."""
