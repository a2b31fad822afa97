"""OTLP at the door: gRPC and HTTP."""
