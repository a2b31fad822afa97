"""Research tools: ``bench``, ``train``, ``inject``, ``experiment --retry``, and methods to compare with.

The service imports nothing from here, except these methods through ``analyzer.methods.registry``.
"""
