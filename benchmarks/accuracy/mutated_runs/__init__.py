"""Faults put into right runs, one a run: how many of each kind are noticed."""
