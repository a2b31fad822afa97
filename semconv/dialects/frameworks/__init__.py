"""Dialects of frameworks that write spans of their own."""
