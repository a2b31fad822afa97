"""Measurements behind the figures of the documentation, in folders by theme.

Each is run by its module's name: ``python -m benchmarks.soak``, ``python -m benchmarks.hostile.fuzz``.
"""
