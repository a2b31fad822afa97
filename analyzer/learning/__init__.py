"""What is learned from labelled runs: what a ranker looks at, how it is trained, and what it is then."""
