"""Evaluation of methods and training of the ranker: labelled runs in, scores with intervals or a model out."""
