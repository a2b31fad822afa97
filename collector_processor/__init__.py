"""The processor: OTLP in, durable, passed on; runs rebuilt as ordered steps; blame written back."""
