"""Commands that only researchers use; what they call is in ``analyzer/lab``."""
