"""The machinery under ``semconv.instrument``: content, handles, and operations."""
