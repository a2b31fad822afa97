"""The convention: records, attribute names, dialects, emitting API. Depends on opentelemetry-api only."""
