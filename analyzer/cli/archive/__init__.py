"""History as Parquet files: verdicts, steps and spectra, by day and tenant, for any engine that reads them.

Needs the extra ``history``.
"""
