"""Recurring failures: grouping of equal ones, their frequency, and detection of an increase. Pure."""
