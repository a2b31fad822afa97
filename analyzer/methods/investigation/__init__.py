"""The method ``investigate``: a model reads the run step by step, and its quotes are checked."""
