"""When a trace is complete: what is known of open traces, and what was learned from earlier ones."""
