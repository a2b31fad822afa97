"""Commands that run the service and look after its data."""
