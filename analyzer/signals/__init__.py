"""Evidence per step without a model: rules that mark suspicious steps (``registry.py``)."""
