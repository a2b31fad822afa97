"""Parsers that several dialects share: attribute values, messages, tool lists, a span's place."""
