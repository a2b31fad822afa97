"""Handlers that render the pages."""
