"""The Python API: what ``from analyzer import …`` offers, and its parts."""
