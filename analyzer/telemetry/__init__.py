"""The service's own metrics and logs."""
