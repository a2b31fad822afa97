"""People's labels of verdicts: checked, stored with their runs, and turned into training data."""
