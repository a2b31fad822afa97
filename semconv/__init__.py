"""The convention: records, attribute names, dialects and the emitting API. Needs opentelemetry-api only."""
