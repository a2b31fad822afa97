"""What only researchers use: ``bench``, ``train``, ``inject``, ``experiment --retry``, methods to compare.

The service imports nothing from here, except these methods through ``analyzer.methods.registry``.
"""
