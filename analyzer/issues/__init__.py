"""Recurring failures: counted, stored and shown; the labels that people give are below, in ``labels``."""
