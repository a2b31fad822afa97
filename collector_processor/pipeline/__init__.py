"""The slow lane: schedules and loads complete traces, runs their analysis, commits verdicts."""
