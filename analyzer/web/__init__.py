"""HTTP server besides OTLP: health, metrics, the JSON API and the pages."""
