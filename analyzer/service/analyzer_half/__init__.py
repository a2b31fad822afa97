"""The analyzer half's server, and the collector half's connection to it."""
