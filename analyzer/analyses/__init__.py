"""From a complete trace to its committed verdict: schedule, load, prepare, ask, decide, commit."""
