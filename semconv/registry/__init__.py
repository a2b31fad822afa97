"""The convention's source of truth: definitions in YAML, and what is generated from them."""
