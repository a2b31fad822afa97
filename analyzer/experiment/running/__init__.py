"""Trials: starting the workflow, checking its results, and accounting for them."""
