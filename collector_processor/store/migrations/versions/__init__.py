"""The schema migrations, oldest first."""
