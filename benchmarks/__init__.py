"""Benchmarks, in folders by theme; ``python -m benchmarks.NAME`` runs one, whichever folder it is in."""

from pathlib import Path

_THEMES = ("accuracy", "alerting", "dialects", "hostile", "page_speed", "resources")

__path__ = [str(Path(__file__).parent), *(str(Path(__file__).parent / theme) for theme in _THEMES)]
