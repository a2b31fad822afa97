"""The processor: receives OTLP, stores and forwards it, rebuilds runs as ordered steps, writes blame back."""
