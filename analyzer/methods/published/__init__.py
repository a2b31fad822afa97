"""The methods of arXiv:2505.00212, and the log that they show to a model."""
