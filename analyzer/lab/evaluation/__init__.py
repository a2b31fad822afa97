"""Evaluation of methods and training of the ranker: labelled runs in, scores or a model out."""
