"""Commands about many runs: labels, training, benchmarks, issues, workflows."""
