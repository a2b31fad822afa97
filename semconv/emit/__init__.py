"""Implementation of ``semconv.instrument``: content, handles and operations."""
