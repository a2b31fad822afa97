"""The analyzer: triage, attribution methods, verdicts, and the command line that joins everything."""
