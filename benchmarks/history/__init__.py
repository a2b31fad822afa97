"""Accuracy, cost and false alarms of what blamespan learns from other runs of a workflow."""
