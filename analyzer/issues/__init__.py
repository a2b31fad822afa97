"""Failures that come again: counted, kept, shown, and told to people."""
