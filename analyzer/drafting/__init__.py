"""Verdicts drafted in one go, where no model is to be asked: on a thread, or in a process beside."""
