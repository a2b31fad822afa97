"""OTLP going on to a backend: gRPC, HTTP, memory."""
