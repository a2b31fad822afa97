"""Measurement of suspected failures: recall on faulted runs and false alarms on their passing twins."""
