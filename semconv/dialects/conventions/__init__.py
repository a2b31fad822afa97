"""Dialects of conventions and observability SDKs, which many frameworks write."""
