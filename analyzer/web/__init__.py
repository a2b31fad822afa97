"""What `serve` answers over HTTP besides OTLP: health, metrics, and verdicts as JSON."""
