"""Faults injected into the replay of a passing run, for labels whose culprit is known by construction."""
