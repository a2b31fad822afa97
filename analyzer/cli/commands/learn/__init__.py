"""Commands about many runs: labels, issues, workflows."""
