"""Core of attribution: method protocol, posterior, calibration, rendering, verdict."""
