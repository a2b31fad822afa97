"""Comparison of a run with other runs of its workflow: spectra, divergence, versions, changes. Pure."""
