"""Recorded runs from files: OTLP, Jaeger and Tempo JSON, conversation logs."""
