"""Evaluation of methods: labelled runs in, scores with confidence intervals out."""
