"""State for deciding when a trace is complete: open traces, and what earlier traces taught."""
