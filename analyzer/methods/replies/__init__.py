"""Replies of models: reading them, asking again, and settling on a step."""
