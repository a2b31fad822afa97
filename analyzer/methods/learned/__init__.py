"""The learned ranker: its features, its model and its file."""
