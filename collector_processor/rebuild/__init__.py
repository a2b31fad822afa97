"""Raw bytes to sound traces: decode, repair, correct clock skew, group into runs, redact."""
