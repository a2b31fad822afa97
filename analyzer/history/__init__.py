"""Comparison of a run with other runs of its workflow: spectra, versions, changes. Pure."""
