"""What only researchers use: ``bench``, ``train``, ``inject``, ``experiment --retry``, the published methods.

The service imports nothing from here, except the published methods through ``analyzer.methods.registry``.
"""
