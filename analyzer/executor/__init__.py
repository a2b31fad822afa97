"""Executor: where analyses run (a thread, worker processes, another machine), and one codec for all."""
