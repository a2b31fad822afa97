"""Commands that read a trace: its steps, its failure, what could not be read."""
