"""Correct and false proofs of experiments: on simulated walks, and on three example systems."""
