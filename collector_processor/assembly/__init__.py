"""State for deciding when a trace is complete: open traces, and facts learned from earlier traces."""
