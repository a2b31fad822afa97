"""Learning from labelled runs: the ranker's features, its training, and its model."""
